from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import DIGITS, SaveOnnx

from engine import Engine, EngineSpec, open_engine, stage, usable_cores
from utils.datasets import TableDataset, load_dataset
from utils.datasets.samples import Batch
from utils.metrics import TopK
from utils.pipeline import evaluate
from utils.pipeline.report.advice import OwnAdvice
from utils.pipeline.report.bottleneck import bottleneck
from utils.pipeline.report.report import Report
from utils.postprocess.pytorch.classification import scores
from utils.preprocess.pytorch.classification import preprocess
from utils.tasks.classification.task import CLASSIFICATION

STAGES = ("disk", "decode", "preprocess", "engine", "postprocess")
FASTER_DISK = "keep the images on a faster disk, or in memory"
CAPACITY = "--target cpu --dtype int8, where the metric allows it"


def line(
    busy: dict[str, float],
    waits: dict[str, float],
    core_share: float,
    *,
    simulated: bool = False,
    cores: int = 8,
    disk_bytes: int | None = 10**9,
) -> tuple[str, str]:
    """Return bound and advice of a run of 10 seconds."""
    spans = dict.fromkeys(STAGES, 0.1) | busy
    waited = dict.fromkeys(("preprocess", "engine", "postprocess"), 0.1) | waits
    how = {"cores": cores, "samples": 1000, "disk_bytes": disk_bytes, "own": OwnAdvice(CLASSIFICATION.advice)}
    text = bottleneck(spans, waited, 10.0, core_share, simulated, **how)  # type: ignore[arg-type]
    bound, advice = text.removeprefix("bound by ").split("; helps most: ")
    shares = ", ".join(f"{name} {spans[name] / 10:.0%}" for name in STAGES)
    assert bound.endswith(f"(busy, of the wall time: {shares}; cores {core_share:.0%})")
    return bound.split(" ")[0], advice


@pytest.mark.parametrize(
    ("busy", "waits", "bound", "advice"),
    [
        ({"disk": 9.0, "decode": 2.0}, {"preprocess": 9.0}, "disk", FASTER_DISK),
        ({"disk": 1.0, "decode": 9.0}, {"preprocess": 9.0}, "decode", "more --workers"),
        ({"preprocess": 9.0, "engine": 9.5}, {"preprocess": 9.0}, "preprocess", "more --workers"),
        ({"preprocess": 9.9, "engine": 9.0}, {"engine": 9.0}, "engine", CAPACITY),
        ({"decode": 9.9, "postprocess": 9.0}, {"postprocess": 9.0}, "postprocess", "a larger --batch_size"),
    ],
)
def test_with_idle_cores_the_awaited_stage_is_the_bound(
    busy: dict[str, float], waits: dict[str, float], bound: str, advice: str
) -> None:
    assert line(busy, waits, 0.3) == (bound, advice)


@pytest.mark.parametrize(
    ("busiest", "advice"),
    [
        ("decode", "--decode reduced, or more cores"),
        ("preprocess", "--decode fused, or more cores"),
        ("engine", CAPACITY),
        ("postprocess", "a larger --batch_size"),
    ],
)
@pytest.mark.parametrize("waited", ["preprocess", "engine", "postprocess"])
def test_with_busy_cores_the_busiest_stage_is_the_bound(busiest: str, advice: str, waited: str) -> None:
    assert line({busiest: 40.0, "disk": 60.0}, {waited: 9.0}, 0.97) == (busiest, advice)


def test_advice_without_a_task() -> None:
    spans, waits = {"decode": 40.0}, {"preprocess": 9.0}
    text = bottleneck(spans, waits, 10.0, 0.97, False, cores=8, samples=1000)
    assert text.endswith("helps most: more cores")


def test_no_dtype_is_advised_for_a_simulated_card() -> None:
    for core_share in (0.4, 0.99):
        bound, advice = line({"engine": 50.0}, {"engine": 9.0}, core_share, simulated=True)
        assert (bound, advice.split(":")[0]) == ("engine", "a real card")


def test_files_in_the_page_cache_are_not_the_disk() -> None:
    """Then what stands in the disk's spans is waiting for the interpreter, or for a core."""
    spans = {"disk": 12.0, "decode": 6.0, "preprocess": 5.0}
    assert line(spans, {"preprocess": 9.0}, 0.2) == ("disk", FASTER_DISK)
    assert line(spans, {"preprocess": 9.0}, 0.2, disk_bytes=None)[0] == "disk"
    assert line(spans, {"preprocess": 9.0}, 0.2, disk_bytes=300_000)[0] == "decode"


def test_a_stage_that_waits_for_a_core_is_not_the_bound() -> None:
    """Measured on a machine that was busy otherwise: preprocessing got no core, for the engine's calls held them."""
    spans = {"disk": 0.9, "decode": 0.5, "preprocess": 2.2, "engine": 17.5}
    assert line(spans, {"preprocess": 6.0, "engine": 3.0}, 0.65, cores=2) == ("engine", CAPACITY)


def test_processes_are_advised_for_the_interpreter_lock() -> None:
    assert line({"preprocess": 19.0}, {"preprocess": 9.0}, 1 / 8)[1].startswith("--worker_mode process")
    assert line({"preprocess": 9.5}, {"preprocess": 9.0}, 1 / 8)[1] == "more --workers"  # it is a single thread


# ------------------------------------------------------------------------------------------------------------ real runs


@pytest.fixture
def engine(save_onnx: SaveOnnx) -> Iterator[Engine]:
    path = save_onnx("g (float[N,4] x) => (float[N,4] y) { y = Identity(x) }")
    with open_engine("onnx", EngineSpec(ckpt=path)) as opened:
        yield opened


def many(count: int = 24, size: int = 4) -> list[Batch]:
    return [
        Batch(list(np.ones((size, 4), np.float32)), np.zeros(size, np.int64), [f"{i}"] * size) for i in range(count)
    ]


def compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


PACKED = zlib.compress(bytes(4_000_000))


def slow_stack(samples: list[np.ndarray], work: Callable[[], Any], name: str | None = None) -> np.ndarray:
    if name is None:
        work()
    else:
        with stage(name):
            work()
    return np.stack(samples)


def bound_of(report: Report) -> str:
    return report.bottleneck().removeprefix("bound by ").split(" ")[0]


def advice_of(report: Report) -> str:
    """Return what is advised; these runs are short, so it is asked of one that took 100 times as long."""
    spans = {stage: 100 * seconds for stage, seconds in report.busy.items()}
    names = ("wait_time", "wait_engine_time", "postprocess_time", "e2e_time")
    longer = replace(report, busy=spans, **{name: 100 * getattr(report, name) for name in names})
    return longer.bottleneck().split("helps most: ")[1]


def sleep() -> None:
    time.sleep(0.01)


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("name", ["decode", None])
def test_a_stage_that_waits(engine: Engine, name: str | None, workers: int) -> None:
    prepare = partial(slow_stack, work=sleep, name=name)
    report = evaluate(engine, many(), prepare, np.asarray, TopK(), workers=workers)
    assert bound_of(report) == (name or "preprocess")
    assert advice_of(report) == "more --workers"


def test_decoding_that_computes(engine: Engine) -> None:
    prepare = partial(slow_stack, work=partial(zlib.decompress, PACKED), name="decode")

    report = evaluate(engine, many(), prepare, np.asarray, TopK(), workers=2 * usable_cores())
    if report.core_share > 0.9:  # otherwise other programs have the cores, and everything waits for one
        assert bound_of(report) == "decode"
        assert advice_of(report) == "more cores"  # of plain functions; a task has words of its own


def test_an_engine_that_waits(engine: Engine) -> None:
    def slow(arrays: Any) -> Any:
        time.sleep(0.01)
        return engine(arrays)

    report = evaluate(slow, many(), np.stack, np.asarray, TopK())
    assert bound_of(report) == "engine"


def test_an_engine_that_computes(save_onnx: SaveOnnx) -> None:
    text = "g (float[N,4] x) => (float[N,4] y) <int64[2] big = {700, 700}, float[1] tiny = {1e-30}> {"
    text += " m = ReduceMax<keepdims=1>(x) w = Expand(m, big) a = MatMul(w, w) b = MatMul(a, w)"
    text += " r = ReduceMax<keepdims=1>(b) s = Mul(r, tiny) y = Add(x, s) }"
    spec = EngineSpec(ckpt=save_onnx(text), streams=usable_cores())
    with open_engine("onnx", spec) as opened:
        report = evaluate(opened, many(16), np.stack, np.asarray, TopK())
    assert bound_of(report) == "engine"
    assert advice_of(report) == CAPACITY


def test_a_postprocess_that_computes(engine: Engine) -> None:
    def slow(outputs: Any) -> np.ndarray:
        compute(0.01)
        return np.asarray(outputs)

    report = evaluate(engine, many(), np.stack, slow, TopK())
    assert bound_of(report) == "postprocess"


@pytest.mark.slow
@pytest.mark.parametrize("workers", [None, 1, 4])
@pytest.mark.parametrize("size", [8, 64])
def test_the_digits_are_not_bound_by_the_disk(workers: int | None, size: int) -> None:
    """Their images lie in the page cache and take a tenth of a millisecond, most of it in the interpreter."""
    samples = list(load_dataset(DIGITS / "data" / "val")) * 4
    for sample in samples:
        sample.path.read_bytes()
    spec = EngineSpec(DIGITS / "digits_dyn.onnx", input_size=((1, 3, 32, 32),), streams=usable_cores())
    prepare = partial(preprocess, dtype="float32", resize_shape=32, crop_shape=32)

    with open_engine("onnx", spec) as opened:
        report = evaluate(opened, TableDataset(samples).batches(size), prepare, scores, TopK(), workers=workers)
    assert bound_of(report) != "disk"


def test_the_line_is_in_the_report(engine: Engine, tmp_path: Path) -> None:
    report = evaluate(engine, many(), np.stack, np.asarray, TopK())
    assert report.to_dict()["bottleneck"] == report.bottleneck()
    assert report.busy.keys() == set(STAGES)
