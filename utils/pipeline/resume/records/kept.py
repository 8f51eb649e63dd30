"""A records file that is complete and waits for its JSON result: both take their places together."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tecoinfer_modelzoo.files import same_access
from utils.pipeline.resume.locks import release
from utils.pipeline.resume.records.names import remove_other_kind, unwritable


@dataclass(slots=True)
class Kept:
    """Records that are on the disk.

    Attributes:
        path: the file they are for. sha256: of its content.
        waiting: where the content lies until :meth:`place`; ``None`` where it is in its place.
        parts: files that it was merged from, and that go then.
        lost: the file will not appear.
    """

    path: Path
    sha256: str
    waiting: Path | None = None
    parts: tuple[Path, ...] = ()
    lost: bool = False
    _lock: int = -1

    def place(self) -> None:
        """Let the file appear; a second call does nothing.

        Raises:
            ConfigError: the file cannot be written.
        """
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
        """Let no file appear after all; an older one stays, and so does one that is in its place."""
        if self.waiting is not None:
            with suppress(OSError):
                self.waiting.unlink(missing_ok=True)
            self.waiting, self.lost = None, True
        self._release()

    def _release(self) -> None:
        handle, self._lock = self._lock, -1
        if handle >= 0:
            release(handle)
