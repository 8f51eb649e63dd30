"""A complete records file that is put in place together with its JSON result."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tecoinfer_modelzoo.files import same_access
from utils.pipeline.resume.locks import release
from utils.pipeline.resume.records.names import remove_other_kind, unwritable


@dataclass(slots=True)
class Kept:
    """Records on the disk.

    Attributes:
        path: the final file. sha256: of its content.
        waiting: the temporary file until :meth:`place`; ``None`` afterwards.
        parts: files that it was merged from, which :meth:`place` removes. lost: the records were discarded.
    """

    path: Path
    sha256: str
    waiting: Path | None = None
    parts: tuple[Path, ...] = ()
    lost: bool = False
    _lock: int = -1

    def place(self) -> None:
        """Put the file in place; raise ConfigError if it cannot be written. A second call has no effect."""
        if self.waiting is None:
            return
        try:
            same_access(self.path, self.waiting)
            self.waiting.replace(self.path)
            self.waiting = None
            remove_other_kind(self.path)
            for part in self.parts:
                part.unlink()
        except OSError as error:
            raise unwritable(self.path, error) from error
        finally:
            self.discard()

    def discard(self) -> None:
        """Delete the temporary file; a file that is in place stays."""
        if self.waiting is not None:
            with suppress(OSError):
                self.waiting.unlink(missing_ok=True)
            self.waiting, self.lost = None, True
        self._release()

    def _release(self) -> None:
        handle, self._lock = self._lock, -1
        if handle >= 0:
            release(handle)
