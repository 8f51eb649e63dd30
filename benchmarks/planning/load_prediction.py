"""The 99th percentile that the simulator of ``tecoexec --plan`` predicts, compared with LoadGen's in scenario Server.

For each model and load, tests by LoadGen alternate: one gives the service times of the CPU engine (target ``onnx``),
from which the simulator predicts the latencies of the next one, of other arrival times. A service time is that of the
server: from when it was free and the oldest request of the batch was due until the answers were taken. They are used in
the order in which they were measured, scaled to the batch, because phases in which other processes are busy last longer
than a call. Percentiles and errors are medians over the rounds. ``replayed`` has the service times of the predicted
tests themselves: its error is that of the model of queue and batches alone.

A load is a share of the capacity: samples per second of a test whose queue is never empty. The target is 15 %.
The machine should be idle: the service times of one test are those of the next one only while its load is the same.

With ``--paced`` the models run on the simulated card, paced and slowed down to 250 ms a shard, with 4 SPA and batches
of up to 4. The prediction is then made before the tests, from the card's cost alone, and a machine that other programs
keep busy delays a query by little compared with its service time.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from parts.bench import ROOT, arguments, finish, median

from engine import Array
from engine.sdaa import FAULTS_VARIABLE
from tecoexec.load.latency import Queries, queries_of
from tecoexec.load.loadgen import loadgen_version, run_loadgen
from tecoexec.load.logs import read_result
from tecoexec.load.samples import RandomSamples
from tecoexec.load.schedule import server_schedule
from tecoexec.load.settings import LoadSettings
from tecoexec.load.sut import Served
from tecoexec.plan.curve import Curve, batches_up_to, curve_of, measured
from tecoexec.plan.simulate import Policy, Service, Simulation, simulate
from tecoexec.request import Request, open_request

LIMIT = 0.15
SHARD = 0.25
"""Seconds of a shard on the slowed card."""
MODELS: dict[str, tuple[str, tuple[int, ...]]] = {
    "digit_unet": ("segmentation/digit_unet/digit_unet_dyn.onnx", (3, 160, 160)),
    "digit_crnn": ("ocr/digit_crnn/digit_crnn_dyn.onnx", (1, 32, 4096)),
    "prompts_ctc": ("speech/prompts_ctc/prompts_ctc_dyn.onnx", (3000, 40)),
}
"""File and shape of a sample: calls of about 10 ms, compared with which the clocks of threads are exact."""
SAMPLES = 32
COLUMNS = ("model", "load", "queries", "service, ms", "LoadGen p99, ms", "predicted", "error", "replayed", "error")


class Test(NamedTuple):
    """A finished test: its seed, LoadGen's percentile in seconds, number of queries, batch sizes and service times."""

    seed: int
    p99: float
    queries: int
    sizes: Array
    services: Array


@dataclass(frozen=True)
class Bench:
    """An opened model, and how it is tested; ``seconds``: of each test."""

    samples: RandomSamples
    policy: Policy
    seconds: float
    folder: Path
    workers: int = 1

    def capacity(self, repeats: int) -> float:
        """Return the samples per second that a test answers at three times the rate of calls one after another."""
        indices = {size: [i % SAMPLES for i in range(size)] for size in batches_up_to(self.policy.max_batch)}
        calls = {size: lambda some=some: self.samples.serve(some) for size, some in indices.items()}
        alone = Curve(measured(calls, repeats), padded=False).rate(self.policy.max_batch)
        full = replace(self, seconds=self.seconds / 3).test(3 * alone, 0)
        return float(full.sizes.sum() / full.services.sum())

    def test(self, rate: float, seed: int) -> Test:
        """Run LoadGen once."""
        folder = self.folder / str(seed)
        folder.mkdir(exist_ok=True)
        most = self.policy.max_batch
        settings = LoadSettings("Server", False, rate, 60.0, self.seconds, 1, most, 0.0, SAMPLES, folder, seed=seed)
        how: dict[str, Any] = {"load": self.samples.load, "unload": self.samples.unload}
        sut = run_loadgen(
            settings, self.samples.serve, count=SAMPLES, held=SAMPLES, max_batch=most, workers=self.workers, **how
        )
        theirs = read_result(folder, "Server")
        sizes, services = served_times(sut.served, queries_of(sut.served, settings, loadgen_version()))
        return Test(seed, theirs.latency["percentile_99"], theirs.queries, sizes, services)


def served_times(served: Sequence[Served], queries: Queries) -> tuple[Array, Array]:
    """Return the size of each batch, and the seconds that the only server needed for it."""
    ordered = sorted(served, key=lambda batch: batch.started)
    ends = [-np.inf, *(batch.answered for batch in ordered)]
    due = [float(queries.due[batch.samples[0].query]) for batch in ordered]
    services = [batch.answered - max(at, end) for batch, at, end in zip(ordered, due, ends, strict=False)]
    return np.array([len(batch.samples) for batch in ordered]), np.array(services)


def in_order(tests: Sequence[Test], start: int) -> Service:
    """Return the service times of tests in their order from a place on, scaled to the size of the batch asked for."""
    sizes, services = (np.concatenate([getattr(test, key) for test in tests]) for key in ("sizes", "services"))
    means = {int(size): float(services[sizes == size].mean()) for size in np.unique(sizes)}
    scales = services / np.array([means[int(size)] for size in sizes])
    known = sorted(means)
    place = start % len(scales)

    def service(batch: int) -> float:
        nonlocal place
        scale = float(scales[place])
        place = (place + 1) % len(scales)
        return scale * float(np.interp(batch, known, [means[size] for size in known]))

    return service


def simulated(test: Test, rate: float, service: Service, bench: Bench) -> Simulation:
    """Return a simulation of a test's arrival times."""
    return simulate(server_schedule(test.seed, rate, test.queries), service, bench.workers, bench.policy)


def main() -> int:
    """Test all models at all loads, print the table, and return 1 if a prediction misses the limit."""
    parser = arguments(__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS), metavar="NAME")
    parser.add_argument("--loads", nargs="+", type=float, default=[0.3, 0.6, 0.85], metavar="SHARE")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each test")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of tests")
    parser.add_argument("--max_batch", type=int, default=4, help="of a call")
    parser.add_argument("--paced", action="store_true", help="on the paced card instead of the CPU engine")
    args = parser.parse_args()
    if args.quick:
        args.seconds, args.rounds = 1.0, 1
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="tecoinfer-") as folder:
        for name in args.models:
            for row in (_paced_rows if args.paced else _rows)(name, args, Path(folder)):
                rows.append(row)
                print(json.dumps(row), flush=True)
    print("\n" + table(rows))
    finish("load_prediction", {"loadgen": loadgen_version(), "seconds": args.seconds, "rows": rows}, args)
    return int(any(abs(row["error"]) > LIMIT for row in rows) and not args.quick)


def _rows(name: str, args: Any, folder: Path) -> Iterator[dict[str, Any]]:
    file, shape = MODELS[name]
    # With two streams a call takes half of the cores; the others are left for LoadGen and the queue.
    request = Request(ROOT / "example" / file, "onnx", (("", (args.max_batch, *shape)),), streams=2)
    engine, shapes = open_request(request)
    with engine:
        samples = RandomSamples(request, engine, shapes, SAMPLES)
        bench = Bench(samples, Policy(args.max_batch), args.seconds, folder)
        for load in args.loads:
            rate = load * bench.capacity(5 if args.quick else 50)
            yield {"model": name, "load": load, "qps": rate} | _compared(bench, rate, args.rounds)


def _paced_rows(name: str, args: Any, folder: Path) -> Iterator[dict[str, Any]]:
    file, shape = MODELS[name]
    most = args.max_batch
    request = Request(ROOT / "example" / file, "sdaa", (("", (4 * most, *shape)),), simulate_only=True)
    cost = curve_of(request, most).mean(most, most)
    slow = ";".join(f"slow:spa={spa},step=0,factor={SHARD / cost}" for spa in range(4))
    with mock.patch.dict(os.environ, {FAULTS_VARIABLE: slow}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the faults
        engine, shapes = open_request(replace(request, paced=True))
        with engine:
            samples = RandomSamples(request, engine, shapes, SAMPLES)
            bench = Bench(samples, Policy(most), args.seconds, folder, workers=4)
            for load in args.loads:
                rate = load * 4 * most / SHARD
                tests = [bench.test(rate, seed) for seed in range(1, args.rounds + 1)]
                predicted = [simulated(test, rate, lambda _: SHARD, bench).percentile(99) for test in tests]
                yield {"model": f"{name}, paced card", "load": load, "qps": rate} | _paced_row(tests, predicted)


def _paced_row(tests: Sequence[Test], predicted: Sequence[float]) -> dict[str, Any]:
    return {
        "queries": sum(test.queries for test in tests),
        "service_ms": 1e3 * SHARD,
        "mean_batch": float(np.mean(np.concatenate([test.sizes for test in tests]))),
        "loadgen_p99_ms": 1e3 * median([test.p99 for test in tests]),
        "rounds_ms": [[1e3 * test.p99] for test in tests],
        "predicted_p99_ms": 1e3 * median(list(predicted)),
        "error": _error(predicted, tests),
    }


def _error(predicted: Sequence[float], tests: Sequence[Test]) -> float:
    """Return the median over the rounds of predicted over LoadGen's percentile, minus 1."""
    return median([mine / test.p99 for mine, test in zip(predicted, tests, strict=True)]) - 1


def _compared(bench: Bench, rate: float, rounds: int) -> dict[str, Any]:
    pairs = [(bench.test(rate, 2 * i + 1), bench.test(rate, 2 * i + 2)) for i in range(rounds)]
    known, wanted = [first for first, _ in pairs], [second for _, second in pairs]
    predicted, replayed = [], []
    for i, second in enumerate(wanted):
        start = sum(len(test.sizes) for test in known[:i])  # the service times measured just before
        predicted.append(simulated(second, rate, in_order(known, start), bench).percentile(99))
        replayed.append(simulated(second, rate, in_order([second], 0), bench).percentile(99))
    return {
        "queries": sum(test.queries for test in wanted),
        "service_ms": 1e3 * float(np.mean(np.concatenate([test.services[test.sizes == 1] for test in known]))),
        "mean_batch": float(np.mean(np.concatenate([test.sizes for test in wanted]))),
        "loadgen_p99_ms": 1e3 * median([test.p99 for test in wanted]),
        "rounds_ms": [[1e3 * first.p99, 1e3 * second.p99] for first, second in pairs],
        "predicted_p99_ms": 1e3 * median(predicted),
        "error": _error(predicted, wanted),
        "replayed_p99_ms": 1e3 * median(replayed),
        "replayed_error": _error(replayed, wanted),
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as a table for the documentation."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for row in rows:
        cells = [row["model"], f"{row['load']:.0%}", f"{row['queries']}", f"{row['service_ms']:.2f}"]
        cells += [f"{row['loadgen_p99_ms']:.2f}", f"{row['predicted_p99_ms']:.2f}", f"{row['error']:+.1%}"]
        if "replayed_error" in row:
            cells += [f"{row['replayed_p99_ms']:.2f}", f"{row['replayed_error']:+.1%}"]
        else:
            cells += ["", ""]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
