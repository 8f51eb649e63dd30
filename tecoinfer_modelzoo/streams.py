"""Standard streams that are closed, full or have lost their reader: the run continues, and lost output is reported.

If a process starts with descriptor 0, 1 or 2 closed, the next opened file, such as a result, gets this number and
receives the printed text; :func:`fill_closed` occupies these numbers first. :class:`Output` wraps a stream: after a
write error further output goes to the null device, and the exit code reports the loss (:meth:`Output.exit_code`).
"""

from __future__ import annotations

import errno
import io
import os
import sys

TYPE_CHECKING = False  # as in typing, which takes some milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Any, TextIO

UNWRITTEN = 2
"""Exit code of a command whose output could not be written."""

_GONE = (BrokenPipeError, ConnectionResetError)
"""Errors of writing after the reader has closed its end, as ``head`` does."""


class _Nowhere(io.TextIOWrapper):
    """Replacement of a stream whose descriptor was closed when the process started."""

    closed_at_start = True


def fill_closed() -> None:
    """Open the null device and a stream for each closed descriptor from 0 to 2."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            handle = os.open(os.devnull, os.O_RDWR)
            os.dup2(handle, number)
            if handle != number:
                os.close(handle)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            kind = _Nowhere if number else io.TextIOWrapper
            raw = open(number, "rb" if not number else "wb", closefd=False)  # noqa: SIM115 -- as long as the process
            stream = kind(raw, encoding="utf-8", errors="backslashreplace", line_buffering=number == 2)
            setattr(sys, name, stream)
            if getattr(sys, f"__{name}__") is None:
                setattr(sys, f"__{name}__", stream)


class Output:
    """Stream whose writes never raise; ``left``: the reader has gone, ``lost``: first other error of the system."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._file = _file_of(stream)
        self.left = False
        self.lost: OSError | None = None

    def write(self, text: str) -> int:
        """Write a text."""
        if text and getattr(self._stream, "closed_at_start", False) and self.lost is None:
            self.lost = OSError(9, "it is closed")
        try:
            self._stream.write(text)
        except OSError as error:
            self._gave_up(error)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush the buffer; text that the system does not accept is lost.

        If the descriptor now belongs to another file, because code of the run has closed it, the text stays in the
        buffer.
        """
        if self._is_elsewhere():
            return
        for _ in range(2):  # after a failure the rest of the buffer goes to the null device
            try:
                self._stream.flush()
            except OSError as error:
                self._gave_up(error)
            else:
                return

    def end(self) -> None:
        """Flush the buffer; discard it if the descriptor now belongs to another file, which it would damage."""
        self.flush()
        if self._is_elsewhere():
            self.lost = self.lost or OSError(errno.EBADF, "code of this run has closed or replaced it")
            raw = getattr(getattr(self._stream, "buffer", None), "raw", None)
            if raw is not None and not raw.closefd:
                raw.close()  # leaves the descriptor open

    def close(self) -> None:
        """Flush the buffer; the descriptor stays open so that no other file gets its number."""
        self.flush()

    def exit_code(self, code: int, say: Callable[[str], object]) -> int:
        """Return the exit code after flushing; lost output is reported to ``say`` (not if the reader left early)."""
        self.end()
        if self.lost is None or code in (UNWRITTEN, 130):
            return code
        why = self.lost.strerror or str(self.lost)
        say(f"error: standard output could not be written: {why}; the requested files are complete")
        return UNWRITTEN

    def _gave_up(self, error: OSError) -> None:
        """Record the first error, and redirect further output to the null device."""
        if isinstance(error, _GONE):
            self.left = True
        elif self.lost is None:
            self.lost = error
        try:
            number = self._stream.fileno()
            handle = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
            self._file = _file_of(self._stream)
        except (OSError, ValueError):  # not a system file, or no free descriptor: every write will fail
            return

    def _is_elsewhere(self) -> bool:
        return self._file is not None and _file_of(self._stream) != self._file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _file_of(stream: TextIO) -> tuple[int, int] | None:
    """Return device and inode of a stream's descriptor; ``None`` if it has none or is closed."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return None
    return found.st_dev, found.st_ino


class Standing:
    """Context manager that wraps both output streams; call :func:`fill_closed` before, so that they exist."""

    def __enter__(self) -> Output:
        self._before = sys.stdout, sys.stderr
        self._outputs = Output(sys.stdout), Output(sys.stderr)
        sys.stdout, sys.stderr = self._outputs
        return self._outputs[0]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for output in self._outputs:
            output.end()
        sys.stdout, sys.stderr = self._before
