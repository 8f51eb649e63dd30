"""Parent process that supervises native code: time and memory limits, signals, crashes and the exit status.

Python runs signal handlers between bytecodes of the main thread: during a native call, Ctrl-C and SIGTERM wait, and a
crash ends the interpreter without a message. A command that runs models therefore forks first. The child works with the
same streams, terminal and process group; the parent only waits:

- Ctrl-C: the child has one second (four if its handler has run and it is cleaning up), then it and its descendants are
  killed. One line, exit code 130. A second Ctrl-C kills at once.
- SIGTERM, SIGHUP: forwarded; then all descendants are killed, and the parent ends by the same signal.
- A crash, an exceeded limit, or an end without :func:`commit`: one line, exit code 2.
- If the parent is killed, the kernel kills the child (Linux).

Imported before everything else; uses only a small part of the standard library.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from tecoinfer_modelzoo import interrupts
from tecoinfer_modelzoo.process.limits import Limits
from tecoinfer_modelzoo.process.native_calls import native
from tecoinfer_modelzoo.process.process_table import descendants, private_memory

TYPE_CHECKING = False  # as in typing, which takes some milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

FAILED = 2
"""Exit code of a command that failed."""

TOOLS = 1.0, 4.0, "--time_limit", "--memory_limit"
SCRIPTS = 2.0, 12.0, "TECO_TIME_LIMIT", "TECO_MEMORY_LIMIT"
"""Seconds from Ctrl-C to the kill of a child in native code, and of one whose handler has run; names of the limits.

A script normally ends within this time and prints its progress, unless native code holds the interpreter lock.
"""

_FORWARDED = 0.3
"""Seconds before a signal is forwarded to a child that has not reported it; a terminal sends it to both processes."""
_AT_ONCE = 0.2  # seconds until the kill after the second Ctrl-C
_ENDING = 30.0  # seconds from the commit to the end of the interpreter, in which native code may join its threads
_SILENT = 30.0  # seconds after which a running native call is reported, once
_KILLING = 10.0  # seconds after which unkillable processes (such as those waiting for a broken disk) are abandoned
_SHARE = 0.02  # maximum fraction of the time spent inspecting processes
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>
_ENDS_BY = (signal.SIGTERM, signal.SIGHUP)
_CAUSES = {
    "SIGFPE": "an integer division by 0, or of the smallest integer by -1; look for such a Div or Mod in the model",
    "SIGKILL": "from outside, such as by the system when memory runs out (use smaller inputs or batches), or by "
    "the hard limit of processor time (ulimit -t)",
    "SIGXCPU": "the limit of processor time (ulimit -t)",
}
_CRASH = "a crash in native code (a runtime, an engine or a plug-in); update that package, or use another target"

_HANDLER_RAN, _LINE_WRITTEN, _COMMIT = b"i", b"s", b"c"
"""Messages of the child: its Ctrl-C handler ran; its line is written; the exit code follows."""

_channel: list[tuple[int, int]] = []  # in a supervised child: its process id, and the pipe to the parent


def is_supervised() -> bool:
    """Return whether this process is a supervised child."""
    return bool(_channel) and _channel[0][0] == os.getpid()


def commit(code: int) -> None:
    """Report that the work is complete and its results are written; exit codes 0 and 1 without it are errors."""
    _report(_COMMIT + bytes([code & 255]))


def supervised(
    name: str, limits: Limits, clean: Callable[[str], str] = str, kind: tuple[float, float, str, str] = TOOLS
) -> None:
    """Fork: return in the child; in the parent, wait for the child and exit with its status.

    Returns without forking in a program that imports the zoo, on a system without forks, with other threads running, or
    under a debugger.

    Args:
        name: the command, which is the prefix of the parent's messages.
        limits: time and memory limits.
        clean: makes a text safe for a terminal.
        kind: :data:`TOOLS` or :data:`SCRIPTS`.
    """
    if is_supervised() or not _can_fork():
        return
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # children could not be waited for
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    native.share()
    reading, writing = os.pipe()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    above = os.getpid()
    held = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, *_ENDS_BY, signal.SIGTSTP))
    try:
        child = os.fork()
    except OSError:  # process limit reached
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        os.close(reading)
        os.close(writing)
        return
    if child:
        os.close(writing)
        parent = _Parent(child, reading, name, limits)
        parent.clean, (parent.kill_after, parent.kill_after_handler, parent.time_flag, parent.memory_flag) = clean, kind
        parent.wait()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != above:  # the parent died before the prctl call
        os._exit(FAILED)
    os.close(reading)
    _channel[:] = [(os.getpid(), writing)]
    interrupts.set_report_callbacks(lambda: _report(_HANDLER_RAN), lambda: _report(_LINE_WRITTEN))
    signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _report(message: bytes) -> None:
    if is_supervised():
        try:
            os.write(_channel[0][1], message)
        except OSError:  # the parent has ended
            return


def _can_fork() -> bool:
    if not hasattr(os, "fork") or sys.gettrace() is not None or not interrupts.is_command():
        return False
    threading = sys.modules.get("threading")
    if threading is None:
        return True
    return bool(threading.active_count() == 1 and threading.current_thread() is threading.main_thread())


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


class _Parent:
    """The waiting parent process."""

    def __init__(self, child: int, channel: int, name: str, limits: Limits) -> None:
        self.child, self.channel, self.name, self.limits = child, channel, name, limits
        self.clean: Callable[[str], str] = str
        self.kill_after, self.kill_after_handler, self.time_flag, self.memory_flag = TOOLS
        self.status: int | None = None
        self.committed: int | None = None
        self.handler_ran = self.line_written = False
        self.interrupts = 0
        self.ending = 0
        self.reason = ""
        now = time.monotonic()
        self.forward_at = self.kill_at = self.end_at = float("inf")
        self.out_of_time = now + (limits.seconds or float("inf"))
        self.look_at = now
        self.warned_of = 0.0
        self.woken = self._take_signals()

    def _take_signals(self) -> int:
        """Write the numbers of all relevant signals to a pipe; return its reading end."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        taken = [signal.SIGINT, *_ENDS_BY, signal.SIGTSTP]
        for number in (signal.SIGCHLD, *taken):
            if signal.getsignal(number) is not signal.SIG_IGN or number == signal.SIGCHLD:  # ignored under nohup and &
                signal.signal(number, lambda number, frame: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, taken)
        return reading

    def wait(self) -> NoReturn:
        """Wait for the child and end this process with its status."""
        while True:
            pause = min(0.5, max(0.0, min(self.forward_at, self.kill_at, self.end_at) - time.monotonic()))
            ready = select.select([fd for fd in (self.woken, self.channel) if fd >= 0], [], [], pause)[0]
            if self.woken in ready:
                for number in os.read(self.woken, 4096):
                    self._on(number)
            self._read_channel(ready)
            self._reap()
            if self.status is None:
                self._look()
            if self.status is not None:
                self._leave(self.status)

    def _on(self, number: int) -> None:
        now = time.monotonic()
        if number == signal.SIGINT:
            self.interrupts += 1
            if self.interrupts == 1 and self.handler_ran:  # reported by the child first
                self.kill_at = now + self.kill_after_handler
            elif self.interrupts == 1:
                self.forward_at, self.kill_at = now + _FORWARDED, now + self.kill_after
            else:
                self.kill_at = min(self.kill_at, now + _AT_ONCE)
        elif number in _ENDS_BY and not self.ending:
            self.ending = number
            self.forward_at, self.kill_at = now + _FORWARDED, min(self.kill_at, now + self.kill_after)
        elif number == signal.SIGTSTP:
            self._stop()

    def _read_channel(self, ready: list[int]) -> None:
        if self.channel not in ready:
            return
        message = os.read(self.channel, 4096)
        if not message:  # closed by the child: it ends, or failed to commit
            os.close(self.channel)
            self.channel = -1
        at = 0
        while at < len(message):
            kind = message[at : at + 1]
            self.line_written |= kind == _LINE_WRITTEN
            if kind == _HANDLER_RAN:
                if self.interrupts == 1 and not self.handler_ran:
                    self.forward_at, self.kill_at = (
                        float("inf"),
                        self.kill_at - self.kill_after + self.kill_after_handler,
                    )
                self.handler_ran = True
            if kind == _COMMIT and at + 1 < len(message):
                self.committed = message[at + 1]
                self.end_at = time.monotonic() + _ENDING
            at += 2 if kind == _COMMIT else 1

    def _reap(self, flags: int = os.WNOHANG | os.WUNTRACED) -> None:
        """Collect ended processes, including adopted orphans; stop together with the child."""
        while True:
            try:
                pid, status = os.waitpid(-1, flags)
            except ChildProcessError:
                if self.status is None and flags & os.WUNTRACED:  # the child was collected elsewhere
                    self.status = 0
                return
            if pid == 0:
                return
            if pid == self.child and os.WIFSTOPPED(status):
                self._stop()
            elif pid == self.child:
                self.status = status

    def _stop(self) -> None:
        """Stop and continue child and parent together; a process group without a shell cannot be stopped."""
        began = time.monotonic()
        self._signal_child(signal.SIGTSTP)
        before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, before)
        self._signal_child(signal.SIGCONT)
        away = time.monotonic() - began
        self.out_of_time += away
        self.end_at += away
        self.warned_of = native.since() or 0.0

    def _signal_child(self, number: int) -> None:
        if self.status is None:
            os.kill(self.child, number)

    def _look(self) -> None:
        """Forward a pending signal, and kill the child if a limit is exceeded."""
        now = time.monotonic()
        if now >= self.forward_at:
            self.forward_at = float("inf")
            self._signal_child(self.ending or signal.SIGINT)
        if now >= self.kill_at:
            self._kill()
        elif now >= self.end_at:
            self.reason = "ended"
            self._kill()
        elif self.committed is None:
            self.reason = self._exceeded(now)
            if self.reason:
                self._kill()

    def _exceeded(self, now: float) -> str:
        """Return the exceeded limit as the end of a message; "" if there is none."""
        if now >= self.out_of_time:
            return f"not finished after {self.limits.seconds:g} s; increase {self.time_flag}"
        since = native.since()
        if since is not None and self.limits.seconds is None and now - since > self.limits.call:
            return f"a call of native code has not returned for {self.limits.call:g} s; increase {self.time_flag}"
        if since is not None and now - since > _SILENT and since != self.warned_of:
            self.warned_of = since
            ways = f"Ctrl-C ends it, {self.time_flag} limits it"
            self._say(f"warning: {self.name}: a call of native code has not returned for {_SILENT:g} s; {ways}")
        if self.limits.memory is not None and now >= self.look_at:
            used = private_memory(descendants(os.getpid()), self.limits.memory)
            self.look_at = now + (time.monotonic() - now) / _SHARE
            if used > self.limits.memory:
                of = f"{used / 2**30:.2f} GiB of memory, more than {self.limits.memory / 2**30:g}"
                return f"uses {of}; increase {self.memory_flag}"
        return ""

    def _kill(self) -> None:
        """Kill until no descendant is left; processes forked meanwhile are found in the next round."""
        deadline = time.monotonic() + _KILLING
        while time.monotonic() < deadline:
            alive = descendants(os.getpid()) or ([self.child] if self.status is None else [])
            for pid in alive:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:  # already ended
                    continue
            self._reap(os.WNOHANG)
            if not alive:
                break
            time.sleep(0.002)
        if self.status is None:
            self.status = signal.SIGKILL

    def _leave(self, status: int) -> NoReturn:
        """End this process with the child's status."""
        while self.channel >= 0 and select.select([self.channel], [], [], 0)[0]:
            self._read_channel([self.channel])
        code = os.waitstatus_to_exitcode(status)
        if self.ending:
            self._kill()
            if code < 0:
                self._die(self.ending)
            os._exit(code)
        if self.reason != "ended" and self._was_interrupted(code):
            if not self.line_written:
                self._say("interrupted")
            os._exit(interrupts.INTERRUPTED)
        if self.reason == "ended":
            self._say(f"warning: {self.name}: killed because it did not end within {_ENDING:g} s after its last line")
            os._exit(self.committed or 0)
        if self.reason:
            self._fail(self.reason)
        if code < 0:
            self._died(-code)
        if self.committed is None and code in (0, 1):
            self._fail(f"ended with exit code {code} before its work was complete: some code called exit, or failed")
        os._exit(code or self.committed or 0)

    def _was_interrupted(self, code: int) -> bool:
        by_itself = code in (-signal.SIGINT, interrupts.INTERRUPTED)
        return by_itself or (self.interrupts > 0 and not self.reason and (code < 0 or self.committed is None))

    def _died(self, number: int) -> NoReturn:
        if number in (*_ENDS_BY, signal.SIGPIPE):
            self._die(number)
        try:
            name = signal.Signals(number).name
        except ValueError:  # a real-time signal
            name = f"signal {number}"
        native_code = name in ("SIGSEGV", "SIGABRT", "SIGILL", "SIGBUS", "SIGSYS", "SIGTRAP")
        cause = _CAUSES.get(name, _CRASH if native_code else "from outside")
        self._fail(f"ended by {name}, {cause}")

    def _die(self, number: int) -> NoReturn:
        """End by a signal, as an unsupervised process would."""
        signal.set_wakeup_fd(-1)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        os._exit(128 + number)

    def _fail(self, text: str) -> NoReturn:
        self._say(f"error: {self.name}: {text}")
        os._exit(FAILED)

    def _say(self, line: str) -> None:
        """Write a line to standard error; on a terminal, overwrite the progress bar."""
        try:
            clear = "\r\x1b[K" if os.isatty(2) and os.environ.get("TERM") != "dumb" else ""
            os.write(2, f"{clear}{self.clean(line)}\n".encode(errors="backslashreplace"))
        except OSError:  # the reader has closed the stream
            return
