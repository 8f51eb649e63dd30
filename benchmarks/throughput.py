"""Images per second: our pipeline compared with usual alternatives, on the same images and the same ONNX files.

Every contestant runs in a separate process, opens its model once and warms up on every image; then they run
alternately, in another order every round. Only the turns are timed, not the start, the imports or the opening of the
model, nor the start of torch's DataLoader workers, which favours that peer: our threads are started in every turn.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from parts.bench import ROOT, arguments, finish
from parts.images import make_images
from parts.peers import INSTALL, NO_COMPUTE, PEERS, Setup
from parts.throughput_figures import Limit, Measured, Result, Target
from parts.throughput_models import BATCH_SIZE, IMAGES, LARGE, LIGHT, MANY, NETWORKS, setup_of
from parts.throughput_processes import Process, Turn, UnavailableError

from engine import Array, usable_cores

WORK = ROOT / "benchmarks/results/throughput"

OURS, LIMITS = ("ours", "ours cpu", "ours reduced"), {"ours": "limit", "ours cpu": "limit cpu"}
BOTH_BUSY = "processes"
"""What all cores give when each runs on its own: a limit of the machine, not a peer."""
ALONE = ("int8", "engine float32", "engine int8")
"""Contestants of the int8 comparison."""

INT8_MODEL = "resnet50"
SHARE_OF_LIMIT, BEST_PEER, INT8 = 0.97, 1.0, 3.0
SAME_ANSWERS = 0.995
"""Least share of images with the class of the serial loop for a mode of ours that is compared with the best peer."""
RATIOS = {"plain loop": (1.35, 2.4), "dataloader": (1.1, 1.6)}
"""Least ratio of ours to a peer: with a model, and with no compute."""


@dataclass(slots=True)
class Course:
    """Results of the turns of one contestant."""

    note: str
    peak: int
    scores: Array
    turns: list[Turn] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)
    """Results of the turns, for a limit only."""

    @property
    def seconds(self) -> list[float]:
        """Wall seconds per round."""
        return [turn.seconds for turn in self.turns]


def contestants(model: str) -> list[str]:
    """Return the contestants of a model."""
    names = ["ours", "ours reduced", "plain loop", "serial", "dataloader", "openvino", BOTH_BUSY, "limit"]
    if model != NO_COMPUTE:
        names += ["ours cpu", "limit cpu", "torch"]
    return names + (list(ALONE) if model == INT8_MODEL else [])


def missing(name: str) -> str | None:
    """Return the packages that a contestant lacks, as a text; ``None`` if it lacks none."""
    absent = [package for package in PEERS[name][1] if importlib.util.find_spec(package) is None]
    return f"pip install {' '.join(dict.fromkeys(INSTALL[package] for package in absent))}" if absent else None


def measure(setup: Setup, rounds: int) -> Measured:
    """Run one model with every contestant, in turns."""
    measured = Measured(setup.model, setup.batch_size, len(setup.batches().dataset), rounds)
    with ExitStack() as stack:
        running = _started(setup, measured, stack)
        courses = _courses(running, rounds, measured)
    names = [name for name in courses if name not in LIMITS.values()]
    measured.results = [_result(name, courses, measured.images) for name in names]
    measured.limits = [
        _limit(name, limit, courses, measured.images)
        for name, limit in LIMITS.items()
        if name in courses and limit in courses
    ]
    measured.targets = _targets(measured, courses)
    return measured


def _started(setup: Setup, measured: Measured, stack: ExitStack) -> dict[str, tuple[Process, str]]:
    """Start every contestant; record in ``measured`` those that cannot run."""
    running = {}
    for name in contestants(setup.model):
        if (advice := missing(name)) is not None:
            measured.unavailable[name] = advice
            continue
        process = Process(name, setup)
        stack.callback(process.close)
        start = process.started()  # one by one: a trial for the fastest engine wants the machine to itself
        if start.ready:
            running[name] = (process, start.note)
        else:
            measured.unavailable[name] = start.note
    return running


def _courses(running: dict[str, tuple[Process, str]], rounds: int, measured: Measured) -> dict[str, Course]:
    """Warm up every contestant, then run them in turns; record in ``measured`` those that fail in the warm-up."""
    from tqdm import tqdm

    courses = {}
    with tqdm(total=len(running) * (rounds + 1), desc=measured.model, unit="turn", leave=False, disable=None) as bar:
        for name, (process, note) in running.items():
            try:
                scores = process.check()
                courses[name] = Course(note, process.peak, scores)
            except UnavailableError as error:
                measured.unavailable[name] = str(error)
            bar.update()
        names = list(courses)
        for index in range(rounds):
            first = index % len(names)
            for name in names[first:] + names[:first]:
                turn, scores = running[name][0].turn()
                courses[name].turns.append(turn)
                if name in LIMITS.values():
                    courses[name].values.append(scores)
                bar.update()
    return courses


def _ratio(ours: Course, peer: Course) -> float:
    """Return the speed of ours relative to a peer: the median over rounds, in which slow phases affect both."""
    return statistics.median(b / a for a, b in zip(ours.seconds, peer.seconds, strict=True))


def _result(name: str, courses: dict[str, Course], images: int) -> Result:
    course, serial = courses[name], courses["serial"].scores
    used = statistics.median(turn.cpu / turn.seconds / usable_cores() for turn in course.turns)
    same = float((course.scores.argmax(axis=1) == serial.argmax(axis=1)).mean())
    # Softmax on top keeps the order of a peer's raw outputs, so top-1 can be compared, but not the values.
    equal = bool(np.array_equal(course.scores, serial)) if name == "ours" else None
    sps = images / statistics.median(course.seconds)
    ratio = None if name == "ours" or name in ALONE else _ratio(courses["ours"], course)
    return Result(name, course.note, sps, used, course.peak / 1e6, same, equal, ratio, course.seconds)


def _limit(name: str, limit: str, courses: dict[str, Course], images: int) -> Limit:
    costs = np.array(courses[limit].values)
    limits = usable_cores() / costs.sum(axis=1)
    speeds = images / np.array(courses[name].seconds)
    preprocess, inference = np.median(costs, axis=0)
    return Limit(name, *map(float, (np.median(limits), preprocess, inference, np.median(speeds / limits))))


def _targets(measured: Measured, courses: dict[str, Course]) -> list[Target]:
    ours, idle = courses["ours"], measured.model == NO_COMPUTE
    targets = [
        Target(f"{limit.contestant}: share of the limit", SHARE_OF_LIMIT, limit.share) for limit in measured.limits
    ]
    if BOTH_BUSY in courses:
        targets.append(Target(f"ours / {BOTH_BUSY}", SHARE_OF_LIMIT, _ratio(ours, courses[BOTH_BUSY])))
    for peer, least in RATIOS.items():
        if peer in courses:
            targets.append(Target(f"ours / {peer}", least[idle], _ratio(ours, courses[peer])))
    peers = [name for name in courses if name not in (*OURS, *LIMITS.values(), BOTH_BUSY, *ALONE)]
    others = {result.contestant for result in measured.results if (result.same_top1 or 0) < SAME_ANSWERS}
    best, mine = (
        min(names, key=lambda name: statistics.median(courses[name].seconds))
        for names in (peers, [name for name in OURS if name in courses and name not in others])
    )
    targets.append(Target(f"{mine} / best peer ({best})", BEST_PEER, _ratio(courses[mine], courses[best])))
    for mine, peer in (("engine int8", "engine float32"), ("int8", "serial")):
        if mine in courses and peer in courses:
            targets.append(Target(f"{mine} / {peer}", INT8, _ratio(courses[mine], courses[peer])))
    return targets


def show(measured: Measured) -> None:
    """Print one model's table."""
    print(f"\n{measured.model}: {measured.images} images, batch {measured.batch_size}, {measured.rounds} rounds")
    print(f"  {'contestant':15} {'images/s':>10} {'ours/it':>8} {'CPU':>5} {'peak MB':>8} {'same top-1':>10}")
    for r in measured.results:
        ratio = "" if r.ratio is None else f"{r.ratio:.2f}"
        same = "" if r.same_top1 is None else f"{r.same_top1:.1%}"
        exact = {True: "  exactly the serial loop's scores", False: "  SCORES DIFFER", None: ""}[r.equal]
        print(f"  {r.contestant:15} {r.sps:10.1f} {ratio:>8} {r.utilisation:5.0%} {r.peak_mb:8.0f} {same:>10}{exact}")
    for limit in measured.limits:
        costs = f"{limit.preprocess_s * 1e3:.2f} ms preprocess + {limit.inference_s * 1e3:.2f} ms inference"
        print(f"  limit of {limit.contestant}: {limit.sps:.1f} ({costs}, CPU per image, {usable_cores()} cores)")
    for name, reason in measured.unavailable.items():
        print(f"  {name}: not available: {reason}")
    for target in measured.targets:
        verdict = "met" if target.met else "MISSED"
        print(f"  target {target.what}: {target.value:.3f}, at least {target.at_least}: {verdict}")


def show_notes(everything: Sequence[Measured]) -> None:
    """Print the description of the contestants once, by model if it differs."""
    notes: dict[tuple[str, str], list[str]] = {}
    for measured in everything:
        for result in measured.results:
            notes.setdefault((result.contestant, result.note), []).append(measured.model)
    print("\nmedians over the rounds; memory with children, shared pages once; top-1 compared with the serial loop's")
    for (name, note), models in notes.items():
        alone = [other for other, _ in notes].count(name) == 1
        where = "" if alone else f" ({', '.join(models)})"
        print(f"  {name}{where}: {note}")


def main() -> int:
    """Run the benchmark."""
    parser = arguments(__doc__)
    known = (NO_COMPUTE, *NETWORKS)
    parser.add_argument("--models", nargs="+", choices=known, help="default: all; with --quick no-compute only")
    parser.add_argument("--rounds", type=int, help="turns of every contestant; default: 5, with --quick 1")
    parser.add_argument(
        "--images",
        type=int,
        help=f"how many images; default: {IMAGES}, or {MANY} where that takes seconds only, with --quick 32",
    )
    batch = f"default: {BATCH_SIZE}, {LARGE} and with --quick 8"
    parser.add_argument("--batch_size", type=int, help=batch)
    parser.add_argument("--work", type=Path, default=WORK, help="folder for the images and the exported models")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draw a bar chart (needs matplotlib)")
    args = parser.parse_args()
    rounds, count = args.rounds or (1 if args.quick else 5), args.images
    everything, skipped = [], []
    for model in args.models or (known[:1] if args.quick else known):
        images = count or (32 if args.quick else MANY if model in LIGHT else IMAGES)
        setup = setup_of(
            model, args.work, make_images(args.work / f"images{images}", images), args.batch_size, args.quick
        )
        if setup is None:
            skipped.append(model)
            print(f'{model} skipped: exporting it needs torch; pip install ".[torch]"', file=sys.stderr)
            continue
        everything.append(measure(setup, rounds))
        show(everything[-1])
    show_notes(everything)
    _store(everything, skipped, args)
    return 0 if all(measured.agree for measured in everything) else 1


def _store(everything: Sequence[Measured], skipped: Sequence[str], args: object) -> None:
    plot: Path | None = args.plot  # type: ignore[attr-defined]
    models = [asdict(m) | {"targets": [asdict(t) | {"met": t.met} for t in m.targets]} for m in everything]
    finish("throughput", {"models": models, "cores": usable_cores(), "skipped": list(skipped)}, args)  # type: ignore[arg-type]
    if plot is not None and everything:
        from parts.throughput_plot import draw

        draw(everything, plot)


if __name__ == "__main__":
    sys.exit(main())
