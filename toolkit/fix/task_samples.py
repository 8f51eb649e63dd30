"""Samples of a task: its data set, ``prepare``, ``collate``, ``infer``, ``decode`` and metric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, ConfigError, DataError, Engine, EngineSpec, TensorSpec, Timeline, open_engine
from engine.batching import batch_of
from toolkit.fix.records import Feed, Measure, RawMeasure, TaskMeasure, metric_named, needs_labels
from toolkit.fix.samples import Samples, cast_to, shapes_of
from toolkit.fix.task_request import TaskRequest
from utils.datasets.base import Dataset
from utils.pipeline.flags.options import Options
from utils.pipeline.run.calibration import Reporting
from utils.pipeline.run.pipeline import Preprocessor, prepare
from utils.pipeline.session import described, engine_spec, load_data
from utils.tasks.model import Model
from utils.tasks.prepared import Shards

FEW_CALLS = 64
"""Number of calls for ranking nodes if a task makes several per sample, evenly spaced."""


class TaskSamples(Samples):
    """The samples of a task for one of its models; the other models run in float32 on target ``onnx``.

    Args:
        path: the model. names: of its inputs, in order. asked: the task and the model's name in it.
        opt: the task's options. limit: number of samples, from the beginning.

    Raises DataError if samples are missing.
    """

    def __init__(
        self, path: Path, names: Sequence[str], asked: TaskRequest, opt: Options, limit: int | None = None
    ) -> None:
        self.task, self.name, self.opt, self._path = asked.task(opt), asked.name, opt, path
        self.one_call = self.task.one_call
        self._stack = ExitStack()
        try:
            specs = self._describe(path)
            dataset = load_data(self.task)
        except BaseException:
            self._stack.close()
            raise
        self.dataset = dataset if limit is None else dataset.select(range(min(limit, len(dataset))))
        labelled = len(self.dataset) > 0 and self.dataset.batch(range(1)).targets is not None
        self._callers = [spec.name for spec in specs]
        super().__init__(
            len(self.dataset), labelled, sorted(specs, key=lambda spec: names.index(spec.name)), opt.batch_size
        )
        self.where = opt.data_text
        self.notes = self.model.stored.image
        self._preprocessor = Preprocessor(self.task)
        self._places: list[int] = []

    def _describe(self, path: Path) -> list[TensorSpec]:
        """Open the other models, and this one temporarily to read its inputs, in the order of the task's arrays."""
        self._others = {
            name: self._stack.enter_context(open_engine("onnx", self._spec(name, file)))
            for name, file in self.opt.models.items()
            if name != self.name
        }
        with open_engine("onnx", self._spec(self.name, path)) as engine:
            engine.batching.learn()
            self.model = _wide(described(self._engines(engine)))
            self.task.bind(self.model)
            self._axes = [tensor.batch_axis for tensor in engine.outputs]
            return [_floats(tensor) for tensor in engine.inputs]

    def _spec(self, name: str, path: Path) -> EngineSpec:
        return replace(engine_spec(self.task, name, 1), ckpt=path, dtype="float32", pass_path=None)

    def _engines(self, engine: Any) -> dict[str, Any]:
        return {name: self._others.get(name, engine) for name in self.opt.models}

    def spec(self, path: Path) -> EngineSpec:
        """Return the engine settings of a model used in place of the original."""
        return self._spec(self.name, path)

    def card_spec(self, path: Path) -> EngineSpec:
        """Return the engine settings with the sizes of all calls."""
        found = super().card_spec(path)
        order = [spec.name for spec in self.specs]
        sizes = found.input_size or ()
        return replace(found, input_size=tuple(sizes[order.index(name)] for name in self._callers))

    def close(self) -> None:
        """Close the other models."""
        self._stack.close()

    def measure(self, metric: str | None) -> Measure:
        """Return the task's metric, or a metric of raw outputs of a single call."""
        make = partial(self.task.metric, self.dataset)
        own = make().name
        if metric is None or metric == own:
            return TaskMeasure(make, self.task.decode, own, self.task.data_help)
        metric_named(metric)
        if not self.one_call or self.sharded:
            raise ConfigError(
                f"metric {metric} supports tasks with a single call only, and task {self.task.name} makes several; "
                f"leave out --metric to use {own}"
            )
        if needs_labels(metric) and not self.labelled:
            why = f"metric {metric} needs labels, but the data has none"
            raise DataError(f"{self.where}: {why}; use --metric agree or close")
        return RawMeasure(metric, self._axes, folders=getattr(make(), "folders", None))

    @property
    def sharded(self) -> bool:
        """Whether the task splits a batch into shards."""
        return next(iter(self)).shards is not None

    def parts(self, **changes: Any) -> Iterator[Feed]:
        """Yield batches of prepared samples, with arrays in the task's order; raise DataError if there are none."""
        places: list[int] = []
        failures: list[str] = []
        for first, part, good in self._prepared(self.dataset, failures):
            places += [first + i for i in good]
            yield part
        if not places:
            raise DataError(f"{self.where}: no sample can be prepared: {'; '.join(failures[:3]) or 'no samples'}")
        self._places, self.count = places, len(places)
        self.left_out = f"{len(failures)} samples were skipped, the first: {failures[0]}" if failures else ""

    def varied(self, values: Mapping[str, Any]) -> TaskSamples:
        """Return the same samples with other values of the task's flags, by key."""
        other = copy(self)
        other.opt = Options(**{**vars(self.opt), **values})
        other.task = type(self.task)(other.opt).bind(self.model)
        other._preprocessor, other._kept = Preprocessor(other.task), None
        return other

    def some(self, places: Sequence[int]) -> Iterator[tuple[int, Feed, Sequence[int]]]:
        """Yield batches of the samples at some indices: start index, batch, and positions of its good samples."""
        yield from self._prepared(self.dataset.select(places), [])

    def _prepared(self, dataset: Dataset, failures: list[str]) -> Iterator[tuple[int, Feed, Sequence[int]]]:
        """Yield the start index of each batch, the prepared batch, and the positions of its good samples."""
        first = 0
        for batch in dataset.batches(self.batch):
            ready = prepare(batch, self._preprocessor, Timeline(), detailed=False)
            failures += [failure.reason if failure.name in failure.reason else f"{failure.name}: {failure.reason}"
                         for failure in ready.failures]  # fmt: skip
            if ready.arrays is not None:
                made = ready.batch
                shards = ready.arrays if isinstance(ready.arrays, Shards) else None
                arrays = [] if isinstance(ready.arrays, Shards) else ready.arrays
                part = Feed(arrays, made.targets, made.names, made.units, ready.contexts, shards)
                yield first, part, ready.good if ready.good is not None else range(len(made.names))
            first += len(batch.names)

    def run(self, engine: Engine) -> Iterator[tuple[Feed, Any]]:
        """Yield every part with the task's outputs, computed with the engine."""
        if self.one_call:
            for part in self:
                yield part, _called(engine, part.fed)
            return
        watched = Reporting(engine, self._note) if not self._seen else engine
        engines = self._engines(watched)
        self.task.state = self.task.setup(engines, self.dataset)
        for part in self:
            yield part, self.task.infer(engines, part.fed, part.contexts)

    def answered(self, engine: Engine, places: Sequence[int]) -> Iterator[tuple[Feed, list[int], Any]]:
        """Yield parts of the samples at some indices, the indices, and the task's outputs; the task's ``setup`` runs
        again, since data such as a corpus depends on the flags too.
        """
        engines = self._engines(engine)
        self.task.state = self.task.setup(engines, self.dataset)
        for first, part, good in self.some(places):
            outputs = self.task.infer(engines, part.fed, part.contexts)
            yield part._replace(inputs=[]), [places[first + i] for i in good], outputs

    def _note(self, arrays: Sequence[Array]) -> None:
        self._seen.add(shapes_of(self._in_order(arrays)))

    def calls(self) -> Iterator[Feed]:
        """Yield the inputs of all calls over the data set, in the model's order."""
        yield from self._calls(self)

    def _calls(self, parts: Iterable[Feed]) -> Iterator[Feed]:
        if self.one_call:
            for part in parts:
                for arrays in [part.inputs] if part.shards is None else part.shards:
                    yield self._call(arrays, part.names, "")
            return
        fed: list[list[Array]] = []
        with open_engine("onnx", self.spec(self.reference or self._path)) as engine:
            engines = self._engines(Reporting(engine, lambda arrays: fed.append([array.copy() for array in arrays])))
            self.task.state = self.task.setup(engines, self.dataset)
            yield from self._drained(fed, ["setup"])
            for part in parts:
                self.task.infer(engines, part.fed, part.contexts)
                yield from self._drained(fed, part.names)

    def _drained(self, fed: list[list[Array]], names: Sequence[str]) -> Iterator[Feed]:
        for number, arrays in enumerate(fed):
            yield self._call(arrays, names, f" (call {number})")
        fed.clear()

    def _call(self, arrays: Sequence[Array], names: Sequence[str], which: str) -> Feed:
        """Return a call with row names: those of the samples, or the first sample's name and the call number."""
        rows = batch_of(self._in_order(arrays), self.specs)
        alike = len(names) == rows
        return Feed(self._in_order(arrays), None, [f"{names[i if alike else 0]}{which}" for i in range(rows)])

    def _in_order(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the inputs of a call in the model's order."""
        return [arrays[self._callers.index(spec.name)] for spec in self.specs]

    def chosen(self, indices: Sequence[int]) -> list[Feed]:
        """Return the inputs of single samples; at most :data:`FEW_CALLS` if a task makes several calls per sample."""
        places = [self._places[i] for i in sorted(set(indices))] if self._places else sorted(set(indices))
        found = list(self._calls(part for _, part, _ in self._prepared(self.dataset.select(places), [])))
        if self.one_call or len(found) <= FEW_CALLS:
            return found
        return [found[i] for i in np.unique(np.linspace(0, len(found) - 1, FEW_CALLS).astype(int)).tolist()]


def _called(engine: Engine, inputs: Sequence[Array] | Shards) -> Any:
    """Call the engine as :func:`utils.tasks.base.one_call` does, with floats cast to the engine's dtype."""
    if isinstance(inputs, Shards):
        return engine.call_shards([cast_to(shard, engine.inputs) for shard in inputs])
    return engine(cast_to(inputs, engine.inputs))


def _floats(tensor: TensorSpec) -> TensorSpec:
    """Return an input with float32 in place of float16, so that rounding happens in the run, not before."""
    return replace(tensor, dtype=np.dtype(np.float32)) if tensor.dtype == np.float16 else tensor


def _wide(model: Model) -> Model:
    named: Mapping[str, Model] = {name: _wide(one) for name, one in model.named.items()}
    dtype = "float32" if model.dtype == "float16" else model.dtype
    return replace(model, dtype=dtype, inputs=tuple(map(_floats, model.inputs)), named=named)
