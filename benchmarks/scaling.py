"""Predicted gain of more processes, machines and images: a roofline of measured, published and assumed costs.

The slowest resource determines the rate of a run: the cores that preprocess, the card, the loop around the engine, the
disk, or the storage shared by all machines. In addition there are start-up, listing the folder, the first step and the
merge, which do not become faster with more machines. ``--measure`` checks the same formula against 1, 2 and 4 processes
on this machine.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from parts.bench import DIGITS, ROOT, arguments, finish, median
from parts.peers import Setup, limit

from engine import usable_cores
from utils.datasets import load_dataset
from utils.datasets.label_file import ListedImages

T1_TABLE = ROOT / "tecoexec/data/t1_resnet50.csv"
FOLDERS = {"ImageNet val": 50_000, "ImageNet train": 1_280_000, "100 million": 100_000_000}
MACHINES = (1, 8, 64)


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of one image, one file and one process, in seconds and bytes.

    Attributes:
        preprocess: CPU seconds per image, decoding included.
        inference: CPU seconds per image where the host computes; 0 with a card.
        device: seconds per image a card is busy, copies included; 0 where the host computes.
        step: seconds per image of the loop itself: engine call, postprocess, metric.
        start: wall seconds until a process has its first batch. start_cpu: CPU seconds of it.
        listing: seconds per file, and listing_bytes what a listed file keeps.
        image: bytes of an image file.
        merge: seconds per process that rank 0 merges.
        spread: relative standard deviation of a step's time.
        scan: seconds per line of a label file that a process passes over, and lookup per line of its own share.
    """

    preprocess: float
    inference: float
    device: float
    step: float
    start: float
    start_cpu: float
    listing: float
    listing_bytes: float
    image: float
    merge: float = 0.01
    spread: float = 0.1
    scan: float = 0.0
    lookup: float = 0.0


@dataclass(frozen=True, slots=True)
class Site:
    """The machines; ``processes`` and ``cores`` per machine, speeds in bytes per second, ``lookups`` per second."""

    machines: int
    processes: int
    cores: int
    disk: float = math.inf
    storage: float = math.inf
    lookups: float = math.inf


@dataclass(frozen=True, slots=True)
class Prediction:
    """A run: seconds by part, images per second at full speed and over all, the slowest resource, and memory."""

    seconds: float
    working: float
    listing: float
    start: float
    rest: float
    rate: float
    overall: float
    bound_by: str
    listing_mb: float


Row = tuple[str, int, bool, Prediction]
"""Name of a folder, number of machines, whether the images are in a label file, and prediction."""


def predict(images: int, batch: int, costs: Costs, site: Site, *, listed: bool = False) -> Prediction:
    """Predict a run of ``images`` images in equal shares; ``listed``: their names are in a label file."""
    every = site.machines * site.processes
    rates = {
        "cores": site.machines * site.cores / max(costs.preprocess + costs.inference, 1e-12),
        "card": every / costs.device if costs.device else math.inf,
        "loop": every / max(costs.step, 1e-12),
        "disk": site.machines * site.disk / costs.image,
        "storage": site.storage / costs.image,
    }
    bound_by = min(rates, key=rates.__getitem__)
    rate = rates[bound_by]
    crowd = max(1.0, site.processes / site.cores)
    if listed:  # every process passes over the whole list, and looks for the files of its share
        listing = max((images * costs.scan + images / every * costs.lookup) * crowd, images / site.lookups)
    else:  # every process lists the whole folder, whose names come from one storage; then its rows are cut out
        listing = max(images * costs.listing * crowd, images * every / site.lookups)
    start = max(costs.start, costs.start_cpu * crowd)
    shard = math.ceil(images / every)
    steps = math.ceil(shard / batch)
    # The slowest of n equal sums of random steps: extreme values of a normal distribution.
    slowest = 1 + costs.spread / math.sqrt(steps) * math.sqrt(2 * math.log(every))
    working = shard * every / rate * slowest
    fill = min(batch, shard) * (costs.preprocess + costs.device)
    rest = fill + costs.merge * every
    seconds = start + listing + working + rest
    memory = images * costs.listing_bytes * site.processes / (every if listed else 1) / 1e6
    return Prediction(seconds, working, listing, start, rest, rate, images / seconds, bound_by, memory)


def t1_seconds(batch: int) -> float:
    """Return the seconds per ResNet50 image of a T1 from the published latency, copies to and from it included."""
    with T1_TABLE.open(encoding="utf-8", newline="") as file:
        latencies = {int(row["batch"]): float(row["latency_ms"]) / 1e3 for row in csv.DictReader(file)}
    if batch not in latencies:
        raise SystemExit(f"--batch_size {batch} is not published; use one of {', '.join(map(str, latencies))}")
    return latencies[batch] / batch


def listing_costs(files: int) -> tuple[float, float, float, float]:
    """Return the costs of ``files`` files, created on this machine's disk.

    Seconds and bytes per file of listing their folder; seconds per line of their label file, of others and of the own.
    """
    with tempfile.TemporaryDirectory(prefix="scaling-") as text:
        for index in range(files):
            folder = Path(text, f"n{index % 10:08d}")
            folder.mkdir(exist_ok=True)
            (folder / f"ILSVRC2012_val_{index:08d}.JPEG").touch()
        times = [_seconds(lambda: load_dataset(text)) for _ in range(3)]
        tracemalloc.start()
        dataset = load_dataset(text)
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        file = Path(text, "list.txt")
        names = [sample.path.relative_to(text).as_posix() for sample in dataset]
        file.write_text("".join(f"{name} 1\n" for name in names), encoding="utf-8")
        scan = median([_seconds(lambda: ListedImages(file).share(0, files)) for _ in range(3)])
        whole = median([_seconds(lambda: len(ListedImages(file))) for _ in range(3)])
    return median(times) / files, size / len(dataset), scan / files, max(0.0, whole - scan) / files


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measured_costs(setup: Setup, script: Path, quick: bool) -> Costs:
    """Measure the costs on this machine; those of the card are 0."""
    contestant = limit(setup)
    contestant.turn()
    turns = [contestant.turn() for _ in range(1 if quick else 5)]
    preprocess, inference = (median([float(turn[i]) for turn in turns]) for i in range(2))
    start, start_cpu = starting(setup, script)
    listing, size, scan, lookup = listing_costs(2_000 if quick else 50_000)
    files = [path.stat().st_size for path in setup.images.rglob("*") if path.is_file()]
    step = 100e-6 / setup.batch_size  # per batch of the loop; see docs/reference/performance.md, engine overhead
    image = sum(files) / len(files)
    own = {"scan": scan, "lookup": lookup}
    return Costs(preprocess, inference, 0.0, step, start, start_cpu, listing, size, image, **own)


def starting(setup: Setup, script: Path) -> tuple[float, float]:
    """Return wall and CPU seconds of the valid script on one image: the fixed costs."""
    pairs = []
    for _ in range(3):
        before, start = os.times(), time.perf_counter()
        _run([_command(setup, script, 1)], [{"TECO_INFER_PIPELINES_MAX_STEPS": "1"}])
        after = os.times()
        cpu = sum(after[2:4]) - sum(before[2:4])
        pairs.append((time.perf_counter() - start, cpu))
    return median([wall for wall, _ in pairs]), median([cpu for _, cpu in pairs])


def _command(setup: Setup, script: Path, batch_size: int) -> list[str]:
    command = [sys.executable, str(script), "--target", "onnx", "--ckpt", str(setup.ckpt)]
    return [*command, "--data_path", str(setup.images), "--batch_size", str(batch_size)]


def _run(commands: Sequence[list[str]], variables: Sequence[dict[str, str]]) -> None:
    """Run commands at the same time, each bound to its share of the cores, as mpirun binds them; all must succeed."""
    allowed = sorted(os.sched_getaffinity(0))
    running = []
    try:
        for index, (command, extra) in enumerate(zip(commands, variables, strict=True)):
            mine = allowed[index % len(allowed) :: len(commands)] or [allowed[index % len(allowed)]]
            os.sched_setaffinity(0, mine)  # a child keeps it
            running.append(subprocess.Popen(command, env=os.environ | extra, stdout=subprocess.DEVNULL))
    finally:
        os.sched_setaffinity(0, allowed)
        codes = [process.wait() for process in running]
    assert not any(codes), f"{commands[0]} ended with {codes}"


def check(setup: Setup, script: Path, costs: Costs, rounds: int) -> list[dict[str, Any]]:
    """Run the valid script in 1, 2 and 4 processes; return predicted and measured wall seconds."""
    images, rows = len(setup.batches().dataset), []
    for size in (1, 2, 4):
        variables = [{"OMPI_COMM_WORLD_RANK": str(i), "OMPI_COMM_WORLD_SIZE": str(size)} for i in range(size)]
        commands = [_command(setup, script, setup.batch_size)] * size
        measured = median([_seconds(lambda: _run(commands, variables)) for _ in range(rounds)])  # noqa: B023
        # Sharing by hand merges nothing.
        site = Site(1, size, usable_cores())
        predicted = predict(images, setup.batch_size, replace(costs, merge=0.0), site).seconds
        rows.append({"processes": size, "predicted_s": predicted, "measured_s": measured})
    return rows


def show(costs: Costs, device: float, assumed: Mapping[str, float], table: Sequence[Row]) -> None:
    """Print costs and predictions."""
    print(f"measured: preprocess {costs.preprocess * 1e3:.2f} ms CPU per image, start {costs.start:.2f} s,")
    print(f"  listing {costs.listing * 1e6:.1f} us and {costs.listing_bytes:.0f} bytes per file,")
    print(
        f"  label file {costs.scan * 1e6:.2f} us per line, {costs.lookup * 1e6:.1f} us more per line of the own share"
    )
    print(f"published: T1, {1 / device:.0f} ResNet50 images/s")
    print("assumed: " + ", ".join(f"{name} {value:g}" for name, value in assumed.items()))
    print(f"{'images':20} {'machines':>8} {'images/s':>10} {'bound by':>8}", end="")
    print(f" {'total s':>9} {'overall/s':>9} {'listing s':>9} {'start s':>7} {'fill+merge s':>12} {'listing MB':>10}")
    for name, machines, listed, p in table:
        print(f"{name + (', list' if listed else ''):20} {machines:8} {p.rate:10.0f} {p.bound_by:>8}", end="")
        print(f" {p.seconds:9.1f} {p.overall:9.0f}", end="")
        print(f" {p.listing:9.1f} {p.start:7.2f} {p.rest:12.2f} {p.listing_mb:10.0f}")


def show_check(rows: Sequence[Mapping[str, float]]) -> None:
    """Print the prediction for this machine and the measurement."""
    for row in rows:
        gap = row["measured_s"] / row["predicted_s"] - 1
        figures = f"{row['predicted_s']:.2f} s predicted, {row['measured_s']:.2f} s measured ({gap:+.0%})"
        print(f"{row['processes']} processes on {usable_cores()} cores: {figures}")


ASSUMED = {
    "cores": (64, "cores of a machine"),
    "cards": (4, "T1 cards of a machine, one process each"),
    "disk": (2e9, "bytes/s a machine reads"),
    "storage": (10e9, "bytes/s of the storage all machines share"),
    "lookups": (2e6, "names/s the shared storage lists"),
    "image": (110e3, "bytes of an image; ImageNet's mean is about 110 KB"),
}
"""Flags for costs that are neither measured nor published: default and meaning."""


def options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = arguments(__doc__)
    parser.add_argument("--measure", action="store_true", help="also run 1, 2 and 4 processes here")
    parser.add_argument("--ckpt", type=Path, help="ResNet to measure (default: the digits)")
    parser.add_argument("--data_path", type=Path, help="images to measure on, with --ckpt (default: the digits)")
    parser.add_argument("--rounds", type=int, default=3, help="runs per point of --measure")
    parser.add_argument("--batch_size", type=int, default=32, help="images per call; one of the published batches")
    for name, (default, meaning) in ASSUMED.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"assumed: {meaning}")
    args = parser.parse_args()
    if (args.ckpt is None) != (args.data_path is None):
        parser.error("--ckpt and --data_path go together")
    return args


def _measured_on(args: argparse.Namespace) -> tuple[Setup, Path]:
    """Return the measured model, and its valid script."""
    if args.ckpt is not None:
        script = ROOT / "example/classification/resnet/example_valid.py"
        return Setup("resnet", args.ckpt, args.data_path, args.batch_size), script
    digits = Setup("digits", DIGITS / "digits_dyn.onnx", DIGITS / "data/val", args.batch_size, resize=32, crop=32)
    return digits, DIGITS / "example_valid.py"


def main() -> int:
    """Run the model."""
    args = options()
    device = t1_seconds(args.batch_size)
    setup, script = _measured_on(args)
    costs = measured_costs(setup, script, args.quick)
    carded = replace(costs, inference=0.0, device=device, image=args.image)
    table = []
    for name, images in FOLDERS.items():
        for machines in MACHINES:
            site = Site(machines, args.cards, args.cores, args.disk, args.storage, args.lookups)
            for listed in (False, True):
                found = predict(images, args.batch_size, carded, site, listed=listed)
                table.append((name, machines, listed, found))
    assumed = {name: getattr(args, name) for name in ASSUMED}
    show(costs, device, assumed, table)
    rows = check(setup, script, costs, 1 if args.quick else args.rounds) if args.measure else []
    show_check(rows)
    predictions = [
        {"folder": name, "machines": machines, "listed": listed} | asdict(p) for name, machines, listed, p in table
    ]
    result = {"costs": asdict(costs), "device_s": device, "assumed": assumed, "predictions": predictions}
    finish("scaling", result | {"model": setup.model, "checked": rows}, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
