"""Imports packages once and runs many scripts: ``python -m model_config.run.preloading SETTINGS``.

Standard input is a socket, and the folder it starts in that of the zoo's packages.

A small network spends most of a step on imports, in its export and where it is run. Here they are done once; each
script then runs in a fork of this process, which no other script sees: with a working folder, arguments, environment,
standard streams and a supervisor of its own (:mod:`model_config.run.supervisor`), exactly as a process that was started
for it has them.
Only other people's packages are imported: the zoo's own are found by each script for itself.

``SETTINGS`` is JSON: ``cores`` (numbers; empty: all) and ``modules``: what to import, or ``module:function`` to call;
what cannot be is left to the scripts. A fork copies the one thread that
asks for it, so where an import has left a second one running, this process says so and ends: nothing is forked.

The socket keeps messages apart. A request is one byte with five file descriptors: a file with the supervisor's settings
and ``cwd`` and ``environment`` in JSON; the step's three standard streams; and where the outcome goes. When the step
begins, :data:`READY` and the supervisor's number come; when it is over, the supervisor's exit code. It ends when the
socket does.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import runpy
import socket
import sys
from contextlib import suppress
from types import TracebackType
from typing import Any

from model_config.run.supervisor import Supervisor
from tecoinfer_modelzoo.own_packages import PACKAGES

READY = b"r"
OWN = frozenset((*PACKAGES, "tecoinfer_modelzoo"))
FILES = 5
"""File descriptors of a request."""


class BecomeError(BaseException):
    """Leaves every frame of the server: the process goes on as a step."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        self.settings = settings


def preload(modules: list[str]) -> list[object]:
    """Import the modules; return what must not be forgotten although no script may see it."""
    for name in modules:
        before = set(sys.modules)
        module, _, function = name.partition(":")
        try:
            found = importlib.import_module(module)
            if function:
                getattr(found, function)()
        except Exception:  # noqa: BLE001 -- the script that needs it says why it cannot be imported
            for half in set(sys.modules) - before:
                if half.partition(".")[0] == module.partition(".")[0]:
                    del sys.modules[half]
    # What a function of the zoo has registered with a package may live only as long as its own module.
    return [sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in OWN]


def threads() -> int:
    """Return the threads of this process, those that Python does not know included."""
    return len(os.listdir("/proc/self/task"))


def serve(control: socket.socket) -> None:
    """Run scripts until the other side goes.

    Raises:
        BecomeError: in a fork, which is to be the step.
    """
    gc.collect()
    gc.freeze()  # so that a fork's collections leave alone the pages that it shares
    control.send(READY)
    while True:
        data, files, _, _ = socket.recv_fds(control, 1, FILES)
        if not data:
            return
        pid = os.fork()
        if pid == 0:
            control.close()
            _supervise(files)
        for file in files:
            os.close(file)
        control.send(READY + str(pid).encode())
        _, status = os.waitpid(pid, 0)
        with suppress(OSError):  # nobody waits for it any more
            control.send(str(os.waitstatus_to_exitcode(status)).encode())


def _supervise(files: list[int]) -> None:
    """Be the supervisor of one step, and end; in its fork raise :class:`BecomeError`."""
    with open(files[0], encoding="utf-8") as file:
        settings = json.load(file)
    os.setsid()
    for place, given in enumerate(files[1:4]):
        os.dup2(given, place)
        os.close(given)
    report = files[4]

    def become() -> None:
        os.close(report)
        raise BecomeError(settings)

    outcome = Supervisor(settings, become).run()
    os.write(report, json.dumps(outcome).encode())
    os._exit(0)


def script(settings: dict[str, Any]) -> None:
    """Run a step's script as ``python SCRIPT ARGUMENTS`` would.

    Raises:
        SystemExit: the script ends.
    """
    words: list[str] = settings["command"][1:]
    os.chdir(settings["cwd"])
    os.environ.clear()
    os.environ.update(settings["environment"])
    _open_streams()
    path = os.path.realpath(words[0])
    ours = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    sys.path[:] = [os.path.dirname(path), *ours, *(one for one in sys.path if one not in ours)]
    sys.argv[:] = words
    importlib.invalidate_caches()
    try:
        runpy.run_path(os.path.abspath(words[0]), run_name="__main__")
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 -- as the interpreter ends a script, without the frames of this file
        trace = _of_script(error.__traceback__)
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)


def _open_streams() -> None:
    """Open Python's standard streams anew on the step's own files.

    Those of the server were opened on other files, and remember of these whether they can seek and are terminals.
    """
    for place, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        unbuffered = old.write_through  # as PYTHONUNBUFFERED has it
        size = 0 if unbuffered and place else -1
        new = open(place, "wb" if place else "rb", size, closefd=False)  # noqa: SIM115 - until the end
        lines = (place == 2 or new.isatty()) and not unbuffered
        text = io.TextIOWrapper(new, old.encoding, old.errors, line_buffering=lines, write_through=unbuffered)
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)


def _of_script(trace: TracebackType | None) -> TracebackType | None:
    hidden = (__file__, runpy.__file__, "<frozen runpy>")
    while trace is not None and trace.tb_frame.f_code.co_filename in hidden:
        trace = trace.tb_next
    return trace


def main() -> None:
    """Do what the settings say."""
    settings = json.loads(sys.argv[1])
    control = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as null:
        os.dup2(null.fileno(), 0)
    if settings["cores"]:
        os.sched_setaffinity(0, settings["cores"])
    kept = preload(settings["modules"])
    if sys.path[0] == os.getcwd():  # where the zoo is; a script finds it for itself
        del sys.path[0]
    if threads() > 1:
        control.send(b"a package that was imported keeps a thread, which a fork would not have")
        return
    try:
        serve(control)
        return
    except BecomeError as step:
        found = step.settings
    script(found)
    del kept


if __name__ == "__main__":
    main()
