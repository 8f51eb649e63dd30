"""Other servers of the digits, each in an interpreter that has it: MLServer, and Ray Serve with its own batching.

The settings are those of ``teco serve`` in the same run: ONNX Runtime with one thread, batches of at most 32 rows, and
as little delay as the server allows.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from parts.bench import DIGITS
from parts.cores import CORES, bind, bound
from tecoinfer_modelzoo.process.process_table import descendants

MODEL = DIGITS / "digits_dyn.onnx"
PARTS = Path(__file__).parent
ROWS, START = 32, 180.0
"""Most rows of a batch; seconds that a server has to start."""


class MissingPeerError(Exception):
    """A peer that is not installed, or cannot be started."""


class Peer(NamedTuple):
    """Port of a running server, and its process."""

    port: int
    pid: int


Start = Callable[[Path], AbstractContextManager[Peer]]
"""Takes the interpreter of a peer, and runs the peer for the time of the block. Raises MissingPeerError."""


def free_port() -> int:
    """Return a port that no program listens at."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _check_import(python: Path, module: str) -> None:
    """Raise MissingPeerError if an interpreter cannot import a module."""
    try:
        words = [str(python), "-c", f"import {module}"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=_environment())
    except OSError as error:
        raise MissingPeerError(f"{python} cannot be started: {error.strerror}") from error
    if done.returncode:
        raise MissingPeerError(f"{python} cannot import {module}: {done.stderr.strip().splitlines()[-1]}")


def _environment() -> dict[str, str]:
    """Return the environment of a peer, which must not import the packages of this one."""
    return {**{key: value for key, value in os.environ.items() if key != "PYTHONPATH"}, "OMP_NUM_THREADS": "1"}


@contextmanager
def mlserver(python: Path) -> Iterator[Peer]:
    """Run MLServer with adaptive batching; its port is that of gRPC."""
    _check_import(python, "mlserver")
    ports = [free_port() for _ in range(3)]
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top) / "digits"  # it expects a folder with the model's name
        folder.mkdir()
        shutil.copy(PARTS / "mlserver_model.py", folder)
        settings: dict[str, Any] = dict(zip(("http_port", "grpc_port", "metrics_port"), ports, strict=True))
        settings |= {"host": "127.0.0.1", "debug": False, "parallel_workers": 0}
        (folder / "settings.json").write_text(json.dumps(settings))
        model: dict[str, Any] = {"name": "digits", "implementation": "mlserver_model.Digits"}
        model |= {"max_batch_size": ROWS, "max_batch_time": 0.001, "parameters": {"uri": str(MODEL)}}
        (folder / "model-settings.json").write_text(json.dumps(model))
        words = bound([str(python), "-W", "ignore", "-m", "mlserver.cli.main", "start", "."], CORES[:-1])
        with (Path(top) / "log").open("w+") as log, _ended(words, folder, log) as process:
            _wait(process, Path(top) / "log", lambda: _is_ready(ports[0]))
            yield Peer(ports[1], process.pid)


@contextmanager
def _ended(words: list[str], folder: Path, log: Any) -> Iterator[subprocess.Popen[Any]]:
    """Run a command for the time of the block."""
    process = subprocess.Popen(words, cwd=folder, env=_environment(), stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _wait(process: subprocess.Popen[Any], log: Path, is_ready: Callable[[], bool]) -> None:
    end = time.monotonic() + START
    while time.monotonic() < end and process.poll() is None:
        if is_ready():
            return
        time.sleep(0.2)
    lines = log.read_text(errors="replace").strip().splitlines()
    raise MissingPeerError(f"it does not start: {lines[-1] if lines else 'it writes nothing'}")


def _is_ready(port: int) -> bool:
    """Return whether the digits are loaded, by the protocol over HTTP."""
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/v2/models/digits/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@contextmanager
def ray_serve(python: Path) -> Iterator[Peer]:
    """Run Ray Serve with ``@serve.batch`` on a cluster of its own; its port is that of HTTP.

    Its many processes start on all cores, since they end if that takes long, and are bound afterwards.
    """
    _check_import(python, "ray.serve")
    port = free_port()
    words = [str(python), str(PARTS / "ray_serve_model.py"), str(MODEL), str(port), str(ROWS)]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=tempfile.gettempdir(),
            env={**_environment(), "RAY_USAGE_STATS_ENABLED": "0"},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if not any(line.startswith("serving") for line in process.stdout):
                log.seek(0)
                lines = log.read().strip().splitlines()
                raise MissingPeerError(f"it does not start: {lines[-1] if lines else 'it writes nothing'}")
            bind((process.pid, *descendants(process.pid)), CORES[:-1])
            yield Peer(port, process.pid)
        finally:
            process.stdin.close()
            process.wait()


PEERS: dict[str, tuple[str, str, Start]] = {
    "mlserver": ("MLServer", "grpc", mlserver),
    "ray": ("Ray Serve", "http", ray_serve),
}
"""Flag of the interpreter -> title, protocol, and how it is started."""
