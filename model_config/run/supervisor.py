"""Runs one command and ends all its descendants: ``python -I -S supervisor.py SETTINGS``.

It is a separate process between the check and a step, because only a process can adopt orphaned descendants
(``PR_SET_CHILD_SUBREAPER`` of prctl(2)): a daemon that a step starts becomes its child, not that of init. It ends all
of them when the step is done, exceeds a limit, or standard input is closed, as when the check dies.

``SETTINGS`` is JSON: ``command`` (argument list), ``cores`` (numbers; empty: all), ``timeout`` and ``grace`` (seconds),
``memory`` (bytes), ``processes``, and ``report``: the file descriptor for the outcome. The outcome is JSON: ``code``
(exit code of the command; null: it was killed), ``why`` (the reason if it was killed: ``timeout``, ``memory``,
``processes`` or ``stopped``), ``peak`` (bytes), ``cpu`` (seconds of all ended processes), ``count`` (maximum number of
processes at once) and ``left`` (command lines of processes that outlived it).

Imports few modules, all of the standard library: this starts once per step. Limits on memory and processes need Linux.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>
_INTERVAL = 0.05
_SHARE = 0.02
"""Seconds between two samples of the process table; longer if sampling exceeds this share of the time."""
_KILLING = 10.0
"""Seconds to wait for killed processes, which may hang in disk I/O."""
_SHOWN = 5
_IGNORED = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
)
"""Signals of a step to its supervisor that are ignored. The check itself uses standard input."""


class Process:
    """An entry of the process table: parent, group, whether it is a zombie, and resident bytes."""

    __slots__ = ("group", "parent", "resident", "zombie")

    def __init__(self, stat: bytes) -> None:
        fields = stat[stat.rindex(b")") + 2 :].split()  # the name in parentheses may contain any character
        self.zombie = fields[0] == b"Z"
        self.parent, self.group = int(fields[1]), int(fields[2])
        self.resident = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")


def descendants(top: int) -> dict[int, Process]:
    """Return all living descendants of a process; empty on a system without ``/proc``."""
    table: dict[int, Process] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # it may have ended
                table[int(name)] = Process(file.read())
    below: dict[int, list[int]] = {}
    for pid, process in table.items():
        below.setdefault(process.parent, []).append(pid)
    waiting, found = [top], set()
    while waiting:
        children = [pid for pid in below.get(waiting.pop(), []) if pid not in found]
        found.update(children)
        waiting += children
    return {pid: table[pid] for pid in found if not table[pid].zombie}


def memory(processes: dict[int, Process], known: int) -> int:
    """Return the bytes of the processes; above ``known`` bytes, shared pages are counted once."""
    resident = sum(process.resident for process in processes.values())
    if len(processes) == 1 or resident <= known:
        return resident
    return sum(_proportional(pid, process.resident) for pid, process in processes.items())


def _proportional(pid: int, resident: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            line = next(line for line in file if line.startswith(b"Pss:"))
    except (OSError, StopIteration):  # not supported by the kernel, or the process has ended
        return resident if _alive(pid) else 0
    return int(line.split()[1]) * 1024


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return not Process(file.read()).zombie
    except OSError:
        return False


def command_line(pid: int) -> str:
    """Return a process's command line, shortened."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            text = " ".join(file.read(4096).decode(errors="replace").replace("\0", " ").split())
    except OSError:
        text = ""
    return (text[:77] + "..." if len(text) > 80 else text) or f"process {pid}"


class Supervisor:
    """Starts the command, monitors it, and ends remaining processes.

    Args:
        settings: command and limits.
        become: turns a fork of this process into the command; does not return.
    """

    def __init__(self, settings: dict[str, Any], become: Callable[[], None] | None = None) -> None:
        self.settings = settings
        self.code: int | None = None
        self.peak = 0
        self.cpu = 0.0
        self.count = 0
        self.woken, waking = _wake_on_child()
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self.main = os.fork()
        if self.main == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(self.woken)
            os.close(waking)
            _apart(settings["cores"])
            (become or (lambda: _execute(settings["command"])))()
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)

    def run(self) -> dict[str, Any]:
        """Run the command and return the outcome after all descendants have ended."""
        why, left = self._watch()
        self._kill()
        code = None if why else self.code
        found = {"peak": self.peak, "cpu": self.cpu, "count": self.count}
        return {"code": code, "why": why, "left": left, **found}

    def _watch(self) -> tuple[str, list[str]]:
        """Wait for the command and its descendants; return the exceeded limit, or the processes that outlived it."""
        deadline, pause = time.monotonic() + self.settings["timeout"], 0.0
        ended = float("inf")
        while True:
            readable = select.select([0, self.woken], [], [], pause)[0]
            self._reap()
            began = time.monotonic()
            if self.code is not None:
                ended = min(ended, began)
            alive = descendants(os.getpid())
            if self.code is not None and not alive:
                return "", []
            if why := "stopped" if 0 in readable else self._broken(alive, deadline):
                return why, []
            if began - ended > self.settings["grace"]:
                return "", [command_line(pid) for pid in sorted(alive)[:_SHOWN]]
            pause = max(_INTERVAL, (time.monotonic() - began) / _SHARE)

    def _broken(self, alive: dict[int, Process], deadline: float) -> str:
        self.count = max(self.count, len(alive))
        if self.count > self.settings["processes"]:
            return "processes"  # before adding up their memory, which takes long for many
        self.peak = max(self.peak, memory(alive, self.peak))
        if self.peak > self.settings["memory"]:
            return "memory"
        return "timeout" if time.monotonic() > deadline else ""

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            os.read(self.woken, 4096)
        with suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return
                self.cpu += usage.ru_utime + usage.ru_stime
                self.peak = max(self.peak, usage.ru_maxrss * (1024 if sys.platform == "linux" else 1))
                if pid == self.main:
                    self.code = os.waitstatus_to_exitcode(status)

    def _kill(self) -> None:
        """Kill until no process is left: processes forked meanwhile are found in the next round."""
        deadline = time.monotonic() + _KILLING
        while time.monotonic() < deadline:
            alive = descendants(os.getpid())
            groups = {process.group for process in alive.values()} | ({self.main} if self.code is None else set())
            for group in groups - {os.getpgrp()}:  # the kernel kills a group at once, so members cannot fork
                with suppress(OSError):
                    os.killpg(group, signal.SIGKILL)
            for pid in alive:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self._reap()
            if not alive and self.code is not None:
                return
            time.sleep(0.002)


def _wake_on_child() -> tuple[int, int]:
    """Return a file descriptor that becomes readable when a child ends, and its write end."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return reading, writing


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _apart(cores: list[int]) -> None:
    """Give this forked process its own session and cores, and close standard input."""
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
    except OSError as error:
        _not_started(error)


def _execute(command: list[str]) -> None:
    try:
        os.execv(command[0], command)  # noqa: S606 -- an argument list, without a shell
    except OSError as error:
        _not_started(error)


def _not_started(error: OSError) -> None:
    os.write(2, f"could not be started: {error}\n".encode())
    os._exit(127)


def main() -> None:
    """Run the command of the settings and write the outcome."""
    settings = json.loads(sys.argv[1])
    os.set_inheritable(settings["report"], False)
    outcome = Supervisor(settings).run()
    os.write(settings["report"], json.dumps(outcome).encode())


if __name__ == "__main__":
    main()
