"""Standard streams that are closed, full or have lost their reader: the work goes on, and what was lost is known.

A process that starts with descriptor 0, 1 or 2 closed gets the next file it opens, such as a result, under that number,
and then prints into it; :func:`fill_closed` takes these numbers first. :class:`Output` wraps a stream: what the system
refuses to take goes to the null device from then on, and the exit code says so at the end (:meth:`Output.exit_code`).
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
"""What writing raises when the reader has closed its end, as ``head`` does."""


class _Nowhere(io.TextIOWrapper):
    """What stands for a stream whose descriptor was closed when the process started."""

    closed_at_start = True


def fill_closed() -> None:
    """Open the null device for each of the descriptors 0 to 2 that is closed, and a stream for it."""
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
    """A stream that takes everything: what cannot be written is lost, which is noted.

    Attributes:
        left: the reader has closed its end, as ``head`` does when it has seen enough.
        lost: the error of the system where something else was wrong, such as a full disk.
    """

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
        """Hand over what was written; what the system does not take is lost.

        Where the descriptor is another file's by now, as when code of the run has closed it, what is held waits.
        """
        if self._is_elsewhere():
            return
        for _ in range(2):  # after a failure what is left in the buffer goes to the null device
            try:
                self._stream.flush()
            except OSError as error:
                self._gave_up(error)
            else:
                return

    def end(self) -> None:
        """Hand over what was written; drop it where the descriptor is another file's, which it would damage."""
        self.flush()
        if self._is_elsewhere():
            self.lost = self.lost or OSError(errno.EBADF, "code of this run has closed or replaced it")
            raw = getattr(getattr(self._stream, "buffer", None), "raw", None)
            if raw is not None and not raw.closefd:
                raw.close()  # leaves the descriptor open

    def close(self) -> None:
        """Hand over what was written; the descriptor stays open, or the next file would get its number."""
        self.flush()

    def exit_code(self, code: int, say: Callable[[str], object]) -> int:
        """Return the exit code of a command that would end with ``code``, once everything it printed is written.

        A reader that left before the end has seen what it wanted, so that costs nothing.

        Args:
            code: of the command. say: takes the line that names what was lost.
        """
        self.end()
        if self.lost is None or code in (UNWRITTEN, 130):
            return code
        why = self.lost.strerror or str(self.lost)
        say(f"error: standard output could not be written: {why}; the files that were asked for are complete")
        return UNWRITTEN

    def _gave_up(self, error: OSError) -> None:
        """Note the first error, and have the null device take what comes from now on."""
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
        except (OSError, ValueError):  # not of the system, or no descriptor is left: each write fails anew
            return

    def _is_elsewhere(self) -> bool:
        return self._file is not None and _file_of(self._stream) != self._file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _file_of(stream: TextIO) -> tuple[int, int] | None:
    """Return which file a stream's descriptor stands for; ``None`` where it has none, or that is closed."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return None
    return found.st_dev, found.st_ino


class Standing:
    """Wraps standard output and standard error inside a ``with`` block, which gets the :class:`Output` of the first.

    Both are there: :func:`fill_closed` comes before.
    """

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
