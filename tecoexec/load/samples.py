"""Samples of a load test: random ones, or those of a model's ``example_valid.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from engine import Array, ConfigError, DataError, Engine, InputError
from engine.signature import with_batch
from tecoexec.load.loadgen import row_bytes
from tecoexec.request import Request, random_inputs
from tecoexec.shapes import CardShapes
from utils.datasets.base import Dataset, pick
from utils.pipeline.cli import call_of
from utils.pipeline.flags.options import options
from utils.pipeline.run.pipeline import SAMPLE_ERRORS, Preprocessor, measure
from utils.pipeline.session import load_data
from utils.tasks.base import Task, overrides, task_class
from utils.tasks.model import described
from utils.tasks.prepared import NoAnswer, Prepared, Shards

HELD = 1024
"""Most samples of a data set in memory at a time."""


class Samples(Protocol):
    """The samples of a test, by index."""

    count: int
    held: int

    def load(self, indices: Sequence[int]) -> None:
        """Prepare samples for :meth:`serve`."""

    def unload(self, indices: Sequence[int]) -> None:
        """Remove them from memory."""

    def serve(self, indices: Sequence[int]) -> list[Array]:
        """Compute a batch of loaded samples; one array per output of the model, with a row per sample."""


class RandomSamples:
    """Seeded random samples of the shapes of a call, made once; a model without a batch has one sample.

    Raise ConfigError for dtypes that do not fit, or if they exceed the host's memory.
    """

    def __init__(self, request: Request, engine: Engine, shapes: CardShapes, count: int) -> None:
        self._engine, self._axes = engine, shapes.axes
        self.batched = any(axis is not None for axis in shapes.axes)
        self.count = self.held = count if self.batched else 1
        whole = tuple(with_batch(one, axis, self.count) for one, axis in zip(shapes.whole, shapes.axes, strict=True))
        self._arrays = random_inputs(request, engine, CardShapes(whole, shapes.axes, self.count, shapes.split))

    def load(self, indices: Sequence[int]) -> None:
        """Do nothing: all samples are in memory."""

    unload = load

    def serve(self, indices: Sequence[int]) -> list[Array]:
        """Compute a batch."""
        pairs = zip(self._arrays, self._axes, strict=True)
        return _listed(self._engine([a if axis is None else np.take(a, indices, axis) for a, axis in pairs]))


class TaskSamples:
    """Samples of a task's data set, prepared by the task.

    Args:
        task: bound to the engine. engine: the model. dataset: the samples. most: number of samples to take.

    Raises:
        ConfigError: the task needs more than one call of one model per batch, or its samples cannot be split by rows.
    """

    def __init__(self, task: Task, engine: Engine, dataset: Dataset, most: int | None) -> None:
        if task.models or not task.one_call:
            raise ConfigError(
                f"--valid: task {task.name} computes a batch in several calls; LoadGen needs one per batch"
            )
        self.count = min(len(dataset), most or len(dataset))
        self.dataset = dataset if self.count == len(dataset) else dataset.select(range(self.count))
        self.task, self._engine, self._preprocessor = task, engine, Preprocessor(task)
        if not self.count:
            raise DataError(f"{task.options.data_text}: no samples; check the path")
        self.held = min(self.count, HELD)
        self._parts: dict[int, Prepared] = {}
        self._contexts: dict[int, Any] = {}
        self._layout: dict[int, list[tuple[tuple[int, ...], np.dtype[Any]]]] = {}

    def load(self, indices: Sequence[int]) -> None:
        """Prepare samples; raise DataError if one cannot be read."""
        for index in set(indices) - set(self._parts):
            batch = self.dataset.batch(range(index, index + 1))
            try:
                self._parts[index] = part = self._preprocessor.prepare(batch.samples)
            except SAMPLE_ERRORS as error:
                raise DataError(
                    f"{batch.names[0]}: {error}; remove the sample, or take fewer with --samples"
                ) from error
            self._contexts[index] = None if part.contexts is None else part.contexts[0]

    def unload(self, indices: Sequence[int]) -> None:
        """Remove prepared samples; their contexts stay for the metric."""
        for index in indices:
            self._parts.pop(index, None)

    def serve(self, indices: Sequence[int]) -> list[Array]:
        """Compute a batch."""
        arrays = self._preprocessor.collate([self._parts[index] for index in indices])
        if isinstance(arrays, Shards):
            raise ConfigError(f"--valid: samples of task {self.task.name} cannot be split by rows; use random samples")
        outputs = _listed(self._engine(arrays))
        for place, index in enumerate(indices):
            if any(len(output) != len(indices) for output in outputs):
                raise InputError(f"{self._engine.spec.ckpt}: an output has no row per sample; use random samples")
            self._layout[index] = [(output[place].shape, output.dtype) for output in outputs]
        return outputs

    def metric(self, answers: Mapping[int, bytes]) -> dict[str, Any]:
        """Return the task's metric of LoadGen's logged answers.

        Args:
            answers: bytes of a sample's outputs (:func:`tecoexec.load.loadgen.row_bytes`), by index.

        Returns:
            ``name``, ``value``, ``higher_is_better``, ``samples``, ``unanswered`` (samples for which the task has no
            answer) and ``secondary`` figures.

        Raise DataError if an answer is missing or has another length than the outputs.
        """
        metric = measure(self.task.metric(self.dataset), self.task.source("metric"), self.task.name)
        missing = 0
        for index in range(self.count):
            missing += not self._judge(metric, index, answers.get(index))
        return {
            "name": metric.name,
            "value": metric.compute(),
            "higher_is_better": metric.higher_is_better,
            "samples": self.count - missing,
            "unanswered": missing,
            "secondary": dict(metric.secondary()),
        }

    def _judge(self, metric: Any, index: int, answer: bytes | None) -> bool:
        """Add a sample to the metric; return ``False`` if the task has no answer for it."""
        batch = self.dataset.batch(range(index, index + 1))
        if answer is None or index not in self._layout:
            raise DataError(f"LoadGen logged no answer for sample {index} ({batch.names[0]}); run the test again")
        if batch.targets is None:
            raise DataError(f"{batch.names[0]} has no label; --accuracy needs labelled samples")
        outputs = _rows(answer, self._layout[index], batch.names[0])
        contexts = None if self._contexts[index] is None else [self._contexts[index]]
        predictions = self.task.decode(outputs[0] if len(outputs) == 1 else outputs, contexts)
        if any(isinstance(one, NoAnswer) for one in predictions):
            return False
        metric.update(predictions, pick(batch.targets, [0]), contexts)
        return True


def _rows(answer: bytes, layout: Sequence[tuple[tuple[int, ...], np.dtype[Any]]], name: str) -> list[Array]:
    """Return the outputs of one sample, with a batch of 1, from their bytes."""
    sizes = [int(np.prod(shape, dtype=np.int64)) * dtype.itemsize for shape, dtype in layout]
    if len(answer) != sum(sizes):
        raise DataError(f"LoadGen logged {len(answer)} bytes for {name} instead of {sum(sizes)}; run the test again")
    found, start = [], 0
    for size, (shape, dtype) in zip(sizes, layout, strict=True):
        found.append(np.frombuffer(answer[start : start + size], dtype).reshape(1, *shape))
        start += size
    return found


def _listed(outputs: Array | list[Array]) -> list[Array]:
    return outputs if isinstance(outputs, list) else [outputs]


def task_of(script: Path, request: Request) -> Task:
    """Return the task of a valid script with the script's defaults, for the model and target of a request.

    Raise ConfigError if the script does not exist, is not one of a model, or its task takes several models.
    """
    if not script.is_file():
        raise ConfigError(f"--valid {script} does not exist; name an example_valid.py")
    call = call_of(script)
    task = task_class(call.task)
    given = {"target": request.target, "ckpt": request.model, "dtype": request.dtype}
    if request.pass_path is not None:
        given["pass_path"] = request.pass_path
    return task(options(None, task, "valid", [], **{**call.defaults, **given}))


def bound(task: Task, engine: Engine, most: int | None) -> TaskSamples:
    """Bind a task to an opened engine, and return its samples."""
    engines = {"model": engine}
    task.bind(described(engines))
    dataset = load_data(task)
    if overrides(type(task), "setup"):
        task.state = task.setup(engines, dataset)
    return TaskSamples(task, engine, dataset, most)


__all__ = ["RandomSamples", "Samples", "TaskSamples", "bound", "row_bytes", "task_of"]
