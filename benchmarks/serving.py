"""Serving over the network: requests in flight with and without batching, and large batches beside the bare engine.

The client is a process of its own; where there are at least two cores, it is bound to the last one, and the server, the
bare engine and an empty gRPC server to the others. The empty server answers at once: its rate is the most that grpc.aio
leaves to any server in Python.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from parts.bench import DIGITS, ROOT, arguments, finish, median

from engine import EngineSpec, open_engine

CLIENT = Path(__file__).with_name("parts") / "serving_client.py"
ECHO = CLIENT.with_name("echo_server.py")
TIMES, SHARE = 3.0, 0.85
"""Targets: rate of gRPC with batching over that without; rate of large batches over that of the bare engine."""

LARGE = 64
"""Rows of a large batch."""

MODEL = DIGITS / "digits_dyn.onnx"
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def bound(words: list[str], cores: list[int]) -> list[str]:
    """Return a command that runs on these cores."""
    if len(CORES) < 2:
        return words
    steps = (
        "import os, sys",
        "os.sched_setaffinity(0, map(int, sys.argv[1].split(',')))",
        "os.execv(sys.argv[2], sys.argv[2:])",
    )
    code = "; ".join(steps)
    return [sys.executable, "-c", code, ",".join(map(str, cores)), *words]


@contextmanager
def server(*flags: str) -> Iterator[tuple[int, int]]:
    """Start a server, and yield its ports: HTTP and gRPC."""
    words = [sys.executable, "-m", "toolkit.cli", "serve", f"digits={MODEL}"]
    words += ["--http_port", "0", "--grpc_port", "0", *flags]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(bound(words, CORES[:-1]), stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    line = next((line for line in process.stdout if line.startswith("serving")), "")
    found = re.findall(r":(\d+)", line)
    try:
        yield int(found[0]), int(found[1])
    finally:
        process.terminate()
        process.wait()


@contextmanager
def echo(*kind: str) -> Iterator[int]:
    """Start an empty server (``parts/echo_server.py``), and yield its port."""
    words = bound([sys.executable, str(ECHO), *kind], CORES[:-1])
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait()


def asked(protocol: str, port: int, in_flight: int, seconds: float, rows: int = 1) -> dict[str, float]:
    """Return the figures of the client."""
    words = [sys.executable, str(CLIENT), protocol, *map(str, (port, in_flight, seconds, rows))]
    done = subprocess.run(bound(words, CORES[-1:]), capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def bare_rate(seconds: float) -> float:
    """Return the rows per second of the engine alone on the server's cores, in calls of :data:`LARGE` rows."""
    x = np.random.default_rng(1).random((LARGE, 3, 32, 32)).astype(np.float32)
    with on_cores(CORES[:-1]), open_engine("onnx", EngineSpec(ckpt=MODEL, batch_size=LARGE)) as engine:
        engine(x)
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            engine(x)
            count += LARGE
        return count / (time.perf_counter() - start)


@contextmanager
def on_cores(cores: list[int]) -> Iterator[None]:
    """Run this process on some cores."""
    if not cores:
        yield
        return
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, CORES)


def measured(rounds: int, seconds: float, in_flight: int) -> tuple[dict[str, dict[str, float]], float]:
    """Return the medians of the rounds by kind of request, and of the bare engine's rows per second."""
    found: dict[str, list[dict[str, float]]] = {}
    bare = []
    for _ in range(rounds):
        with echo("grpc.aio") as port:
            found.setdefault("grpc echo", []).append(asked("grpc", port, in_flight, seconds))
            found.setdefault(f"grpc echo {LARGE}", []).append(asked("grpc", port, 2, seconds, LARGE))
        for name, flags in (("single", ["--max_batch", "1"]), ("batched", ["--max_batch", "32"])):
            with server(*flags) as ports:
                for protocol, port in zip(("http", "grpc"), ports, strict=True):
                    found.setdefault(f"{protocol} {name}", []).append(asked(protocol, port, in_flight, seconds))
        with server("--max_batch", str(LARGE)) as ports:
            for protocol, port in zip(("http", "grpc"), ports, strict=True):
                found.setdefault(f"{protocol} {LARGE} rows", []).append(asked(protocol, port, 2, seconds, LARGE))
        bare.append(bare_rate(seconds))
    medians = {name: {key: median([one[key] for one in some]) for key in some[0]} for name, some in found.items()}
    return medians, median(bare)


def main() -> int:
    """Measure, print the medians of the rounds, and write the JSON."""
    parser = arguments(__doc__)
    parser.add_argument("--in_flight", type=int, default=16, help="requests of one row at a time")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a measurement")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    rounds, seconds = (1, 0.5) if args.quick else (args.rounds, args.seconds)
    figures, bare = measured(rounds, seconds, args.in_flight)
    result: dict[str, Any] = {
        "in_flight": args.in_flight,
        "rounds": rounds,
        "figures": figures,
        "bare_rows_per_s": bare,
    }
    print(f"digits on target onnx, {args.in_flight} requests in flight, medians of {rounds} rounds of {seconds:g} s")
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    for name, found in result["figures"].items():
        times = "  ".join(f"{key} {found[key] * 1e3:6.2f} ms" for key in ("p50", "p99"))
        print(f"{name:14} {found['rate']:8.0f} requests/s  {times}")
    echoes = {name: figures[name]["rate"] for name in ("grpc echo", f"grpc echo {LARGE}")}
    result["most_batching"] = echoes["grpc echo"] / figures["grpc single"]["rate"]
    result["batching"] = result["figures"]["grpc batched"]["rate"] / result["figures"]["grpc single"]["rate"]
    result["share_of_bare"] = result["figures"][f"grpc {LARGE} rows"]["rate"] * LARGE / result["bare_rows_per_s"]
    print(f"gRPC, batched over single: {result['batching']:.2f} (target: at least {TIMES:g})")
    print(f"the same ratio of a server that does nothing: {result['most_batching']:.2f}")
    print(f"bare engine, calls of {LARGE} rows: {result['bare_rows_per_s']:.0f} rows/s")
    print(f"share of it over gRPC: {result['share_of_bare']:.2f} (target: at least {SHARE:g})")
    finish("serving", result, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
