"""A parent process for work that native code may stop, crash or exhaust: time, memory, signals and the exit status.

Python runs its signal handlers between two bytecodes of the main thread: while a runtime computes, Ctrl-C and SIGTERM
wait, and a crash in it ends the interpreter without a word. So a command that runs models forks before it does
anything else. The child does the work, with the same streams, terminal and process group. The parent only waits:

- Ctrl-C: the child has a second (four, where its handler has run and it is cleaning up), then it is killed with all
  its descendants. One line, exit code 130. A second Ctrl-C kills at once.
- SIGTERM, SIGHUP: passed on; then all descendants are killed, and the parent ends by the same signal.
- A crash, a limit that is exceeded, or an end without :func:`commit`: one line, exit code 2.
- Where the parent is killed, the kernel kills the child (Linux).

Only the standard library, and little of it: it is imported before everything else.
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
"""Exit code of a command that could not do its work."""

TOOLS = 1.0, 4.0, "--time_limit", "--memory_limit"
SCRIPTS = 2.0, 12.0, "TECO_TIME_LIMIT", "TECO_MEMORY_LIMIT"
"""Seconds from Ctrl-C to the end of a child in native code, and of one whose handler has run; how to set the limits.

A script ends by itself in this time, and says how far it got, unless its engine holds the interpreter's lock.
"""

_FORWARDED = 0.3
"""Seconds after which a signal is passed on to a child that has not reported it: a terminal sends it to both."""
_AT_ONCE = 0.2
"""Seconds that a child has to end by itself after the second Ctrl-C."""
_ENDING = 30.0
"""Seconds from the commit to the end of the interpreter, in which native code may wait for its threads."""
_SILENT = 30.0
"""Seconds after which a call of native code that has not returned is reported, once."""
_KILLING = 10.0
"""Seconds after which processes that do not die (they wait for a dead disk, say) are left."""
_SHARE = 0.02
"""Of the time at most, which goes into looking at the processes."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>

_ENDS_BY = (signal.SIGTERM, signal.SIGHUP)
_CAUSES = {
    "SIGFPE": "a division that the processor refuses: of whole numbers by 0, or of the smallest one by -1; look for "
    "such a Div or Mod in the model",
    "SIGKILL": "from outside, as the system does where memory runs out (take smaller inputs or a smaller batch), or at "
    "the hard limit of processor time (ulimit -t)",
    "SIGXCPU": "the limit of processor time (ulimit -t)",
}
_CRASH = "a crash in native code (a runtime, an engine or a plug-in); update that package, or take another target"

_HEARD_IT, _SAID_IT, _COMMIT = b"i", b"s", b"c"
"""Messages from the child: its handler of Ctrl-C has run; it has written its line; the exit code follows."""

_news: list[tuple[int, int]] = []
"""In a supervised child: its process number, and where its messages go."""


def is_supervised() -> bool:
    """Say whether this process is the child of one that waits for it here."""
    return bool(_news) and _news[0][0] == os.getpid()


def commit(code: int) -> None:
    """Report that the work is complete and its results are written: exit codes 0 and 1 without it are errors.

    Does nothing in a process that is not supervised.

    Args:
        code: the exit code, 0 to 255.
    """
    _report(_COMMIT + bytes([code & 255]))


def supervised(
    name: str, limits: Limits, clean: Callable[[str], str] = str, kind: tuple[float, float, str, str] = TOOLS
) -> None:
    """Return in a child process, and wait for it in this one, which then ends as the child did.

    Returns in this process, which then does the work itself, where it is not to be forked: in a program that imports
    the zoo, on a system without forks, with other threads running, under a debugger.

    Args:
        name: the command, which every line of the parent begins with.
        limits: of time and memory.
        clean: makes a text safe for a terminal.
        kind: :data:`TOOLS` or :data:`SCRIPTS`.
    """
    if is_supervised() or not _can_fork():
        return
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # then no child can be waited for
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    native.share()
    reading, writing = os.pipe()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    above = os.getpid()
    held = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, *_ENDS_BY, signal.SIGTSTP))
    try:
        child = os.fork()
    except OSError:  # no more processes are allowed
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        os.close(reading)
        os.close(writing)
        return
    if child:
        os.close(writing)
        parent = _Parent(child, reading, name, limits)
        parent.clean, (parent.unheard, parent.heard_in, parent.time_flag, parent.memory_flag) = clean, kind
        parent.wait()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != above:  # it died before the line above
        os._exit(FAILED)
    os.close(reading)
    _news[:] = [(os.getpid(), writing)]
    interrupts.report_to(lambda: _report(_HEARD_IT), lambda: _report(_SAID_IT))
    signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _report(message: bytes) -> None:
    if is_supervised():
        try:
            os.write(_news[0][1], message)
        except OSError:  # the parent is gone, and this process will be in a moment
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
    """The process that waits."""

    def __init__(self, child: int, news: int, name: str, limits: Limits) -> None:
        self.child, self.news, self.name, self.limits = child, news, name, limits
        self.clean: Callable[[str], str] = str
        self.unheard, self.heard_in, self.time_flag, self.memory_flag = TOOLS
        self.status: int | None = None
        self.committed: int | None = None
        self.heard = self.said = False
        self.interrupts = 0
        self.ending = 0
        self.why = ""
        now = time.monotonic()
        self.forward_at = self.kill_at = self.end_at = float("inf")
        self.out_of_time = now + (limits.seconds or float("inf"))
        self.look_at = now
        self.warned_of = 0.0
        self.woken = self._take_signals()

    def _take_signals(self) -> int:
        """Have every signal that matters write its number to a pipe; return where it is read."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        taken = [signal.SIGINT, *_ENDS_BY, signal.SIGTSTP]
        for number in (signal.SIGCHLD, *taken):
            if signal.getsignal(number) is not signal.SIG_IGN or number == signal.SIGCHLD:  # as nohup and & have it
                signal.signal(number, lambda number, frame: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, taken)
        return reading

    def wait(self) -> NoReturn:
        """Wait for the child and end this process as it ended."""
        while True:
            pause = min(0.5, max(0.0, min(self.forward_at, self.kill_at, self.end_at) - time.monotonic()))
            ready = select.select([fd for fd in (self.woken, self.news) if fd >= 0], [], [], pause)[0]
            if self.woken in ready:
                for number in os.read(self.woken, 4096):
                    self._on(number)
            self._read_news(ready)
            self._reap()
            if self.status is None:
                self._look()
            if self.status is not None:
                self._leave(self.status)

    def _on(self, number: int) -> None:
        now = time.monotonic()
        if number == signal.SIGINT:
            self.interrupts += 1
            if self.interrupts == 1 and self.heard:  # the child was quicker
                self.kill_at = now + self.heard_in
            elif self.interrupts == 1:
                self.forward_at, self.kill_at = now + _FORWARDED, now + self.unheard
            else:
                self.kill_at = min(self.kill_at, now + _AT_ONCE)
        elif number in _ENDS_BY and not self.ending:
            self.ending = number
            self.forward_at, self.kill_at = now + _FORWARDED, min(self.kill_at, now + self.unheard)
        elif number == signal.SIGTSTP:
            self._stop()

    def _read_news(self, ready: list[int]) -> None:
        if self.news not in ready:
            return
        message = os.read(self.news, 4096)
        if not message:  # the child has closed it, which is an end without a commit, or ends
            os.close(self.news)
            self.news = -1
        at = 0
        while at < len(message):
            kind = message[at : at + 1]
            self.said |= kind == _SAID_IT
            if kind == _HEARD_IT:
                if self.interrupts == 1 and not self.heard:
                    self.forward_at, self.kill_at = float("inf"), self.kill_at - self.unheard + self.heard_in
                self.heard = True
            if kind == _COMMIT and at + 1 < len(message):
                self.committed = message[at + 1]
                self.end_at = time.monotonic() + _ENDING
            at += 2 if kind == _COMMIT else 1

    def _reap(self) -> None:
        """Collect what has ended, orphans of the child included, and stop where the child was stopped."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                if self.status is None:  # something else has collected the child
                    self.status = 0
                return
            if pid == 0:
                return
            if pid == self.child and os.WIFSTOPPED(status):
                self._stop()
            elif pid == self.child:
                self.status = status

    def _stop(self) -> None:
        """Stop child and parent together, and continue together; a group without a shell cannot be stopped."""
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
        """Pass on a signal that is due, and kill where a limit is exceeded."""
        now = time.monotonic()
        if now >= self.forward_at:
            self.forward_at = float("inf")
            self._signal_child(self.ending or signal.SIGINT)
        if now >= self.kill_at:
            self._kill()
        elif now >= self.end_at:
            self.why = "ended"
            self._kill()
        elif self.committed is None:
            self.why = self._exceeded(now)
            if self.why:
                self._kill()

    def _exceeded(self, now: float) -> str:
        """Return the limit that the child exceeds, as the end of a line; "" for none."""
        if now >= self.out_of_time:
            return f"not ready after {self.limits.seconds:g} s; allow more by {self.time_flag}"
        since = native.since()
        if since is not None and self.limits.seconds is None and now - since > self.limits.call:
            return f"a call of native code has not returned for {self.limits.call:g} s; allow more by {self.time_flag}"
        if since is not None and now - since > _SILENT and since != self.warned_of:
            self.warned_of = since
            ways = f"Ctrl-C ends it, {self.time_flag} limits it"
            self._say(f"warning: {self.name}: a call of native code has not returned for {_SILENT:g} s; {ways}")
        if self.limits.memory is not None and now >= self.look_at:
            used = private_memory(descendants(os.getpid()), self.limits.memory)
            self.look_at = now + (time.monotonic() - now) / _SHARE
            if used > self.limits.memory:
                of = f"{used / 2**30:.2f} GiB of memory, more than {self.limits.memory / 2**30:g}"
                return f"uses {of}; allow more by {self.memory_flag}"
        return ""

    def _kill(self) -> None:
        """Kill until no descendant is left: what forks meanwhile is found in the next round."""
        deadline = time.monotonic() + _KILLING
        while time.monotonic() < deadline:
            alive = descendants(os.getpid()) or ([self.child] if self.status is None else [])
            for pid in alive:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:  # it has ended meanwhile
                    continue
            self._reap_all()
            if not alive:
                break
            time.sleep(0.002)
        if self.status is None:
            self.status = signal.SIGKILL

    def _reap_all(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.child:
                self.status = status

    def _leave(self, status: int) -> NoReturn:
        """End this process as the child ended."""
        while self.news >= 0 and select.select([self.news], [], [], 0)[0]:
            self._read_news([self.news])
        code = os.waitstatus_to_exitcode(status)
        if self.ending:
            self._kill()
            if code < 0:
                self._die(self.ending)
            os._exit(code)
        if self.why != "ended" and self._was_interrupted(code):
            if not self.said:
                self._say("interrupted")
            os._exit(interrupts.INTERRUPTED)
        if self.why == "ended":
            self._say(f"warning: {self.name}: killed, as it did not end within {_ENDING:g} s of its last line")
            os._exit(self.committed or 0)
        if self.why:
            self._fail(self.why)
        if code < 0:
            self._died(-code)
        if self.committed is None and code in (0, 1):
            self._fail(f"ended with exit code {code} before its work was done: something in it called exit, or failed")
        os._exit(code or self.committed or 0)

    def _was_interrupted(self, code: int) -> bool:
        by_itself = code in (-signal.SIGINT, interrupts.INTERRUPTED)
        return by_itself or (self.interrupts > 0 and not self.why and (code < 0 or self.committed is None))

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
        """End by a signal, as without a parent."""
        signal.set_wakeup_fd(-1)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        os._exit(128 + number)

    def _fail(self, text: str) -> NoReturn:
        self._say(f"error: {self.name}: {text}")
        os._exit(FAILED)

    def _say(self, line: str) -> None:
        """Write a line to standard error, in the place of a progress bar on a terminal."""
        try:
            clear = "\r\x1b[K" if os.isatty(2) else ""
            os.write(2, f"{clear}{self.clean(line)}\n".encode(errors="backslashreplace"))
        except OSError:  # nobody reads it
            return
