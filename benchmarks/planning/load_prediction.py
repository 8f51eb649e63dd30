"""The 99th percentile that the simulator of ``tecoexec --plan`` predicts, compared with LoadGen's in scenario Server.

For each model and load, tests by LoadGen alternate: one gives the speed of the CPU engine (target ``onnx``) over its
time, from which the simulator predicts the latencies of the next one, whose arrival times are known from its seed. The
service time of a batch is that of the server: from when it was free and the oldest request of the batch was due until
the answers were taken. Its speed is the cost of a batch of that size, measured before in turns with the other sizes,
per service time. A simulated batch takes what the recorded speed needs for its cost from its start on.

The mean service time of a size under load is not its cost: batches are large because the server was slow before, so
those means exaggerate the cost of large batches. Nor are service times drawn at random, or used batch by batch: phases
in which other processes are busy last a time, and not a number of batches. Percentiles and errors are medians over the
rounds. ``replayed`` has the speed of the predicted test itself: its error is that of the model of queue and batches.

A load is a share of the capacity: samples per second of a test whose queue is never empty. The target is 15 %.
The machine should be idle: the speed in one test is that in the next one only while other programs do the same.

``--synthetic`` predicts simulated tests of a server whose speed changes at random, without a model, LoadGen or a clock:
what is left is the error of the method.

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
from tecoexec.plan.curve import curve_of, measured
from tecoexec.plan.simulate import Policy, Service, Simulation, poisson, simulate
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
    """A finished test: its seed, LoadGen's percentile in seconds, number of queries, and of each batch its size, start
    (seconds after the first query was due) and service time.
    """

    seed: int
    p99: float
    queries: int
    sizes: Array
    starts: Array
    services: Array


@dataclass(frozen=True)
class Bench:
    """An opened model, and how it is tested; ``seconds``: of each test."""

    samples: RandomSamples
    policy: Policy
    seconds: float
    folder: Path
    workers: int = 1

    def costs(self, repeats: int) -> dict[int, float]:
        """Return the median seconds of each batch size, measured in turns."""
        indices = {size: [i % SAMPLES for i in range(size)] for size in range(1, self.policy.max_batch + 1)}
        calls = {size: lambda some=some: self.samples.serve(some) for size, some in indices.items()}
        return {size: median(seconds) for size, seconds in measured(calls, repeats).items()}

    def capacity(self, costs: Mapping[int, float]) -> float:
        """Return the samples per second that a test answers at three times the rate of calls one after another."""
        most = self.policy.max_batch
        full = replace(self, seconds=self.seconds / 3).test(3 * most / costs[most], 0)
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
        batches = served_times(sut.served, queries_of(sut.served, settings, loadgen_version()))
        return Test(seed, theirs.latency["percentile_99"], theirs.queries, *batches)


def served_times(served: Sequence[Served], queries: Queries) -> tuple[Array, Array, Array]:
    """Return of each batch its size, its start after the first query was due, and its seconds on the only server."""
    ordered = sorted(served, key=lambda batch: batch.started)
    ends = np.array([batch.answered for batch in ordered])
    due = np.array([float(queries.due[batch.samples[0].query]) for batch in ordered])
    starts = np.maximum(due, np.concatenate([[-np.inf], ends[:-1]]))
    return np.array([len(batch.samples) for batch in ordered]), starts - due[0], ends - starts


def recorded(test: Test, costs: Mapping[int, float]) -> Service:
    """Return service times at the speed that a server had in a test, at the same time after its begin.

    The speed is 1 where a batch takes its cost. Between two batches the nearer one counts; a test that is shorter than
    the simulated time is repeated.
    """
    speeds = np.array([costs[int(size)] for size in test.sizes]) / test.services
    times, found = [0.0], list[float]()
    for start, seconds, speed in zip(test.starts, test.services, speeds, strict=True):
        if start > times[-1]:
            middle = (times[-1] + start) / 2 if found else start
            found += [found[-1] if found else speed, speed][: 2 if middle < start else 1]
            times += [middle, start] if middle < start else [start]
        found.append(speed)
        times.append(start + seconds)
    clock = np.array(times)
    done = np.concatenate([[0.0], np.cumsum(np.diff(clock) * found)])  # seconds of cost until each time

    def service(batch: int, start: float) -> float:
        place = start % clock[-1]
        further, rest = divmod(float(np.interp(place, clock, done)) + costs[batch], done[-1])
        return float(further * clock[-1] + np.interp(rest, done, clock) - place)

    return service


def simulated(test: Test, rate: float, service: Service, bench: Bench) -> Simulation:
    """Return a simulation of a test's arrival times."""
    return simulate(server_schedule(test.seed, rate, test.queries), service, bench.workers, bench.policy)


def main(argv: Sequence[str] | None = None) -> int:
    """Test all models at all loads, print the table, and return 1 if a prediction misses the limit."""
    parser = arguments(__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS), metavar="NAME")
    parser.add_argument("--loads", nargs="+", type=float, default=[0.3, 0.6, 0.85], metavar="SHARE")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each test")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of tests")
    parser.add_argument("--max_batch", type=int, default=4, help="of a call")
    parser.add_argument("--synthetic", action="store_true", help="the method alone, on simulated tests")
    parser.add_argument("--paced", action="store_true", help="on the paced card instead of the CPU engine")
    args = parser.parse_args(argv)
    if args.quick:
        args.seconds, args.rounds = 1.0, 1
    if args.synthetic:
        return synthetic(args)
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
            costs = bench.costs(5 if args.quick else 50)
            rate = load * bench.capacity(costs)
            yield {"model": name, "load": load, "qps": rate} | _compared(bench, costs, rate, args.rounds)


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
                predicted = [simulated(test, rate, lambda *_: SHARD, bench).percentile(99) for test in tests]
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


def _compared(bench: Bench, costs: Mapping[int, float], rate: float, rounds: int) -> dict[str, Any]:
    pairs = [(bench.test(rate, 2 * i + 1), bench.test(rate, 2 * i + 2)) for i in range(rounds)]
    known, wanted = [first for first, _ in pairs], [second for _, second in pairs]
    predicted = [simulated(second, rate, recorded(first, costs), bench).percentile(99) for first, second in pairs]
    replayed = [simulated(second, rate, recorded(second, costs), bench).percentile(99) for second in wanted]
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


def changing(seed: int, fast: float, slow: float, factor: float, costs: Mapping[int, float]) -> Service:
    """Return service times of a server that is ``factor`` times slower in phases; ``fast``, ``slow``: mean seconds."""
    rng = np.random.default_rng(seed)
    lengths = rng.exponential([[fast, slow]] * 4096).ravel()
    clock = np.concatenate([[0.0], np.cumsum(lengths)])
    done = np.concatenate([[0.0], np.cumsum(lengths * np.tile([1.0, 1 / factor], 4096))])
    return lambda batch, start: float(np.interp(np.interp(start, clock, done) + costs[batch], done, clock) - start)


def observed(arrivals: Array, service: Service, most: int) -> Test:
    """Return a simulated test of one server."""
    batches: list[tuple[int, float, float]] = []

    def noted(batch: int, start: float) -> float:
        batches.append((batch, start - float(arrivals[0]), service(batch, start)))
        return batches[-1][2]

    found = simulate(arrivals, noted, 1, Policy(most))
    return Test(0, found.percentile(99), len(arrivals), *map(np.array, zip(*batches, strict=True)))


SYNTHETIC_COSTS = {1: 0.010, 2: 0.016, 3: 0.022, 4: 0.028}
PHASES = ((0.3, 0.1, 2.0), (1.0, 0.3, 3.0), (0.1, 0.03, 3.0), (0.02, 0.005, 5.0))
"""Mean seconds of fast and slow phases, and how many times slower the latter are."""


def synthetic_error(seed: int, load: float, phases: tuple[float, float, float], seconds: float) -> tuple[float, float]:
    """Return the error of the prediction of a simulated test, and the difference of the two tests, both relative."""
    fast, slow, factor = phases
    most = max(SYNTHETIC_COSTS)
    rate = load * most / SYNTHETIC_COSTS[most] * (fast + slow / factor) / (fast + slow)
    count = int(rate * seconds)
    pair = []
    for part in (2 * seed, 2 * seed + 1):
        arrivals = poisson(rate, count, part)
        arrivals -= arrivals[0]
        pair.append((arrivals, observed(arrivals, changing(part, *phases, SYNTHETIC_COSTS), most)))
    (_, known), (arrivals, wanted) = pair
    predicted = simulate(arrivals, recorded(known, SYNTHETIC_COSTS), 1, Policy(most)).percentile(99)
    return predicted / wanted.p99 - 1, known.p99 / wanted.p99 - 1


def synthetic(args: Any) -> int:
    """Print the medians of errors over 40 pairs of tests."""
    print("| fast, slow phases, factor | load | median error | 10..90 % of errors | of the other test's own |")
    print("|---|---|---|---|---|")
    for phases in PHASES:
        for load in args.loads:
            found = [synthetic_error(seed, load, phases, args.seconds) for seed in range(3 if args.quick else 40)]
            ours, tests = (np.array(each) for each in zip(*found, strict=True))
            low, high = np.percentile(ours, [10, 90])
            print(
                f"| {phases[0]:g} s, {phases[1]:g} s, {phases[2]:g} | {load:.0%} | {np.median(ours):+.1%} "
                f"| {low:+.0%} .. {high:+.0%} | {np.median(tests):+.1%} |"
            )
    return 0


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
