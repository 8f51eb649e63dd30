"""Serving over the network: with and without batching, large batches beside the bare engine, and other servers.

The client is a process of its own; where there are at least two cores, it is bound to the last one, and the server, the
bare engine and an empty gRPC server to the others. The empty server answers at once: its rate is the most that grpc.aio
leaves to any server in Python. ``cpu`` is the processor time of the server's processes per request, which other
programs on the machine hardly change: its inverse is the rate of a core that does nothing else.

MLServer and Ray Serve, which batch by themselves, run in the interpreters of ``--mlserver`` and ``--ray``: MLServer
needs older packages than this project. Client and model are the same. Without an interpreter they are left out.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from parts.bench import ROOT, arguments, finish, median
from parts.cores import CORES, bound, on_cores
from parts.serving_peers import MODEL, PEERS, ROWS, MissingPeerError

from engine import EngineSpec, open_engine
from tecoinfer_modelzoo.process.process_table import descendants

CLIENT = Path(__file__).with_name("parts") / "serving_client.py"
ECHO = CLIENT.with_name("echo_server.py")
TIMES, SHARE = 3.0, 0.85
"""Targets: rate of gRPC with batching over that without; rate of large batches over that of the bare engine."""

LARGE = 64
"""Rows of a large batch."""


class Server(NamedTuple):
    """Ports of a server, and its process."""

    http: int
    grpc: int
    pid: int


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and its descendants so far."""
    tasks = (task for one in (pid, *descendants(pid)) for task in Path(f"/proc/{one}/task").iterdir())
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


@contextmanager
def server(*flags: str) -> Iterator[Server]:
    """Start a server of the digits."""
    words = [sys.executable, "-m", "toolkit.cli", "serve", f"digits={MODEL}"]
    words += ["--http_port", "0", "--grpc_port", "0", *flags]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(bound(words, CORES[:-1]), stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    line = next((line for line in process.stdout if line.startswith("serving")), "")
    found = re.findall(r":(\d+)", line)
    try:
        yield Server(int(found[0]), int(found[1]), process.pid)
    finally:
        process.terminate()
        process.wait()


@contextmanager
def echo(*kind: str) -> Iterator[tuple[int, int]]:
    """Start an empty server (``parts/echo_server.py``), and yield its port and its process."""
    words = bound([sys.executable, str(ECHO), *kind], CORES[:-1])
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline()), process.pid
    finally:
        process.stdin.close()
        process.wait()


def asked(
    protocol: str, port: int, in_flight: int, seconds: float, rows: int = 1, pid: int | None = None
) -> dict[str, float]:
    """Return the figures of the client, and the processor time of the server ``pid`` per request."""
    before = 0.0 if pid is None else cpu_seconds(pid)
    words = [sys.executable, str(CLIENT), protocol, *map(str, (port, in_flight, seconds, rows))]
    done = subprocess.run(bound(words, CORES[-1:]), capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    total = found.pop("total")
    return found if pid is None else {**found, "cpu": (cpu_seconds(pid) - before) / total}


def bare(seconds: float) -> dict[str, float]:
    """Return calls per second and processor time of the engine alone on the server's cores, for :data:`LARGE` rows."""
    x = np.random.default_rng(1).random((LARGE, 3, 32, 32)).astype(np.float32)
    with on_cores(CORES[:-1]), open_engine("onnx", EngineSpec(ckpt=MODEL, batch_size=LARGE)) as engine:
        engine(x)
        start, cpu, count = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - start < seconds:
            engine(x)
            count += 1
        return {"rate": count / (time.perf_counter() - start), "cpu": (time.process_time() - cpu) / count}


def measured(
    rounds: int, seconds: float, in_flight: int, interpreters: Mapping[str, Path]
) -> dict[str, dict[str, float]]:
    """Return the medians of the rounds by kind of request, of the bare engine, and of other servers.

    Args:
        rounds: of all measurements. seconds: of one. in_flight: requests of one row. interpreters: of other servers.
    """
    peers = dict(interpreters)
    found: dict[str, list[dict[str, float]]] = {}

    def ask(name: str, protocol: str, port: int, pid: int, rows: int = 1) -> None:
        figures = asked(protocol, port, in_flight if rows == 1 else 2, seconds, rows, pid)
        found.setdefault(f"{protocol} {name}", []).append(figures)

    for _ in range(rounds):
        with echo("grpc.aio") as (port, pid):
            ask("empty", "grpc", port, pid)
            ask(f"empty, {LARGE} rows", "grpc", port, pid, LARGE)
        for name, most in (("single", 1), ("batched", ROWS), (f"{LARGE} rows", LARGE)):
            with server("--max_batch", str(most)) as one:
                rows = LARGE if most == LARGE else 1
                asked("grpc", one.grpc, 2 if rows > 1 else in_flight, seconds / 5, rows)  # trials of joined calls
                for protocol in ("http", "grpc"):
                    ask(name, protocol, getattr(one, protocol), one.pid, rows)
        found.setdefault(f"engine, {LARGE} rows", []).append(bare(seconds))
        for flag, python in list(peers.items()):
            title, protocol, start = PEERS[flag]
            try:
                with start(python) as peer:
                    asked(protocol, peer.port, in_flight, seconds / 5, 1)
                    ask(title, protocol, peer.port, peer.pid)
            except MissingPeerError as error:
                print(f"{title}: left out: {error}")
                del peers[flag]
    return {name: {key: median([one[key] for one in some]) for key in some[0]} for name, some in found.items()}


def ratios(figures: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return the rates of batched serving over those of the other servers that were measured."""
    return {
        f"over_{flag}": figures[f"{protocol} batched"]["rate"] / figures[f"{protocol} {title}"]["rate"]
        for flag, (title, protocol, _) in PEERS.items()
        if f"{protocol} {title}" in figures
    }


def main() -> int:
    """Measure, print the medians of the rounds, and write the JSON."""
    parser = arguments(__doc__)
    parser.add_argument("--in_flight", type=int, default=16, help="requests of one row at a time")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a measurement")
    parser.add_argument("--rounds", type=int, default=5)
    for flag, (title, _, _) in PEERS.items():
        parser.add_argument(f"--{flag}", type=Path, metavar="PYTHON", help=f"interpreter that has {title}")
    args = parser.parse_args()
    rounds, seconds = (1, 0.5) if args.quick else (args.rounds, args.seconds)
    peers = {flag: python for flag in PEERS if (python := getattr(args, flag)) is not None}
    for flag in PEERS:
        if flag not in peers:
            print(f"{PEERS[flag][0]}: left out: give an interpreter that has it, --{flag} PYTHON")
    figures = measured(rounds, seconds, args.in_flight, peers)
    print(f"digits on target onnx, {args.in_flight} requests in flight, medians of {rounds} rounds of {seconds:g} s")
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    for name, found in figures.items():
        times = "  ".join(f"{key} {found[key] * 1e3:6.2f} ms" for key in ("p50", "p99", "cpu") if key in found)
        print(f"{name:20} {found['rate']:8.0f} requests/s  {times}")
    single, large = figures["grpc single"], f"{LARGE} rows"
    result: dict[str, Any] = {"in_flight": args.in_flight, "rounds": rounds, "figures": figures}
    for name, other, first in (
        ("batching", "grpc batched", single),
        ("most_batching", "grpc empty", single),
        ("share_of_bare", f"grpc {large}", figures[f"engine, {large}"]),
    ):
        result[name] = figures[other]["rate"] / first["rate"]
        result[f"{name}_by_cpu"] = first["cpu"] / figures[other]["cpu"]
    lines = {
        "batching": f"gRPC, batched over single (target: at least {TIMES:g})",
        "most_batching": "gRPC, a server that answers at once over single",
        "share_of_bare": f"gRPC, {LARGE} rows over the bare engine (target: at least {SHARE:g})",
    }
    for name, line in lines.items():
        print(f"{line}: {result[name]:.2f} by rate, {result[f'{name}_by_cpu']:.2f} by processor time")
    for name, ratio in ratios(figures).items():
        result[name] = ratio
        title, protocol, _ = PEERS[name.removeprefix("over_")]
        print(f"{protocol}, batched over {title}: {ratio:.2f} by rate")
    finish("serving", result, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
