"""One row of a table of packages: what is downloaded, which of its files are kept, and under which licence."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

KINDS = {"pip": ("wheel", "sdist"), "npm": ("tgz",), "debian": ("deb",)}
"""Each registry, and what its archives are called; the first where a row says nothing."""


@dataclass(frozen=True)
class Package:
    """Where files come from.

    Attributes:
        name: what it is called here. what: what the files are, in a few words.
        registry, kind: a key of :data:`KINDS` and one of its archives.
        package, version: as the registry has them. pool: of Debian, the folder of a mirror's pool.
        sha256: of the archive, in hexadecimal. size: of the archive, in bytes.
        members: patterns of the files that are kept, as paths in the archive (``*`` stays in a folder, ``**`` does
            not); below the path of an archive inside the archive, files of that one.
        unpacked: bytes of all files that are kept.
        licence: of the files. read_in: where it was read. attribution: whom to name, where that is asked.
        use: what may be done with them, in a few words.
        where: the table's file and line, for messages.
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
        """Package and version as messages have them."""
        return f"{self.name} ({self.registry} {self.package} {self.version})"

    @cached_property
    def key(self) -> str:
        """Name of the folder of the files: another version, archive or choice of members is another folder."""
        text = json.dumps([self.sha256, sorted(self.members), self.unpacked])
        return f"{self.version.replace('/', '_')}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    @property
    def as_json(self) -> Mapping[str, Any]:
        """The row as plain data."""
        names = ("name", "what", "registry", "kind", "package", "version", "sha256", "size", "unpacked", "members")
        more = ("licence", "read_in", "attribution", "use")
        return {name: getattr(self, name) for name in (*names, *more)} | {"members": list(self.members)}
