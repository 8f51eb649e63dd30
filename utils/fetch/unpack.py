"""Unpacking of the members of a verified archive."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from tecoinfer_modelzoo.text import typed_reason
from utils.fetch.archives import DAMAGED, Entry, entries, is_archive
from utils.fetch.package import FetchError, Package

RATIO, FREE = 200, 2**24
"""Maximum unpacked size: ``RATIO`` times the size of the archive plus ``FREE`` bytes."""

MOST_FILES = 100_000
"""Maximum members of a package."""

_CHUNK = 2**20
_SUFFIX = {"wheel": ".whl", "sdist": ".tar.gz", "tgz": ".tgz", "deb": ".deb"}


def unpack(archive: Path, package: Package, folder: Path) -> dict[str, int]:
    """Write the members of a package into an empty folder and return their sizes by path.

    Raises FetchError: a member is missing, not a regular file or outside the folder; their size differs from the row;
    the archive is damaged; the folder cannot be written.
    """
    job = _Job(package, folder)
    name = archive.name if is_archive(archive.name) else f"archive{_SUFFIX[package.kind]}"
    job.take(archive, name, "")
    job.check()
    return job.written


class _Job:
    """The unpacking of one archive."""

    def __init__(self, package: Package, folder: Path) -> None:
        self.package, self.folder = package, folder
        self.written: dict[str, int] = {}
        self._patterns = {pattern: pattern.split("/") for pattern in package.members}
        self._used: set[str] = set()
        self._left = package.unpacked

    def take(self, archive: Path, name: str, inside: str) -> None:
        """Unpack the members of the archive, or of the archive at the path ``inside`` of it."""
        most = archive.stat().st_size * RATIO + FREE
        try:
            for entry in entries(archive, name, most):
                self._entry(entry, inside)
        except FetchError as error:
            raise self._error(str(error)) from error
        except DAMAGED as error:
            raise self._error(f"the archive {inside or archive.name} is damaged: {typed_reason(error)}") from error

    def check(self) -> None:
        """Check that every pattern matched and that the total size is the row's."""
        missing = [pattern for pattern in self._patterns if pattern not in self._used]
        if missing:
            raise self._error(f"no file of the archive matches {missing[0]!r}; correct members")
        total = sum(self.written.values())
        if total != (right := self.package.unpacked):
            raise self._error(f"the members have {total} bytes, not {right}; correct unpacked or members")

    def _entry(self, entry: Entry, inside: str) -> None:
        own = entry.name.removeprefix("./")
        outside = own.startswith("/") or "\\" in own or not own.isprintable() or ".." in own.split("/")
        if outside or own[1:2] == ":":
            raise FetchError(f"member {entry.name!r} is outside the folder; the package is rejected")
        path = f"{inside}/{own}" if inside else own
        found = [pattern for pattern, parts in self._patterns.items() if matches(path.split("/"), parts)]
        deeper = not inside and is_archive(path) and any(p.startswith(f"{path}/") for p in self._patterns)
        if not found and not deeper:
            return
        if not entry.plain:
            raise FetchError(f"member {path!r} is a link or a special file, which is rejected")
        if found:
            self._keep(entry, path)
            self._used.update(found)
        if deeper:
            self._inner(entry, path)

    def _keep(self, entry: Entry, path: str) -> None:
        if path in self.written:
            raise FetchError(f"member {path!r} occurs twice in the archive; the package is rejected")
        more = f"the members have more than {self.package.unpacked} bytes; correct unpacked or members"
        if len(self.written) >= MOST_FILES:
            raise FetchError(f"more than {MOST_FILES} members; the package is rejected")
        target = self.folder.joinpath(*path.split("/"))
        self.written[path] = _write(_chunks(entry, self._left, more), target)
        self._left -= self.written[path]

    def _inner(self, entry: Entry, path: str) -> None:
        most = self.package.size * 4 + FREE
        with tempfile.TemporaryDirectory(dir=self.folder.parent) as place:
            inner = Path(place) / path.rsplit("/", 1)[-1]
            _write(_chunks(entry, most, f"member {path!r} is too large; the package is rejected"), inner)
            self.take(inner, inner.name, path)

    def _error(self, text: str) -> FetchError:
        head = f"{self.package.title}: "
        place = "" if "correct" not in text else f" in {self.package.where}"
        return FetchError(text if text.startswith(head) else f"{head}{text}{place}")


def write_entry(entry: Entry, target: Path, most: int, too_many: str) -> int:
    """Write a file of an archive into a new file and return its size.

    Args:
        entry: a regular file. target: must not exist; its folder is created. most: maximum number of bytes.
        too_many: message of the error if the file has more.

    Raises FetchError: the file is too large or damaged, or the target cannot be written.
    """
    return _write(_chunks(entry, most, too_many), target)


def _chunks(entry: Entry, most: int, too_many: str) -> Iterator[bytes]:
    """Yield a file of an archive in chunks, up to ``most`` bytes."""
    try:
        with entry.stream() as source:
            while chunk := source.read(_CHUNK):
                most -= len(chunk)
                if most < 0:
                    raise FetchError(too_many)
                yield chunk
    except FetchError:
        raise
    except DAMAGED as error:
        raise FetchError(f"member {entry.name!r} is damaged: {typed_reason(error)}") from error


def _write(chunks: Iterator[bytes], target: Path) -> int:
    size = 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            for chunk in chunks:
                size += file.write(chunk)
    except OSError as error:  # of the target; those of the archive are FetchError
        raise cannot_write(target, error) from error
    return size


def cannot_write(path: Path, error: OSError) -> FetchError:
    """Return the FetchError of a folder that cannot be written."""
    fix = "free disk space, or set TECO_FETCH_DIR to another folder"
    return FetchError(f"{path} cannot be written ({error.strerror or error}); {fix}")


def matches(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether a path matches a pattern, both split at ``/``; ``**`` matches any number of parts."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(matches(path[start:], pattern[1:]) for start in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and matches(path[1:], pattern[1:])
