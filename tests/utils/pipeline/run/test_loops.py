from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import SaveOnnx

from engine import ConfigError, DataError, Engine, EngineSpec, InputError, open_engine
from utils.datasets import load_dataset
from utils.datasets.samples import Batch, Batches
from utils.metrics import TopK
from utils.pipeline import Failure, evaluate, predict
from utils.pipeline.report.report import Report

IDENTITY = "g (float[N,4] x) => (float[N,4] y) { y = Identity(x) }"
WORKERS = [0, 1, 4]


@pytest.fixture
def engine(save_onnx: SaveOnnx) -> Iterator[Engine]:
    with open_engine("onnx", EngineSpec(ckpt=save_onnx(IDENTITY))) as opened:
        yield opened


def data(tmp_path: Path, count: int = 23, *, labels: bool = True, seed: int = 0) -> Batches:
    """Rows whose highest value sits at their label for about two in three."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray] = {"images": rng.standard_normal((count, 4)).astype(np.float32)}
    if labels:
        arrays["labels"] = np.where(rng.random(count) < 0.66, arrays["images"].argmax(1), rng.integers(0, 4, count))
    np.savez(tmp_path / "data.npz", **arrays)
    return load_dataset(tmp_path / "data.npz").batches(5)


def own_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("preprocess")]


def run(engine: Any, batches: Any, preprocess: Any = np.stack, **options: Any) -> Report:
    return evaluate(engine, batches, preprocess, np.asarray, TopK(1), **options)


@pytest.mark.parametrize("workers", WORKERS)
def test_the_metric_is_that_of_the_whole(engine: Engine, tmp_path: Path, workers: int) -> None:
    batches = data(tmp_path)
    rows, labels = np.stack(batches.dataset.rows), batches.dataset.labels
    report = run(engine, batches, workers=workers)
    assert report.metric == (rows.argmax(1) == labels).mean()
    assert (report.samples, report.steps, report.finished) == (23, 5, True)
    assert (report.metric_name, report.failures, report.nan_inputs, report.simulated) == ("top1", [], [], False)
    assert report.engine == engine.describe()
    assert report.avg_sps == pytest.approx(23 / report.e2e_time)
    assert report.avg_inference_time * 5 <= report.e2e_time
    assert engine.timeline.count("engine") == 5


@pytest.mark.parametrize("warmup", [0, 2])
@pytest.mark.parametrize("workers", WORKERS)
def test_stages_sum_to_the_wall_time(engine: Engine, tmp_path: Path, workers: int, warmup: int) -> None:
    def slow_preprocess(samples: list[np.ndarray]) -> np.ndarray:
        time.sleep(0.02)
        return np.stack(samples)

    def slow_engine(arrays: Any) -> Any:
        time.sleep(0.01)
        return engine(arrays)

    report = run(slow_engine, data(tmp_path), slow_preprocess, workers=workers, warmup=warmup)
    stages = report.wait_time + report.wait_engine_time + report.postprocess_time
    assert stages == pytest.approx(report.e2e_time, rel=0.02)


def test_outputs_are_bit_identical_for_any_workers(engine: Engine, tmp_path: Path) -> None:
    seen: dict[int, list[bytes]] = {}
    for workers in WORKERS:

        def slow(samples: list[np.ndarray]) -> np.ndarray:
            time.sleep(0.003 * abs(float(samples[0][0])))
            return np.stack(samples)

        answers = predict(engine, data(tmp_path), slow, list, failures=[], workers=workers)
        seen[workers] = [answer.name.encode() + answer.answer.tobytes() for answer in answers]
    assert seen[0] == seen[1] == seen[4]
    assert len(seen[0]) == 23


def test_bad_samples_are_listed_and_not_counted(engine: Engine, tmp_path: Path) -> None:
    batches = data(tmp_path)
    bad = {0, 7, 22}

    def picky(samples: list[np.ndarray]) -> np.ndarray:
        for sample in samples:
            if any(np.array_equal(sample, batches.dataset.rows[i]) for i in bad):
                raise DataError("damaged")
        return np.stack(samples)

    report = run(engine, batches, picky)
    assert [f.name for f in report.failures] == [f"{tmp_path / 'data.npz'}[{i}]" for i in sorted(bad)]
    assert report.samples == 20
    good = [i for i in range(23) if i not in bad]
    assert report.metric == (batches.dataset.rows[good].argmax(1) == batches.dataset.labels[good]).mean()


def test_nothing_could_be_run(engine: Engine, tmp_path: Path) -> None:
    def broken(samples: list[np.ndarray]) -> np.ndarray:
        raise OSError("disk on fire")

    with pytest.raises(DataError, match=r"evaluated: .*data\.npz\[0\]: disk on fire; "):
        run(engine, data(tmp_path), broken)
    with pytest.raises(DataError, match="no sample could be evaluated;"):
        run(engine, [])


def test_no_labels(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.npz\[0\] has no label"):
        run(engine, data(tmp_path, labels=False))
    assert not own_threads()


@pytest.mark.parametrize("workers", WORKERS)
def test_nan_is_passed_on_and_reported(engine: Engine, tmp_path: Path, workers: int) -> None:
    batches = data(tmp_path)
    batches.dataset.rows[6, 1] = np.nan
    report = run(engine, batches, workers=workers)
    assert report.nan_inputs == [f"{tmp_path / 'data.npz'}[6]"]
    assert report.samples == 23


@pytest.mark.parametrize(
    ("max_steps", "steps", "finished"),
    [(-1, 5, True), (0, 5, True), (1, 1, False), (4, 4, False), (5, 5, True), (9, 5, True)],
)
@pytest.mark.parametrize("sized", [True, False])
def test_max_steps(engine: Engine, tmp_path: Path, max_steps: int, steps: int, finished: bool, sized: bool) -> None:
    batches = data(tmp_path)
    report = run(engine, batches if sized else iter(batches), max_steps=max_steps)
    assert (report.steps, report.samples) == (steps, min(5 * steps, 23))
    if sized or max_steps != 5:  # an iterator cannot know that it was at its end
        assert report.finished is finished


def test_max_steps_stops_reading(engine: Engine, tmp_path: Path) -> None:
    taken = []

    def counted() -> Iterator[Batch]:
        for batch in data(tmp_path):
            taken.append(batch)
            yield batch

    run(engine, counted(), max_steps=2, workers=4)
    assert len(taken) == 2


def test_warmup_counts_for_the_metric_only(engine: Engine, tmp_path: Path) -> None:
    calls = []

    def slow_at_first(arrays: Any) -> Any:
        calls.append(len(arrays[0]))
        time.sleep(0.1 if len(calls) == 1 else 0)
        return engine(arrays)

    report = run(slow_at_first, data(tmp_path), warmup=1, workers=0)
    assert report.samples == 23
    assert report.e2e_time < 0.1
    assert report.avg_inference_time < 0.1
    assert report.avg_sps == pytest.approx(18 / report.e2e_time)
    assert report.engine == "function"


@pytest.mark.parametrize("warmup", [5, 9])
def test_warmup_of_everything_times_everything(engine: Engine, tmp_path: Path, warmup: int) -> None:
    report = run(engine, data(tmp_path), warmup=warmup)
    assert report.avg_sps == pytest.approx(23 / report.e2e_time)
    assert report.avg_inference_time > 0


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("where", ["preprocess", "engine", "postprocess"])
def test_bugs_propagate_and_threads_end(engine: Engine, tmp_path: Path, workers: int, where: str) -> None:
    def bug(_: Any) -> Any:
        raise TypeError(where)

    parts: dict[str, Any] = {"preprocess": np.stack, "engine": engine, "postprocess": np.asarray, where: bug}
    with pytest.raises(TypeError, match=where) as caught:
        evaluate(parts["engine"], data(tmp_path), parts["preprocess"], parts["postprocess"], TopK(1), workers=workers)
    assert not own_threads()  # even while the traceback is still held
    assert caught.traceback


def test_labels_that_do_not_fit_the_model(engine: Engine, tmp_path: Path) -> None:
    batches = data(tmp_path)
    batches.dataset.labels[3] = 4
    with pytest.raises(DataError, match="label 4 is not"):
        run(engine, batches)
    with pytest.raises(InputError, match="rows of scores"):
        run(lambda arrays: arrays[0][:-1], data(tmp_path))


def test_step_lines(engine: Engine, tmp_path: Path) -> None:
    lines: list[str] = []
    run(engine, data(tmp_path), on_step=lines.append)
    assert len(lines) == 5
    assert lines[0].startswith("step 1: samples: 5, inference_time: 0.0")
    assert lines[4].startswith("step 5: samples: 3, ")


# ------------------------------------------------------------------------------------------------------------- predict


@pytest.mark.parametrize("workers", WORKERS)
def test_predict(engine: Engine, tmp_path: Path, workers: int) -> None:
    failures: list[Failure] = []
    batches = data(tmp_path, labels=False)
    answers = list(predict(engine, batches, np.stack, list, failures=failures, workers=workers))
    assert [answer.name for answer in answers] == [f"{tmp_path / 'data.npz'}[{i}]" for i in range(23)]
    np.testing.assert_array_equal(np.stack([answer.answer for answer in answers]), batches.dataset.rows)
    assert failures == []


def test_predict_lists_failures(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(b"")
    (tmp_path / "images" / "readme.txt").write_text("hello")
    failures: list[Failure] = []

    def unreadable(samples: list[Path]) -> np.ndarray:
        raise DataError(f"{samples[0]} is empty")

    batches = load_dataset(tmp_path / "images").batches(4)
    assert list(predict(engine, batches, unreadable, list, failures=failures)) == []
    assert [Path(f.name).name for f in failures] == ["readme.txt", "a.png"]


def test_predict_requires_one_answer_per_sample(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"postprocess gave 1 .* 5 "):
        list(predict(engine, data(tmp_path), np.stack, lambda y: ["one"], failures=[]))
    assert not own_threads()


def test_predict_stopped_early_leaves_no_thread(engine: Engine, tmp_path: Path) -> None:
    answers = predict(engine, data(tmp_path), np.stack, list, failures=[], workers=3)
    next(answers)
    answers.close()  # type: ignore[attr-defined]
    assert not own_threads()


def test_a_progress_bar_on_a_terminal_only(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(engine, data(tmp_path))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    run(engine, data(tmp_path))
    assert "5/5" in capsys.readouterr().err


def test_predict_reports_every_step(engine: Engine, tmp_path: Path) -> None:
    lines: list[str] = []
    answers = list(predict(engine, data(tmp_path), np.stack, list, failures=[], on_step=lines.append))
    assert len(answers) == 23
    assert [line.partition(", ")[0] for line in lines] == [
        f"step {step}: samples: {count}" for step, count in enumerate([5, 5, 5, 5, 3], 1)
    ]
