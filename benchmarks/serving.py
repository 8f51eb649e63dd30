"""Serving over the network: requests in flight with and without batching, and large batches beside the bare engine.

The client is a process of its own on the same cores; where there are at least two, it is bound to the last one, and the
server to the others.
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
TIMES, SHARE = 3.0, 0.85
"""Targets: rate of gRPC with batching over that without; rate of large batches over that of the bare engine."""

LARGE = 64
"""Rows of a large batch."""

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
    words = [sys.executable, "-m", "toolkit.cli", "serve", f"digits={DIGITS / 'digits_dyn.onnx'}"]
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


def asked(protocol: str, port: int, in_flight: int, seconds: float, rows: int = 1) -> dict[str, float]:
    """Return the figures of the client."""
    words = [sys.executable, str(CLIENT), protocol, *map(str, (port, in_flight, seconds, rows))]
    done = subprocess.run(bound(words, CORES[-1:]), capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def bare_rate(seconds: float) -> float:
    """Return the rows per second of the engine alone, in calls of :data:`LARGE` rows."""
    x = np.random.default_rng(1).random((LARGE, 3, 32, 32)).astype(np.float32)
    with open_engine("onnx", EngineSpec(ckpt=DIGITS / "digits_dyn.onnx", batch_size=LARGE)) as engine:
        engine(x)
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            engine(x)
            count += LARGE
        return count / (time.perf_counter() - start)


def main() -> int:
    """Measure, print the medians of the rounds, and write the JSON."""
    parser = arguments(__doc__)
    parser.add_argument("--in_flight", type=int, default=16, help="requests of one row at a time")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a measurement")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    rounds, seconds = (1, 0.5) if args.quick else (args.rounds, args.seconds)
    figures: dict[str, list[dict[str, float]]] = {}
    bare = []
    for _ in range(rounds):
        for name, flags in (("single", ["--max_batch", "1"]), ("batched", ["--max_batch", "32"])):
            with server(*flags) as ports:
                for protocol, port in zip(("http", "grpc"), ports, strict=True):
                    figures.setdefault(f"{protocol} {name}", []).append(asked(protocol, port, args.in_flight, seconds))
        with server("--max_batch", str(LARGE)) as ports:
            for protocol, port in zip(("http", "grpc"), ports, strict=True):
                figures.setdefault(f"{protocol} {LARGE} rows", []).append(asked(protocol, port, 2, seconds, LARGE))
        bare.append(bare_rate(seconds))
    result: dict[str, Any] = {
        "in_flight": args.in_flight,
        "rounds": rounds,
        "figures": {
            name: {key: median([one[key] for one in found]) for key in found[0]} for name, found in figures.items()
        },
        "bare_rows_per_s": median(bare),
    }
    print(f"digits on target onnx, {args.in_flight} requests in flight, medians of {rounds} rounds of {seconds:g} s")
    for name, found in result["figures"].items():
        times = "  ".join(f"{key} {found[key] * 1e3:6.2f} ms" for key in ("p50", "p99"))
        print(f"{name:14} {found['rate']:8.0f} requests/s  {times}")
    result["batching"] = result["figures"]["grpc batched"]["rate"] / result["figures"]["grpc single"]["rate"]
    result["share_of_bare"] = result["figures"][f"grpc {LARGE} rows"]["rate"] * LARGE / result["bare_rows_per_s"]
    print(f"gRPC, batched over single: {result['batching']:.2f} (target: at least {TIMES:g})")
    print(f"bare engine, calls of {LARGE} rows: {result['bare_rows_per_s']:.0f} rows/s")
    print(f"share of it over gRPC: {result['share_of_bare']:.2f} (target: at least {SHARE:g})")
    finish("serving", result, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
