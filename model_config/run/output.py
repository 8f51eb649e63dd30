"""Copying of a step's output to a log with limited size, and line by line to a callback."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

_CHUNK = 65536
_LINE = 4096
"""Maximum characters of a line that is passed on; the log has the complete line."""

_BREAK = re.compile(rb"[\r\n]+")
"""Line ends; progress bars use a carriage return."""


class Drain(threading.Thread):
    """Thread that reads a pipe to its end; ``trouble`` is the reason if the output made the step fail, else empty.

    Args:
        pipe: pipe to read; closed at the end.
        log, file: path and open unbuffered file of the log, of at most ``limit`` bytes; a last line reports a cut.
        on_line: called with every line, without its line end.
        end: called once if the limit is reached or the log cannot be written; reading continues.
    """

    def __init__(
        self,
        pipe: IO[bytes],
        log: Path,
        file: IO[bytes],
        limit: int,
        on_line: Callable[[str], None] | None,
        end: Callable[[], None],
    ) -> None:
        super().__init__(daemon=True)
        self.pipe = pipe
        self.log = log
        self.file = file
        self.left = limit
        self.limit = limit
        self.on_line = on_line
        self.end = end
        self.trouble = ""
        self.begun = b""

    def run(self) -> None:
        """Copy until the end of the pipe."""
        with self.pipe, self.file as log:
            while chunk := self.pipe.read1(_CHUNK):  # type: ignore[attr-defined]  # a BufferedReader
                if not self.trouble:
                    self._keep(chunk, log)
                    self._tell(chunk)
            if self.begun and self.on_line is not None:
                self.on_line(_text(self.begun))

    def _keep(self, chunk: bytes, log: IO[bytes]) -> None:
        try:
            log.write(chunk[: self.left])
            self.left -= len(chunk)
            if self.left >= 0:
                return
            log.write(f"\n... cut here: more than {self.limit} bytes\n".encode())
            stream = self.log.suffix.lstrip(".")
            self.trouble = f"printed more than {self.limit / 2**20:g} MiB to {stream} and was killed; print less"
        except OSError as error:
            self.trouble = f"its log {self.log} cannot be written: {error.strerror}; make room on the disk"
        self.end()

    def _tell(self, chunk: bytes) -> None:
        if self.on_line is None:
            return
        *lines, rest = _BREAK.split(self.begun + chunk)
        for line in lines:
            self.on_line(_text(line))
        if len(rest) > _LINE:
            self.on_line(_text(rest))
            rest = b""
        self.begun = rest


def new_file(path: Path) -> IO[bytes]:
    """Create a file anew, so that a link or pipe left by an earlier step is not written to.

    Raises:
        OSError: it cannot be created.
    """
    path.unlink(missing_ok=True)
    return open(path, "xb", buffering=0)


def _text(line: bytes) -> str:
    return line[:_LINE].decode("utf-8", errors="replace")
