"""`teco serve` beside MLServer's adaptive batching and Ray Serve's `@serve.batch`: one client, one model, one run.

The digits on ONNX Runtime with one thread, batches of at most 32 rows without a delay. The client is bound to the last
core, the servers to the others. MLServer needs older packages than the zoo: the benchmark installs it into an
environment of its own, once. A peer that cannot be started is reported, and left out.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from parts.bench import ROOT, arguments, finish, median
from serving import CORES, MODEL, asked, bound, server

PARTS = ROOT / "benchmarks" / "parts"
MLSERVER = ("mlserver==1.7.1", "onnxruntime", "numpy")
ROWS, START = 32, 120.0
"""Most rows of a batch; seconds that a server has to start."""


class MissingPeerError(Exception):
    """A peer that cannot be installed or started."""


def free_port() -> int:
    """Return a port that no program listens at."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def waited(process: subprocess.Popen[Any], port: int) -> None:
    """Wait until a server listens. Raises MissingPeerError if it ends, or takes too long."""
    end = time.monotonic() + START
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise MissingPeerError("it does not listen")


def mlserver_python(folder: Path) -> Path:
    """Return the interpreter of MLServer's environment, which is created first if it is missing."""
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        done = subprocess.run([str(python), "-m", "pip", "install", "-q", *MLSERVER], check=False)
        if done.returncode:
            raise MissingPeerError(f"pip cannot install {' '.join(MLSERVER)}")
        (folder / "installed").touch()
    return python


@contextmanager
def mlserver(python: Path) -> Iterator[int]:
    """Start MLServer, and yield its gRPC port."""
    ports = [free_port() for _ in range(3)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(PARTS / "mlserver_model.py", folder)
        settings = dict(zip(("http_port", "grpc_port", "metrics_port"), ports, strict=True))
        (folder / "settings.json").write_text(json.dumps({"host": "127.0.0.1", "debug": False, **settings}))
        model: dict[str, Any] = {"name": "digits", "implementation": "mlserver_model.Digits"}
        model |= {"max_batch_size": ROWS, "max_batch_time": 0.001, "parameters": {"uri": str(MODEL)}}
        (folder / "model-settings.json").write_text(json.dumps(model))
        words = bound([str(python), "-m", "mlserver.cli.main", "start", name], CORES[:-1])
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        with open(os.devnull, "w") as nothing:
            process = subprocess.Popen(words, cwd=name, env=environment, stdout=nothing, stderr=nothing)
        try:
            waited(process, ports[1])
            time.sleep(2)  # it listens before the model is loaded
            yield ports[1]
        finally:
            process.terminate()
            process.wait()


@contextmanager
def ray_serve() -> Iterator[int]:
    """Start Ray Serve, and yield its HTTP port."""
    port = free_port()
    words = bound([sys.executable, str(PARTS / "ray_serve_model.py"), str(MODEL), str(port), str(ROWS)], CORES[:-1])
    with open(os.devnull, "w") as nothing:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=nothing, text=True, cwd=tempfile.gettempdir()
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if not any(line.startswith("serving") for line in process.stdout):
            raise MissingPeerError('Ray Serve does not start; is it installed (".[ray]")?')
        yield port
    finally:
        process.stdin.close()
        process.wait()


@contextmanager
def ours(place: int) -> Iterator[int]:
    """Start our server, and yield a port: 0: of HTTP, 1: of gRPC."""
    with server("--max_batch", str(ROWS)) as ports:
        yield ports[place]


Start = Callable[[], AbstractContextManager[int]]


def main() -> int:
    """Measure all in turn, print the medians of the rounds, and write the JSON."""
    parser = arguments(__doc__)
    parser.add_argument("--in_flight", type=int, default=16, help="requests of one row at a time")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a measurement")
    parser.add_argument("--rounds", type=int, default=3)
    home = Path.home() / ".cache" / "tecoinfer" / "mlserver"
    parser.add_argument("--venv", type=Path, default=home, metavar="DIR", help="environment of MLServer")
    args = parser.parse_args()
    rounds, seconds = (1, 0.5) if args.quick else (args.rounds, args.seconds)
    starts: dict[str, tuple[str, Start]] = {
        "teco serve, gRPC": ("grpc", lambda: ours(1)),
        "teco serve, HTTP": ("http", lambda: ours(0)),
        "MLServer, gRPC": ("grpc", lambda: mlserver(mlserver_python(args.venv))),
        "Ray Serve, HTTP": ("http", ray_serve),
    }
    figures: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for name, (protocol, start) in list(starts.items()):
            try:
                with start() as port:
                    figures.setdefault(name, []).append(asked(protocol, port, args.in_flight, seconds))
            except (MissingPeerError, subprocess.CalledProcessError) as error:
                print(f"{name}: left out: {error}")
                del starts[name]
    result = {name: {key: median([one[key] for one in some]) for key in some[0]} for name, some in figures.items()}
    print(f"digits, {args.in_flight} in flight, {rounds} rounds of {seconds:g} s, load {os.getloadavg()[0]:.1f}")
    for name, found in result.items():
        times = "  ".join(f"{key} {found[key] * 1e3:6.2f} ms" for key in ("p50", "p99"))
        print(f"{name:18} {found['rate']:8.0f} requests/s  {times}")
    finish("serving_peers", {"in_flight": args.in_flight, "rounds": rounds, "figures": result}, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
