"""Scripts in forks of a process with preimported packages: the client of :mod:`.preloading`."""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from model_config.run.preloading import READY
from model_config.run.watch import Stops, forgotten, started
from tecoinfer_modelzoo.distribution import HOME

_SERVER = "model_config.run.preloading"
_STARTING = 120.0
"""Timeout of the imports in seconds."""

_ENDING = 30.0
"""Timeout in seconds for the exit code after the outcome has been reported."""

MARK = "MODEL_CHECK_STEP"
"""Environment variable that every process of a step inherits; not one of the zoo's, which reports list."""

TORCH = (
    "torch",
    "torch.onnx._internal.exporter._core",
    "torch._dynamo",
    "torch._functorch.aot_autograd",
    "onnx",
    "onnxscript",
    "utils.export.networks.torchvision_models:import_torchvision",
)
"""Modules that an export from PyTorch imports; none that starts a thread, as onnxruntime does."""

EXAMPLES = (
    "numpy",
    "yaml",
    "PIL.ImageFile",
    "PIL.PngImagePlugin",
    "PIL.JpegImagePlugin",
    "onnx",
    "onnx.reference",
    "onnxscript.optimizer",
    "onnxscript.rewriter.pattern",
    "onnxscript.version_converter",
    "onnx_ir.passes.common",
)
"""Modules that an example imports to prepare a model for the card, without torch."""

_log = logging.getLogger(__name__)


class Process(Protocol):
    """A started supervisor, with the interface of ``subprocess.Popen``."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code after the process has ended; negative for a signal.

        Raises:
            subprocess.TimeoutExpired: it has not ended within ``timeout`` seconds.
        """


@dataclass(slots=True)
class Preloaded:
    """A process that runs scripts in forks of itself, one at a time; started on demand, and restarted if it dies.

    Attributes:
        cores: cores of the process and its forks; empty for all.
        modules: modules to import, as in :mod:`.preloading`.
        mark: value of :data:`MARK` in the environment of the process and all its descendants.
        given_up: the process could not be started; scripts run in separate processes.
    """

    cores: tuple[int, ...] = ()
    modules: Sequence[str] = TORCH
    mark: str = ""
    given_up: bool = not (sys.platform == "linux" and hasattr(os, "memfd_create"))
    _server: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _control: socket.socket | None = field(default=None, repr=False)

    def start(
        self, settings: Mapping[str, Any], report: int, cwd: Path, environment: Mapping[str, str]
    ) -> Forked | None:
        """Start a step's supervisor and the step; ``None`` if it needs a separate process.

        Args:
            settings: settings of the supervisor. report: file descriptor for the outcome.
            cwd, environment: working folder and environment of the step.
        """
        if self.given_up or not self._running(environment):
            return None
        assert self._control is not None  # noqa: S101 -- the process runs
        request = {**settings, "cwd": str(cwd), "environment": dict(environment) | {MARK: self.mark}}
        ours, theirs = [], []
        for number in range(3):
            reading, writing = os.pipe()
            ours.append(reading if number else writing)
            theirs.append(writing if number else reading)
        asked = os.memfd_create("step")
        try:
            with open(asked, "w", encoding="utf-8", closefd=False) as file:
                json.dump(request, file)
            os.lseek(asked, 0, os.SEEK_SET)
            socket.send_fds(self._control, [READY], [asked, *theirs, report])
            said = _received(self._control, _ENDING, self._server)
            if not said.startswith(READY):
                raise ChildProcessError("the process that imports its packages has ended")
        except OSError as error:
            _log.info("the step runs in a separate process: %s", error)
            for one in ours:
                os.close(one)
            self.close()
            return None
        finally:
            for one in (asked, *theirs):
                os.close(one)
        return Forked(
            self, int(said[1:]), *(open(one, mode) for one, mode in zip(ours, ("wb", "rb", "rb"), strict=True))
        )

    def _running(self, environment: Mapping[str, str]) -> bool:
        """Return whether the process runs; start it if necessary."""
        if self._server is not None and self._server.poll() is None:
            return True
        self.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.mark = uuid.uuid4().hex
        own = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
        request = {"cores": self.cores, "modules": list(self.modules)}
        with theirs:
            try:
                self._server = started(
                    [sys.executable, "-m", _SERVER, json.dumps(request)],
                    cwd=HOME,
                    env=own | {MARK: self.mark},
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            except OSError as error:
                return self._refused(ours, str(error))
        self._control = ours
        said = _received(ours, _STARTING, self._server)
        return said == READY or self._refused(ours, said.decode() or "the process that imports their packages ended")

    def _refused(self, control: socket.socket, why: str) -> bool:
        _log.info("every export runs in a separate process: %s", why)
        control.close()
        self.given_up = True
        self.close()
        return False

    @property
    def pid(self) -> int:
        """Process ID; 0 if it does not run."""
        return 0 if self._server is None else self._server.pid

    def ended(self) -> int:
        """Return the exit code of the last supervisor, which has ended."""
        answer = b"" if self._control is None else _received(self._control, _ENDING, self._server)
        if answer:
            return int(answer)
        self.close()
        return -signal.SIGKILL

    def close(self) -> None:
        """End the process and its forks."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            forgotten(self._server.pid)
            self._server = None


class Forked:
    """The supervisor of a step in a fork."""

    def __init__(self, server: Preloaded, pid: int, stdin: IO[bytes], stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self.server, self.pid = server, pid
        self.stdin: IO[bytes] | None = stdin
        self.stdout: IO[bytes] | None = stdout
        self.stderr: IO[bytes] | None = stderr

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code when it has ended; negative for a signal."""
        return self.server.ended()


def _received(control: socket.socket, seconds: float, server: subprocess.Popen[bytes] | None) -> bytes:
    """Return the next message; empty if the server has ended, is stopped or does not answer in time."""
    stops = Stops(lambda: () if server is None else (server.pid,))
    deadline = time.monotonic() + seconds
    with suppress(OSError):
        while time.monotonic() < deadline and not stops():
            if select.select([control], [], [], 0.1)[0]:
                return control.recv(4096)
    return b""
