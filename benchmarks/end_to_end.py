"""End to end: ``evaluate`` compared with a plain loop of preprocessing and inference, one batch after the other.

Both use the same preprocess function, the same engine and the same metric. The limit is the rate of fully used cores:
the CPU seconds of preprocessing alone and inference alone, divided by the number of cores.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from parts.bench import DIGITS, ROOT, Turns, arguments, finish, median, take_turns
from parts.images import make_images

from engine import Engine, EngineSpec, engine_nums, open_engine, usable_cores
from utils.datasets import Batches, TableDataset, load_dataset
from utils.metrics import TopK
from utils.pipeline import evaluate
from utils.postprocess.pytorch.classification import scores
from utils.preprocess.pytorch.classification import preprocess

WORK = ROOT / "benchmarks/results/end_to_end"
TARGETS = ("onnx", "sdaa")


@dataclass(frozen=True, slots=True)
class Model:
    """A measurement: an ONNX file, its images, and the number of passes."""

    name: str
    ckpt: Path
    dataset: TableDataset
    batch_size: int
    resize: int
    crop: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the result; speeds in images per second of wall time, costs in CPU seconds per pass."""

    model: str
    target: str
    simulated: bool
    samples: int
    batch_size: int
    rounds: int
    ours_sps: float
    plain_sps: float
    speedup: float
    limit_sps: float
    share_of_limit: float
    preprocess_cpu_s: float
    inference_cpu_s: float
    metrics_equal: bool


def plain_loop(engine: Engine, batches: Batches, prepare: Callable[[Any], Any], metric: TopK) -> None:
    """Process one batch after the other, as a simple script does."""
    for batch in batches:
        assert batch.targets is not None
        metric.update(scores(engine(prepare(batch.samples))), batch.targets)


def measure(model: Model, target: str) -> Row:
    """Run a model on a target, ours and the plain loop in turn."""
    batches = model.dataset.batches(model.batch_size)
    shape = (-(-model.batch_size // engine_nums()), 3, model.crop, model.crop)
    with open_engine(target, EngineSpec(model.ckpt, model.batch_size, (shape,))) as engine:
        prepare = partial(preprocess, dtype=engine.input_dtype, resize_shape=model.resize, crop_shape=model.crop)
        found: dict[str, float] = {}

        def ours() -> float:
            start = time.perf_counter()
            found["ours"] = evaluate(engine, batches, prepare, scores, TopK()).metric
            return time.perf_counter() - start

        def plain() -> float:
            start, metric = time.perf_counter(), TopK()
            plain_loop(engine, batches, prepare, metric)
            found["plain"] = metric.compute()
            return time.perf_counter() - start

        engine(np.zeros((model.batch_size, *shape[1:]), engine.input_dtype))  # warm-up
        cpu = alone(engine, batches, prepare, min(model.rounds, 3))
        turns = take_turns(ours, plain, model.rounds)
        return row(model, target, engine.simulated, turns, cpu, found["ours"] == found["plain"])


def alone(engine: Engine, batches: Batches, prepare: Callable[[Any], Any], passes: int) -> tuple[float, float]:
    """Return the CPU seconds, over all threads, of preprocessing alone and inference alone: medians of the passes."""
    costs = [_alone_once(engine, batches, prepare) for _ in range(passes)]
    return median([preparing for preparing, _ in costs]), median([computing for _, computing in costs])


def _alone_once(engine: Engine, batches: Batches, prepare: Callable[[Any], Any]) -> tuple[float, float]:
    start = time.process_time()
    arrays = [prepare(batch.samples) for batch in batches]
    middle = time.process_time()
    for array in arrays:
        engine(array)
    return middle - start, time.process_time() - middle


def row(model: Model, target: str, simulated: bool, turns: Turns, cpu: tuple[float, float], equal: bool) -> Row:
    """Convert seconds to the reported figures."""
    count = len(model.dataset)
    ours, plain = count / median(turns.ours), count / median(turns.peer)
    limit = count / (sum(cpu) / usable_cores())
    run = (model.name, target, simulated, count, model.batch_size, model.rounds)
    return Row(*run, ours, plain, 1 / turns.ratio, limit, ours / limit, *cpu, metrics_equal=equal)


def digits(quick: bool) -> Model:
    """Return the digits model on its held-out images."""
    dataset = _first(load_dataset(DIGITS / "data/val"), 64 if quick else 360)
    return Model("digits", DIGITS / "digits_dyn.onnx", dataset, 16 if quick else 64, 32, 32, 1 if quick else 15)


def resnet18(args: argparse.Namespace) -> Model | None:
    """Return resnet18 with random weights on 256 JPEG images; ``None`` if it can be neither found nor exported."""
    ckpt = args.resnet18 or args.work / "resnet18_dyn.onnx"
    if not ckpt.is_file():
        if args.resnet18 or not (importlib.util.find_spec("torch") and importlib.util.find_spec("torchvision")):
            return None
        _export(args.work)
    count = 16 if args.quick else 256
    dataset = load_dataset(make_images(args.work / f"images{count}", count))
    return Model("resnet18", ckpt, dataset, 4 if args.quick else 32, 256, 224, 1 if args.quick else 5)


def _export(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    script = ROOT / "example/classification/resnet/export_onnx.py"
    command = [sys.executable, str(script), "--arch", "resnet18", "--weights", "random", "--out", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _first(dataset: TableDataset, count: int) -> TableDataset:
    return TableDataset(dataset.samples[:count], classes=dataset.classes)


def show(rows: list[Row]) -> None:
    """Print the table."""
    print(f"{'model':10} {'target':7} {'plain/s':>9} {'ours/s':>9} {'ours/plain':>10} {'limit/s':>9} {'of limit':>8}")
    for r in rows:
        figures = f"{r.plain_sps:9.1f} {r.ours_sps:9.1f} {r.speedup:10.2f} {r.limit_sps:9.1f} {r.share_of_limit:8.0%}"
        print(f"{r.model:10} {r.target:7} {figures}{'' if r.metrics_equal else '  METRICS DIFFER'}")
    print("images per second of host wall time, medians; sdaa is the simulated card, computed on this host")
    print(f"limit: CPU seconds of preprocessing and inference alone / {usable_cores()} cores")


def main() -> int:
    """Run the benchmark."""
    parser = arguments(__doc__)
    parser.add_argument("--work", type=Path, default=WORK, help="folder for the images and the exported resnet18")
    parser.add_argument("--resnet18", type=Path, metavar="ONNX", help="an exported resnet18_dyn.onnx (default: export)")
    args = parser.parse_args()
    models, skipped = [digits(args.quick)], []
    if (large := resnet18(args)) is not None:
        models.append(large)
    else:
        skipped.append("resnet18")
        print('resnet18 skipped: no ONNX file; pip install ".[torch]" or pass --resnet18 FILE', file=sys.stderr)
    rows = [measure(model, target) for model in models for target in TARGETS]
    show(rows)
    finish("end_to_end", {"rows": [asdict(r) for r in rows], "cores": usable_cores(), "skipped": skipped}, args)
    return 0 if all(r.metrics_equal for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
