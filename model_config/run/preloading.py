"""Server that imports packages once and runs scripts in forks: ``python -m model_config.run.preloading SETTINGS``.

Standard input is a socket, and the working folder is that of the zoo's packages.

Imports dominate the time of a step with a small network. Here they are done once; each script then runs in an isolated
fork with its own working folder, arguments, environment, standard streams and supervisor
(:mod:`model_config.run.supervisor`), as in a new process. Only third-party packages are imported: each script imports
the zoo's own modules itself.

``SETTINGS`` is JSON: ``cores`` (numbers; empty: all) and ``modules``: modules to import, or ``module:function`` to
call; failed imports are left to the scripts. A fork copies only the calling thread, so if an import has started another
thread, this process reports it and exits.

The socket keeps message boundaries. A request is one byte with five file descriptors: a JSON file with the supervisor's
settings, ``cwd`` and ``environment``; the step's three standard streams; and the pipe for the outcome. The replies are
:data:`READY` with the supervisor's process ID at the start, and the supervisor's exit code at the end. The server ends
when the socket is closed.
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
"""Number of file descriptors of a request."""


class BecomeError(BaseException):
    """Unwinds all frames of the server in a fork, which then runs the step."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        self.settings = settings


def preload(modules: list[str]) -> list[object]:
    """Import the modules; return objects that must stay alive although no script can see them."""
    for name in modules:
        before = set(sys.modules)
        module, _, function = name.partition(":")
        try:
            found = importlib.import_module(module)
            if function:
                getattr(found, function)()
        except Exception:  # noqa: BLE001 -- the script that needs it reports the import error
            for half in set(sys.modules) - before:
                if half.partition(".")[0] == module.partition(".")[0]:
                    del sys.modules[half]
    # Functions that the zoo has registered with a package may live only as long as their module.
    return [sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in OWN]


def threads() -> int:
    """Return the number of threads of this process, including those that Python did not create."""
    return len(os.listdir("/proc/self/task"))


def serve(control: socket.socket) -> None:
    """Run scripts until the socket is closed.

    Raises:
        BecomeError: in a fork that is to run the step.
    """
    gc.collect()
    gc.freeze()  # so that garbage collections in a fork do not copy shared pages
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
        with suppress(OSError):  # the client has ended
            control.send(str(os.waitstatus_to_exitcode(status)).encode())


def _supervise(files: list[int]) -> None:
    """Act as the supervisor of one step, and exit; in its fork raise :class:`BecomeError`."""
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
    except BaseException as error:  # noqa: BLE001 -- print it as the interpreter does, without the frames of this file
        trace = _of_script(error.__traceback__)
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)


def _open_streams() -> None:
    """Reopen Python's standard streams on the step's own files.

    The server's stream objects cache whether their original files can seek and are terminals.
    """
    for place, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        unbuffered = old.write_through  # as set by PYTHONUNBUFFERED
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
    """Run the server with the settings from the command line."""
    settings = json.loads(sys.argv[1])
    control = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as null:
        os.dup2(null.fileno(), 0)
    if settings["cores"]:
        os.sched_setaffinity(0, settings["cores"])
    kept = preload(settings["modules"])
    if sys.path[0] == os.getcwd():  # the zoo's folder; each script finds it by itself
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
