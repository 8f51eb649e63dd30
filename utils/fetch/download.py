"""Download of an archive by the registry's client (pip, npm, apt-get) with the user's settings, else over HTTP."""

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
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path

from tecoinfer_modelzoo import home_folder
from tecoinfer_modelzoo.files import hash_files
from tecoinfer_modelzoo.progress import progress
from tecoinfer_modelzoo.text import one_line
from tecoinfer_modelzoo.trees import walk
from utils.fetch.package import FetchError, Package, UnreachableError
from utils.fetch.simple_index import from_index
from utils.fetch.unpack import cannot_write
from utils.fetch.web import Access, shown

NPM, DEBIAN = "https://registry.npmjs.org", "https://deb.debian.org/debian"
MIRROR = "TECO_DEBIAN_MIRROR"
"""Environment variable with a Debian mirror, for machines without apt-get or with another release."""

_POLL, _STEP = 0.1, 2**20
_SLOW_FAILURE = 5.0
STALLED = 60.0
"""Seconds without a new byte after which a client is killed."""
_CONTROL = re.compile(r"\x1b\[[0-9;]*m")


def download(package: Package, folder: Path) -> Path:
    """Write a package's archive into an empty folder, verify its hash and return its path.

    Raises UnreachableError if all downloads fail; FetchError if hash or size differ, or the folder cannot be written.
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


def first_download(package: Package, folder: Path) -> Path:
    """Write the archive of a package whose hash is not known yet into an empty folder, and return its path.

    Raises UnreachableError if all downloads fail, FetchError if the folder cannot be written.
    """
    reasons: list[str] = []
    for number, (name, way) in enumerate(_ways(package)):
        place = folder / str(number)
        try:
            place.mkdir()
            return way(package, place)
        except UnreachableError as error:
            reasons.append(f"{name}: {error}")
        except OSError as error:
            raise cannot_write(folder, error) from error
    title = f"{package.registry} {package.package} {package.version}"
    raise UnreachableError(f"{title} cannot be downloaded ({'; '.join(reasons)}); check the network, and the version")


def wrong_archive(archive: Path, package: Package) -> str:
    """Return how a file differs from a package's archive (SHA-256, size), or an empty string."""
    size, digest = archive.stat().st_size, hash_files(archive)
    if digest != package.sha256:
        return f"{archive.name} has sha256 {digest}, not {package.sha256}"
    return "" if size == package.size else f"{archive.name} has {size} bytes, not the row's {package.size}"


Way = Callable[[Package, Path], Path]


def _ways(package: Package) -> list[tuple[str, Way]]:
    """Return the names and functions of the downloads to try, the registry's client first."""
    if package.registry == "pip":
        # Not for an sdist, whose setup.py pip would run. PathFinder, as setuptools' finder would replace distutils.
        own = package.kind == "wheel" and PathFinder.find_spec("pip") is not None
        return [*([("pip", _by_pip)] if own else []), ("index", from_index)]
    if package.registry == "npm":
        return [*([("npm", _by_npm)] if shutil.which("npm") else []), ("registry", _from_npm_registry)]
    apt = partial(_run, ["apt-get", "-qq", "download", f"{package.package}={package.version}"])
    return [*([("apt-get", apt)] if shutil.which("apt-get") else []), ("mirror", _from_debian_mirror)]


def _file_name(package: Package) -> str:
    names = {"wheel": "the wheel", "sdist": "the sdist", "tgz": "the .tgz", "deb": "the .deb"}
    return f"{names[package.kind]} of {package.package} {package.version}"


def _by_pip(package: Package, folder: Path) -> Path:
    """Download a wheel by ``pip download``, which runs no code of it."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", "--ignore-requires-python", "--dest", str(folder)]
    return _run([*command, f"{package.package}=={package.version}"], package, folder)


def _by_npm(package: Package, folder: Path) -> Path:
    command = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", str(folder)]
    return _run([*command, f"{package.package}@{package.version}"], package, folder)


def _run(command: Sequence[str], package: Package, folder: Path) -> Path:
    """Run a client that writes one archive, its temporary files and its cache into a folder."""
    temporary = folder / "tmp"
    temporary.mkdir()
    places = {"TMPDIR": str(temporary), "PIP_NO_CACHE_DIR": "1", "npm_config_cache": str(temporary / "npm")}
    places["RUSTUP_HOME"] = str(temporary / "rustup")  # pip runs rustc, for which rustup writes files
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
            for _ in progress(_growth(process, folder, package.size), "MiB", package.name, -(-package.size // _STEP)):
                continue
        except BaseException:
            process.kill()
            raise
    found = [path for path in folder.iterdir() if path.is_file() and path.name != "stderr"]
    if process.returncode or len(found) != 1:
        raise UnreachableError(_error_line(folder / "stderr") or f"{command[0]} wrote {len(found)} files")
    return found[0]


def _growth(process: subprocess.Popen[bytes], folder: Path, most: int) -> Iterator[None]:
    """Yield once per MiB that a running client has written below a folder, up to ``most`` bytes (it may copy)."""
    reported, most_seen, last = 0, 0, time.monotonic()
    while process.poll() is None:
        time.sleep(_POLL)
        seen = _bytes_below(folder)
        if seen > most_seen:
            most_seen, last = seen, time.monotonic()
        elif time.monotonic() - last > STALLED:
            process.kill()
            return
        while reported < min(seen, most) // _STEP:
            reported += 1
            yield


def _bytes_below(folder: Path) -> int:
    total = 0
    for place, _, names in walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(place, name)).st_size
            except FileNotFoundError:  # moved meanwhile
                continue
    return total


def _error_line(log: Path) -> str:
    """Return the last error line of a client's output, else the last line."""
    text = _CONTROL.sub("", log.read_text("utf-8", "replace"))
    lines = [one_line(line) for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(?i)(npm )?(err(or)?\b|e:)", line)]
    return (errors or lines or [""])[-1][:300]


def _from_npm_registry(package: Package, folder: Path) -> Path:
    """Download the tarball that the registry's metadata of the package names."""
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
    """Return npm's registry: of the package's scope, else of the environment, else of ``.npmrc``."""
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
    """Download a package from a mirror's pool."""
    mirror = os.environ.get(MIRROR) or DEBIAN
    for architecture in ("all", "amd64"):
        name = f"{package.package}_{package.version.partition(':')[2] or package.version}_{architecture}.deb"
        begun = time.monotonic()
        try:
            Access().save(f"{mirror.rstrip('/')}/pool/{package.pool}/{name}", folder / name, package.size)
        except UnreachableError as error:
            reason = error
            if time.monotonic() - begun > _SLOW_FAILURE:
                raise  # do not try again at a mirror that was slow to fail
            continue
        return folder / name
    raise reason
