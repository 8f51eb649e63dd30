"""What the evaluation promises at any setting: results, memory, Ctrl-C, and where the time went."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper
from support import DIGITS, ROOT, SaveOnnx

from engine import DataError, Engine, EngineSpec, open_engine
from utils.datasets.samples import Batch
from utils.metrics import TopK
from utils.pipeline import evaluate
from utils.pipeline.report.report import Report
from utils.pipeline.resume.journal import Journal

SIDE, CLASSES = 16, 10


def conv_net() -> onnx.ModelProto:
    """Return three convolutions, a residual sum, a mean and a head, with random weights."""
    rng = np.random.default_rng(0)
    nodes, weights = [], []

    def conv(source: str, target: str, inputs: int, outputs: int, stride: int = 1) -> None:
        array = rng.standard_normal((outputs, inputs, 3, 3)).astype(np.float32) / np.float32(3 * inputs**0.5)
        weights.append(numpy_helper.from_array(array, f"{target}_w"))
        name = f"{target}_c"
        nodes.append(helper.make_node("Conv", [source, f"{target}_w"], [name], pads=[1] * 4, strides=[stride] * 2))
        nodes.append(helper.make_node("Relu", [name], [target]))

    conv("x", "a", 3, 16)
    conv("a", "b", 16, 16)
    nodes.append(helper.make_node("Add", ["a", "b"], ["c"]))
    conv("c", "d", 16, 24, 2)
    nodes += [helper.make_node("GlobalAveragePool", ["d"], ["e"]), helper.make_node("Flatten", ["e"], ["f"])]
    weights.append(numpy_helper.from_array(rng.standard_normal((24, CLASSES)).astype(np.float32), "head"))
    nodes.append(helper.make_node("MatMul", ["f", "head"], ["y"]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, SIDE, SIDE])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", CLASSES])
    graph = helper.make_graph(nodes, "net", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Engine]]:
    """The net, open with 1, 2 and 3 streams (as many as there are cores, at most)."""
    path = tmp_path_factory.mktemp("net") / "net.onnx"
    onnx.save(conv_net(), str(path))
    opened = {streams: open_engine("onnx", EngineSpec(ckpt=path, streams=streams)) for streams in (1, 2, 3)}
    yield opened
    for engine in opened.values():
        engine.release()


class Watched:
    """An engine that keeps what it was given, by the sample that came first."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.inputs: dict[int, bytes] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def __call__(self, arrays: Any) -> Any:
        self.inputs[int(arrays[0][0, 0, 0, 0])] = arrays[0].tobytes()
        return self.engine(arrays)


class Kept(TopK):
    """Keeps all it is given, in the order of the calls."""

    def __init__(self) -> None:
        super().__init__(1)
        self.seen: list[bytes] = []

    def update(self, predictions: Any, targets: Any, contexts: Any = None) -> Any:
        right = super().update(predictions, targets)
        self.seen.append(predictions.tobytes() + targets.tobytes() + right.values.tobytes())
        return right


def image(index: int) -> np.ndarray:
    array = np.random.default_rng(index).standard_normal((3, SIDE, SIDE)).astype(np.float32)
    array[0, 0, 0] = index
    return array


def work(samples: list[Any], bad: frozenset[int]) -> list[np.ndarray]:
    """Make images of numbers, some faster than others; some of them cannot be made."""
    time.sleep(0.0005 * (samples[0] % 4))
    if wrong := [sample for sample in samples if sample in bad]:
        raise DataError(f"sample {wrong[0]} is damaged")
    return [image(sample) for sample in samples]


class Plain:
    def __init__(self, bad: frozenset[int]) -> None:
        self.bad = bad

    def __call__(self, samples: list[Any]) -> np.ndarray:
        return np.stack(work(samples, self.bad))


class Writing(Plain):
    """Writes into the array it is given, first garbage, as it may hold an older batch."""

    def __call__(self, samples: list[Any], out: np.ndarray | None = None) -> np.ndarray:  # type: ignore[override]
        if out is None:
            return super().__call__(samples)
        out[:] = np.nan
        return np.stack(work(samples, self.bad), out=out)


def dataset(count: int, size: int) -> list[Batch]:
    every = [list(range(start, min(start + size, count))) for start in range(0, count, size)]
    return [Batch(part, np.array(part) % CLASSES, [f"s{i}" for i in part]) for part in every]  # type: ignore[arg-type]


def results(
    engine: Engine, count: int, size: int, bad: frozenset[int], *, out: bool, workers: int
) -> tuple[dict[int, bytes], list[bytes], list[Any], float, int]:
    watched, metric = Watched(engine), Kept()
    prepare = (Writing if out else Plain)(bad)
    report = evaluate(watched, dataset(count, size), prepare, np.asarray, metric, workers=workers)
    return watched.inputs, metric.seen, report.failures, report.metric, report.samples


@settings(deadline=None, max_examples=40)
@given(
    size=st.sampled_from([1, 2, 3, 4, 7, 16]),
    count=st.integers(1, 40),
    workers=st.integers(0, 5),
    streams=st.integers(1, 3),
    out=st.booleans(),
    bad=st.frozensets(st.integers(1, 39), max_size=6),
)
def test_all_settings_equal_the_serial_loop(
    engines: dict[int, Engine], size: int, count: int, workers: int, streams: int, out: bool, bad: frozenset[int]
) -> None:
    serial = results(engines[1], count, size, bad, out=False, workers=0)
    assert results(engines[streams], count, size, bad, out=out, workers=workers) == serial
    assert serial[-1] == len(set(range(count)) - bad)
    assert [failure.name for failure in serial[2]] == [f"s{i}" for i in sorted(bad) if i < count]


@pytest.mark.parametrize("out", [False, True])
@pytest.mark.parametrize("streams", [1, 2, 3])
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5])
def test_long_runs_equal_the_serial_loop(engines: dict[int, Engine], workers: int, streams: int, out: bool) -> None:
    bad = frozenset({5, 6, 50, 99})
    serial = results(engines[1], 120, 4, bad, out=False, workers=0)
    assert results(engines[streams], 120, 4, bad, out=out, workers=workers) == serial


def test_more_workers_than_files(engines: dict[int, Engine]) -> None:
    for count, size in ((1, 1), (2, 1), (3, 2)):
        serial = results(engines[1], count, size, frozenset(), out=False, workers=0)
        assert results(engines[2], count, size, frozenset(), out=True, workers=16) == serial


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("kept", [False, True])
def test_stages_sum_to_the_wall_time(
    engines: dict[int, Engine], workers: int, streams: int, kept: bool, tmp_path: Path
) -> None:
    def run(journal: Journal | None = None) -> Report:
        prepare = Writing(frozenset({3}))
        return evaluate(
            engines[streams], dataset(160, 4), prepare, np.asarray, TopK(), workers=workers, journal=journal
        )

    if kept:
        with Journal.open(tmp_path, {"model": "net"}, sync_every=0) as journal:
            report = run(journal)
    else:
        report = run()
    stages = report.wait_time + report.wait_engine_time + report.postprocess_time
    assert stages == pytest.approx(report.e2e_time, rel=0.02)
    assert report.busy["postprocess"] == report.postprocess_time


# ------------------------------------------------------------------------------------------------------------- memory

WARM_UP = 8192
"""KiB that a run of six steps has not needed yet, whatever comes after: the timeline's newest 10,000 spans (2 MiB),
the allocator's arenas of all threads. It shows, as the whole process takes no more than 80 MiB."""

MEASURED = """
import json, runpy, sys
sys.argv.pop(0)
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    assert end.code == 0
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
print(json.dumps({"peak": peak}))
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the digits and lists that name each of them any number of times."""
    folder = tmp_path_factory.mktemp("images")
    shutil.copytree(DIGITS / "data" / "val", folder / "val")
    lines = [f"{path.relative_to(folder)} {path.parent.name}\n" for path in sorted(folder.rglob("*.png"))]
    for times in (1, 20, 40):
        (folder / f"{times}.txt").write_text("".join(lines * times))
    return folder


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not say the peak of its memory")
def test_memory_does_not_grow_with_the_data(images: Path, tmp_path: Path) -> None:
    extra = ["--resume", "journals", "--json", "result.json"]

    def peak(times: int) -> int:
        folder = tmp_path / str(times)
        folder.mkdir()
        command = [sys.executable, "-c", MEASURED, DIGITS / "example_valid.py", "--target", "onnx", "--batch_size", 64]
        command += ["--data_path", images / f"{times}.txt", *extra]
        done = subprocess.run(
            list(map(str, command)), cwd=folder, env=environment(), capture_output=True, text=True, check=True
        )
        assert "eval_metric 0.994444" in done.stdout
        return int(json.loads(done.stdout.splitlines()[-1])["peak"])

    short, long, longer = peak(1), peak(20), peak(40)
    assert longer < 1.05 * long
    assert long < 1.05 * short + WARM_UP


# ------------------------------------------------------------------------------------------------------------- Ctrl-C


class Ended:
    """A command of its own process group that got a Ctrl-C."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        self.out, self.err = process.communicate(timeout=30)
        self.seconds = time.monotonic() - began
        self.code = process.returncode
        with pytest.raises(ProcessLookupError):  # nobody is left of the group
            os.killpg(process.pid, 0)


SOON = 5.0
"""Seconds in which an interrupted run ends: one on a quiet machine (docs/how-to/evaluation.md), more under load."""


def start(*words: object, cwd: Path) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, *map(str, words)]
    return subprocess.Popen(
        command, cwd=cwd, env=environment(), stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )


def digits_command(data: Path, *extra: object) -> list[object]:
    return [DIGITS / "example_valid.py", "--target", "onnx", "--batch_size", 8, "--data_path", data, *extra]


def steps_in(journal: Path) -> int:
    return max(0, journal.read_bytes().count(b"\n") - 1) if journal.exists() else 0


def wait_for_line(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if word in line:
            return
    raise AssertionError(f"{word} did not come: {process.communicate()}")


@pytest.mark.long
@pytest.mark.parametrize(
    ("seed", "workers", "kills"),
    [
        pytest.param(1, [0], 1, marks=pytest.mark.slow),
        pytest.param(0, [2], 2, marks=pytest.mark.slow),
        pytest.param(2, [2, "--worker_mode", "process"], 1, marks=pytest.mark.slow),
    ],
)
def test_ctrl_c_and_the_same_command_again(
    images: Path, tmp_path: Path, seed: int, workers: list[object], kills: int
) -> None:
    rng, done, journal = np.random.default_rng(seed), 0, tmp_path / "journals" / "journal.jsonl"
    command = digits_command(images / "40.txt", "--resume", tmp_path / "journals", "--workers", *workers)
    for _ in range(kills):
        process = start(*command, cwd=tmp_path)
        while process.poll() is None and steps_in(journal) <= done:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.4))
        ended = Ended(process)
        assert ended.code == 130, ended.err
        assert ended.seconds < SOON
        (line,) = ended.err.splitlines()
        assert line.startswith("interrupted after step "), line
        assert " of 1800 (" in line
        assert line.endswith("; the same command goes on from here")
        steps = int(line.split()[3])
        assert steps >= done
        kept = steps_in(journal)
        assert kept - steps in (0, 1)  # the step that was just being counted
        done = kept
    process = start(*command, cwd=tmp_path)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert f"{done} of 1800 steps were taken from the journal" in out
    assert "eval_metric 0.994444\n" in out  # that of an undisturbed run over the same images


LONG = """
from dataclasses import replace
from pathlib import Path

import numpy as np

from utils.pipeline import cli
from utils.tasks import Prepared
from utils.tasks.classification.task import CLASSIFICATION


def prepare(samples, model, options):
    print("at work", flush=True)
    return Prepared([np.zeros((len(samples), 3, 8, 8), np.float32)])


task = replace(CLASSIFICATION, prepare=prepare)
cli.valid(None, task, ckpt=Path("model.onnx"), data_path=Path(), batch_size=8, input_size=8)
"""


@pytest.mark.slow
@pytest.mark.parametrize("extra", [["--workers", 0], ["--workers", 2], ["--streams", 1, "--resume", "journals"]])
def test_ctrl_c_in_a_long_call(save_onnx: SaveOnnx, images: Path, tmp_path: Path, extra: list[object]) -> None:
    """One node that computes for ten seconds, which ONNX Runtime cannot stop, in the main thread too."""
    text = "g (float[N,3,8,8] x) => (float[N,3] y) <int64[2] big = {9000, 9000}> { f = Flatten(x)"
    text += " m = ReduceMax<keepdims=1>(f) w = Expand(m, big) a = MatMul(w, w) r = ReduceMax<keepdims=1>(a)"
    save_onnx(text + " p = GlobalAveragePool(x) g = Flatten(p) y = Add(g, r) }")
    (tmp_path / "script.py").write_text(LONG)
    process = start("script.py", "--target", "onnx", "--data_path", images / "1.txt", *extra, cwd=tmp_path)
    wait_for_line(process, "at work")
    time.sleep(0.5)
    ended = Ended(process)
    assert ended.code == 130, ended.err
    assert ended.seconds < SOON
    go_on = "; the same command goes on from here" if "--resume" in extra else ""
    assert ended.err == f"interrupted after step 0 of 45 (0 samples){go_on}\n"


@pytest.mark.slow
def test_ctrl_c_in_the_comparison(images: Path, tmp_path: Path) -> None:
    """The first run's result is on the disk by then."""
    words = ["--decode", "fused", "--json", tmp_path / "result.json", "--workers", 0]
    process = start(*digits_command(images / "20.txt", *words), cwd=tmp_path)
    wait_for_line(process, "target onnx")
    began = time.monotonic()
    wait_for_line(process, "summary")
    took = time.monotonic() - began
    wait_for_line(process, "target onnx")
    time.sleep(took / 4)  # amid the second run, however quick the machine is
    ended = Ended(process)
    assert (ended.code, ended.seconds < SOON) == (130, True)
    assert ended.err.startswith("interrupted after step ")
    assert json.loads((tmp_path / "result.json").read_text())["metric"] == pytest.approx(0.994444, abs=1e-6)
