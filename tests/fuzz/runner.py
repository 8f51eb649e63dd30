"""Run a case in a fork of this process, with its own process group, a time limit, and its output in files."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import runpy
import select
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from tests.fuzz.case import ROOT, Case, Outcome

CHILD_SUBREAPER = 36
"""Linux's PR_SET_CHILD_SUBREAPER: orphaned processes become children of this process, and are found."""

ADDRESS_SPACE = 24 << 30
"""Limit of the address space of a case in bytes, to protect the machine."""

MOST_OUTPUT = 4 << 20
"""Characters of each stream that are judged."""

GRACE = 3.0
"""Seconds for helper processes (a resource tracker) to end after a command; a tenth of its limit if that is more."""


def adopt_orphans() -> None:
    """Become the parent of orphaned processes of cases."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(CHILD_SUBREAPER, 1, 0, 0, 0)


def run(case: Case, folder: Path, env: Mapping[str, str], limit: float) -> Outcome:
    """Run a case in its folder and return its outcome.

    Args:
        folder: the files of the case, its working folder. env: environment variables of every case.
        limit: seconds after which it is ended.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    start = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _become(case, folder, {**env, **case.env})
    code, memory = _wait(pid, case, start, limit)
    seconds = time.monotonic() - start
    left = _left(pid, os.getpid(), max(GRACE, limit / 10))
    return Outcome(code, _text(folder, "stdout"), _text(folder, "stderr"), seconds, memory, left)


def again(case: Case) -> str:
    """Return a shell script that runs a case once more, in its folder."""
    env = " ".join(f"{name}={shlex.quote(value)}" for name, value in case.env.items())
    head = f'#!/bin/sh\n# {case.what.splitlines()[0] if case.what else ""}\ncd "$(dirname "$0")/case"\n'
    return f"{head}PYTHONPATH={shlex.quote(str(ROOT))} {env} exec python {shlex.join(case.words)}\n"


def _text(folder: Path, name: str) -> str:
    with _beside(folder, name).open(encoding="utf-8", errors="backslashreplace", newline="") as file:
        return file.read(MOST_OUTPUT)


def _beside(folder: Path, name: str) -> Path:
    return folder.with_name(f"{folder.name}.{name}")


def _become(case: Case, folder: Path, env: Mapping[str, str]) -> NoReturn:
    """Run the command in this fork, and exit with its exit code."""
    code = 1
    try:
        os.setsid()
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            signal.signal(getattr(signal, name), signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        for number, name, flags in ((0, os.devnull, os.O_RDONLY), (1, "stdout", 0), (2, "stderr", 0)):
            path = name if flags == os.O_RDONLY and number == 0 else str(_beside(folder, name))
            file = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(file, number)
        os.chdir(folder)
        os.environ.update(env)
        code = _execute(case.words)
    except BaseException:  # noqa: BLE001 - this fork ends here, whatever happens
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            _end_threads()
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _end_threads() -> None:
    """Do the interpreter's work at exit: wait for threads, run registered functions."""
    import atexit
    import threading

    threading._shutdown()
    atexit._run_exitfuncs()


def _execute(words: tuple[str, ...]) -> int:
    try:
        if words[0] == "-m":
            sys.argv = list(words[1:])
            sys.modules.pop(words[1], None)  # a module that was imported before is warned of
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(words)
            sys.path.insert(0, str(Path(words[0]).parent))
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    except KeyboardInterrupt:
        traceback.print_exc()
        return 130
    return 0


def _wait(pid: int, case: Case, start: float, limit: float) -> tuple[int | None, int]:
    """Return the exit code and the peak memory of a fork; code ``None`` if it had to be killed."""
    ended = os.pidfd_open(pid)
    try:
        for after in sorted(case.interrupts):
            if select.select([ended], [], [], max(0.0, start + after - time.monotonic()))[0]:
                break
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGINT)
        in_time = bool(select.select([ended], [], [], max(0.0, start + limit - time.monotonic()))[0])
        if not in_time:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGABRT)  # faulthandler, where it is on, says where it hung
            if not select.select([ended], [], [], 1.0)[0]:
                os.kill(pid, signal.SIGKILL)
    finally:
        os.close(ended)
    _, status, usage = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(status) if in_time else None, usage.ru_maxrss * 1024


def _left(session: int, adopter: int, grace: float) -> tuple[str, ...]:
    """Return the command lines of processes that outlive a case, after a grace period, and kill them."""
    deadline = time.monotonic() + grace
    while (found := _of_session(session, adopter)) and time.monotonic() < deadline:
        time.sleep(0.02)
        _reap()
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if found:
        time.sleep(0.1)
        _reap()
    return tuple(found.values())


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _of_session(session: int, adopter: int) -> dict[int, str]:
    """Return the processes of a session, and adopted ones, with their command lines, without zombies."""
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            fields = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")[2].split()
            line = Path(entry.path, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:  # it has just ended
            continue
        if fields[0] != "Z" and (int(fields[3]) == session or int(fields[1]) == adopter):
            found[int(entry.name)] = line
    return found
