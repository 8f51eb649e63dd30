"""One table row of a package (archive, files to keep, licence), and the errors of downloads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from engine import DataError

KINDS = {"pip": ("wheel", "sdist"), "npm": ("tgz",), "debian": ("deb",)}
"""Archive kinds by registry; the first one is the default."""


class FetchError(DataError):
    """The files of a package are unavailable or differ from its table row."""


class UnreachableError(FetchError):
    """No registry returned the archive: no network, or the version is missing."""


@dataclass(frozen=True)
class Package:
    """Source of files.

    Attributes:
        name: row name. what: short description. registry, kind: a key of :data:`KINDS` and one of its archives.
        package, version: in the registry. pool: for Debian, the folder in a mirror's pool.
        sha256: of the archive, in hexadecimal. size: of the archive, in bytes.
        members: patterns of the files to keep, as paths in the archive (``*`` matches within a folder, ``**`` across
            folders); an archive in the archive is matched like a folder.
        unpacked: total bytes of these files.
        licence: of the files. read_in: its source. attribution: required credit, if any.
        use: permitted use, in a few words. where: the table's file and line, for messages.
    """

    name: str
    what: str
    registry: str
    kind: str
    package: str
    version: str
    sha256: str
    size: int
    members: tuple[str, ...]
    unpacked: int
    licence: str
    read_in: str
    use: str
    attribution: str = ""
    pool: str = ""
    where: str = ""

    @property
    def title(self) -> str:
        """Package and version, for messages."""
        return f"{self.name} ({self.registry} {self.package} {self.version})"

    @cached_property
    def key(self) -> str:
        """Folder name, unique per version, archive and members."""
        text = json.dumps([self.sha256, sorted(self.members), self.unpacked])
        return f"{self.version.replace('/', '_')}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    @property
    def as_json(self) -> Mapping[str, Any]:
        """The row as plain data."""
        names = ("name", "what", "registry", "kind", "package", "version", "sha256", "size", "unpacked", "members")
        more = ("licence", "read_in", "attribution", "use")
        return {name: getattr(self, name) for name in (*names, *more)} | {"members": list(self.members)}
