"""A run whose model gives NaN: every such sample is named, on any way through the loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import SaveOnnx, made

from engine import ConfigError, Engine, EngineError, EngineSpec, open_engine
from utils.datasets import ListDataset
from utils.datasets.samples import Batches
from utils.metrics import TopK
from utils.pipeline import evaluate, predict
from utils.pipeline.flags.options import Options
from utils.pipeline.report.report import Report
from utils.pipeline.resume.journal import Journal, Step
from utils.pipeline.run.loops import evaluate_pipeline, predict_pipeline
from utils.pipeline.run.pipeline import Pipeline
from utils.tasks.base import Artifact, Task
from utils.tasks.model import Model
from utils.tasks.prepared import Prepared, Shards

ROOTS = "g (float[N,4] x) => (float[N,4] y) { y = Sqrt(x) }"
"""NaN for samples below 0."""

BAD = [2, 7, 8, 21]


@pytest.fixture
def engine(save_onnx: SaveOnnx) -> Iterator[Engine]:
    with open_engine("onnx", EngineSpec(ckpt=save_onnx(ROOTS))) as opened:
        yield opened


def dataset(bad: Sequence[int] = BAD, count: int = 23) -> ListDataset:
    rows = np.random.default_rng(0).random((count, 4)).astype(np.float32)
    labels = rows.argmax(axis=1)
    rows[list(bad), 1] = -1
    return ListDataset(list(rows), labels, names=[f"s{i}" for i in range(count)])


def data(bad: Sequence[int] = BAD) -> Batches:
    return dataset(bad).batches(5)


def names(places: Sequence[int]) -> list[str]:
    return [f"s{i}" for i in places]


def run(engine: Any, batches: Any = None, preprocess: Any = np.stack, **how: Any) -> Report:
    return evaluate(engine, batches or data(), preprocess, np.asarray, TopK(1), **how)


@pytest.mark.parametrize("mode", ["thread", "process"])
@pytest.mark.parametrize("workers", [0, 3])
def test_samples_are_named_and_wrong(engine: Engine, workers: int, mode: str) -> None:
    report = run(engine, workers=workers, worker_mode=mode)
    assert report.nan_outputs == names(BAD)
    assert (report.nan_inputs, report.failures, report.samples) == ([], [], 23)
    assert report.metric == 19 / 23
    assert not report.sound
    assert run(engine, data([])).sound


def test_a_plain_function_has_its_samples_first() -> None:
    assert run(lambda arrays: np.where(arrays[0] < 0, np.nan, arrays[0])).nan_outputs == names(BAD)
    assert run(lambda arrays: np.where(arrays[0] < 0, -np.inf, arrays[0])).nan_outputs == []  # as it is meant


def test_infinite_outputs_with_nan_predictions(engine: Engine) -> None:
    from utils.postprocess.pytorch.classification import scores

    def overflown(arrays: Any) -> Any:
        return np.where(arrays[0] < 0, np.inf, arrays[0])

    report = evaluate(overflown, data(), np.stack, scores, TopK(1))
    assert report.nan_outputs == names(BAD)
    raw = evaluate(overflown, data(), np.stack, np.asarray, TopK(1))
    assert raw.nan_outputs == []  # infinities rank like any number


def test_answers_are_marked(engine: Engine) -> None:
    found = list(predict(engine, data(), np.stack, list, failures=[]))
    assert [answer.name for answer in found if answer.nan_output] == names(BAD)
    assert not any(answer.nan_input for answer in found)


def test_answers_to_nan_are_marked(engine: Engine) -> None:
    samples = dataset([])
    samples.samples[3][0] = np.nan
    found = list(predict(engine, samples.batches(5), np.stack, list, failures=[]))
    assert [answer.name for answer in found if answer.nan_input] == ["s3"]


def test_a_failed_sample_does_not_shift_names(engine: Engine) -> None:
    def picky(samples: list[np.ndarray]) -> np.ndarray:
        if any(sample[0] == 5 for sample in samples):
            raise ValueError("no five")
        return np.stack(samples)

    samples = dataset()
    samples.samples[1][0] = samples.samples[6][0] = 5
    report = run(engine, samples.batches(5), picky)
    assert [failure.name for failure in report.failures] == ["s1", "s6"]
    assert report.nan_outputs == names(BAD)


@pytest.mark.parametrize("done", range(6))
def test_a_resumed_run_counts_the_same(engine: Engine, tmp_path: Path, done: int) -> None:
    identity = {"run": "this"}
    with Journal.open(tmp_path, identity) as journal:
        run(engine, max_steps=done or -1, journal=journal)
    with Journal.open(tmp_path, identity) as journal:
        assert journal.done == (done or 5)
        report = run(engine, journal=journal)
    assert (report.nan_outputs, report.samples, report.sound) == (names(BAD), 23, False)
    assert report.metric == 19 / 23


def test_steps_keep_both_kinds(tmp_path: Path) -> None:
    with Journal.open(tmp_path, {}) as journal:
        journal.append(Step(2, np.ones(2, bool), nan_inputs=("a",), nan_outputs=("a", "b")))
        journal.append(Step(2, np.ones(1, bool), good=(0,)))
        first, second = journal.replayed()
    assert (first.nan_inputs, first.nan_outputs, first.samples) == (("a",), ("a", "b"), 2)
    assert (second.nan_inputs, second.nan_outputs, second.samples) == ((), (), 1)


# ------------------------------------------------------------------------------------------ what cannot take NaN at all


def whole(outputs: Any) -> list[int]:
    return [round(float(row.sum())) for row in outputs]


def test_a_decode_that_fails_on_nan_gives_one_line(engine: Engine) -> None:
    said = r"^s2: the model's output holds NaN \(cannot convert float NaN to integer\); find the node with `teco overfl"
    with pytest.raises(EngineError, match=said):
        list(predict(engine, data(), np.stack, whole, failures=[]))
    with pytest.raises(EngineError, match=said):
        evaluate(engine, data(), np.stack, whole, TopK(1))


def test_other_errors_are_raised_unchanged(engine: Engine) -> None:
    def fails(_: Any) -> Any:
        raise ValueError("a bug")

    def refuses(_: Any) -> Any:
        raise ConfigError("no")

    with pytest.raises(ValueError, match="a bug"):
        evaluate(engine, data([]), np.stack, fails, TopK(1))
    with pytest.raises(ConfigError, match=r"^no$"):
        evaluate(engine, data(), np.stack, refuses, TopK(1))


# ----------------------------------------------------------------------------------- tasks that call engines themselves


def refuse(*_: Any) -> Any:
    raise AssertionError


def prepare(samples: Any, model: Model, options: Any) -> Prepared:
    return Prepared([np.stack(samples)])


def decode(outputs: Any, *_: Any) -> Any:
    return np.eye(4)[outputs]


def by_largest(engines: Mapping[str, Any], arrays: Any, contexts: Any, state: Any) -> Any:
    return np.argmax(engines["model"](arrays), axis=1)  # a whole number, whatever it is of


def queued(engines: Mapping[str, Any], arrays: Any, contexts: Any, state: Any) -> Any:
    return np.argmax(engines["model"].run_async(arrays).result(), axis=1)


def one_by_one(engines: Mapping[str, Any], arrays: Any, contexts: Any, state: Any) -> Any:
    return np.array([np.argmax(engines["model"]([row[None]])) for row in arrays[0]])


def in_shards(engines: Mapping[str, Any], arrays: Any, contexts: Any, state: Any) -> Any:
    found = engines["model"].call_shards([[arrays[0][:2]], [arrays[0][2:]]])
    return np.argmax(np.concatenate([shard[0] for shard in found]), axis=1)


def of_corpus(engines: Mapping[str, Any], arrays: Any, contexts: Any, state: Any) -> Any:
    return np.argmax(arrays[0] + state.max(axis=0), axis=1)


def embed(engines: Mapping[str, Any], samples: Any, options: Any) -> Any:
    return np.asarray(engines["model"](np.stack(samples.samples)))


TASK = Task("largest", "any", refuse, prepare, decode, refuse, lambda *_: Artifact("", None), infer=by_largest)


def worked(task: Task, engine: Engine, samples: ListDataset) -> tuple[Report, list[str]]:
    """Return the report, and the names of the answers that are marked."""
    pipeline = Pipeline(made(task, Options(), Model.of(engine)), {"model": engine}, samples)
    answers = predict_pipeline(pipeline, samples.batches(5), failures=[])
    marked = [answer.name for answer in answers if answer.nan_output]
    return evaluate_pipeline(pipeline, samples.batches(5), TopK(1), workers=0), marked


@pytest.mark.parametrize("infer", [by_largest, queued])
def test_nan_that_the_task_hides(engine: Engine, infer: Any) -> None:
    report, marked = worked(replace(TASK, infer=infer), engine, dataset())
    assert report.nan_outputs == marked == names(BAD)
    assert report.samples == 23


@pytest.mark.parametrize("streams", [1, 2])
def test_a_task_may_queue_calls_in_parallel_batches(engine: Engine, streams: int) -> None:
    """The batches had the engine's own thread, which the task's call then waited for, for ever."""
    samples = dataset()
    with open_engine("onnx", replace(engine.spec, streams=streams)) as one:
        pipeline = Pipeline(made(replace(TASK, infer=queued), Options(), Model.of(one)), {"model": one}, samples)
        report = evaluate_pipeline(pipeline, samples.batches(5), TopK(1), workers=2)
    assert report.samples == 23
    assert report.nan_outputs == names(BAD)


@pytest.mark.parametrize("infer", [one_by_one, in_shards])
def test_calls_without_rows_flag_the_whole_batch(engine: Engine, infer: Any) -> None:
    report, marked = worked(replace(TASK, infer=infer), engine, dataset([7]))
    assert report.nan_outputs == marked == names([5, 6, 7, 8, 9])


def turned(engines: Mapping[str, Any], arrays: Any, contexts: Any, state: Any) -> Any:
    """Call with rows in another order, one of which fills the call up."""
    filled = np.concatenate([arrays[0][:0:-1], np.full_like(arrays[0][:1], -1)])
    first = engines["model"](arrays[0][:1])
    return np.concatenate([first, engines["model"](filled)[-2::-1]])


def turned_tuples(engines: Mapping[str, Any], arrays: Any, contexts: Any, state: Any) -> Any:
    return [(float(row.max()), row) for row in turned(engines, arrays, contexts, state)]


@pytest.mark.parametrize("infer", [turned, turned_tuples])
def test_calls_with_other_rows(engine: Engine, infer: Any) -> None:
    def rows(outputs: Any, *_: Any) -> Any:
        return outputs if isinstance(outputs, np.ndarray) else np.stack([row for _, row in outputs])

    report, marked = worked(replace(TASK, infer=infer, decode=rows), engine, dataset([1, 7]))
    assert report.nan_outputs == marked == names([1, 7])


def test_nan_at_set_up_flags_all_samples(engine: Engine) -> None:
    task = replace(TASK, setup=embed, infer=of_corpus)
    assert worked(task, engine, dataset([7]))[0].nan_outputs == names(range(23))
    assert worked(task, engine, dataset([]))[0].nan_outputs == []


def test_shards_of_one_call(engine: Engine) -> None:
    def collate(parts: Any, model: Model) -> Shards:
        (part,) = parts
        return Shards([[part.arrays[0][:2]], [part.arrays[0][2:]]])

    def joined(outputs: Any, *_: Any) -> Any:
        return np.concatenate([shard[0] for shard in outputs])

    task = Task("packed", "any", refuse, prepare, joined, refuse, refuse, collate=collate)
    assert worked(task, engine, dataset([7]))[0].nan_outputs == names([5, 6, 7, 8, 9])


def test_a_task_may_take_nan(save_onnx: SaveOnnx) -> None:
    path = save_onnx(
        "g (float[N,4] x) => (float[N,4] y) { n = IsNaN(x) z = Constant<value_float=0.0>() y = Where(n, z, x) }"
    )
    samples = dataset([])
    samples.samples[3][0] = np.nan
    task = Task("filled", "any", refuse, prepare, lambda outputs, *_: outputs, refuse, refuse)
    with open_engine("onnx", EngineSpec(path)) as engine:
        assert worked(task, engine, samples)[0].nan_inputs == ["s3"]
        report, _ = worked(replace(task, takes_nan=True), engine, samples)
    assert (report.nan_inputs, report.nan_outputs, report.sound) == ([], [], True)
