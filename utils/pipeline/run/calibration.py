"""Calibrate int8 engines with samples of the data set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import Array, ConfigError, DataError, Engine, Timeline, open_engine
from utils.datasets.base import Batch, Dataset, dataset_of
from utils.datasets.sharding import rank_and_size
from utils.pipeline.run.pipeline import SAMPLE_ERRORS, PreparedBatch, prepare
from utils.tasks.prepared import Shards

if TYPE_CHECKING:
    from utils.pipeline.run.pipeline import Pipeline

_AT_A_TIME = 8
"""Samples per preprocessed batch."""

KEPT_CALLS = 1024
"""Largest number of recorded calls of an engine; of more (a stream, a decoder) every second, then every fourth, ..."""


def calibrate(pipeline: Pipeline, batches: Iterable[Batch]) -> None:
    """Calibrate engines with samples that are evenly spaced over the data set, which is often sorted by class.

    Then set up the task. If a batch is one call, the calibration inputs are the prepared arrays. For a task of several
    calls or models, the task (and its ``setup``) is run in float32 on target ``onnx``, and the inputs of each engine
    are recorded.

    Raises ConfigError: the batches are not of a data set, or the run has several processes, which would choose
    different ranges; DataError: an engine was not called.
    """
    needing = {name: engine for name, engine in pipeline.engines.items() if engine.calibration_samples}
    if not needing:
        return
    dataset = dataset_of(batches)
    if dataset is None:
        raise ConfigError("int8 is calibrated from a data set; pass Dataset.batches(...), or call engine.calibrate()")
    if rank_and_size()[1] > 1:
        raise ConfigError("int8 is calibrated in one process: several would each choose other ranges; use one process")
    wanted = max(engine.calibration_samples for engine in needing.values())
    if pipeline.task.one_call:
        (engine,) = needing.values()
        engine.calibrate(call for ready in _spread(dataset, wanted, pipeline) for call in _calls(ready))
    else:
        recorded = _recorded(pipeline, dataset, wanted)
        for name, engine in needing.items():
            if not recorded[name]:
                raise DataError(f"model {name!r} was not called for any of {wanted} samples, so int8 has no ranges")
            engine.calibrate(recorded[name])
    pipeline.set_up()


def _calls(ready: PreparedBatch) -> Sequence[list[Array]]:
    """Return the inputs of an engine for a batch: one call, or one per SPA."""
    if ready.arrays is None:
        return []
    return ready.arrays if isinstance(ready.arrays, Shards) else [ready.arrays]


def _spread(dataset: Dataset, count: int, pipeline: Pipeline) -> Iterator[PreparedBatch]:
    """Yield prepared samples without those that cannot be prepared, which the evaluation lists."""
    places = np.unique(np.linspace(0, len(dataset) - 1, min(count, len(dataset))).astype(int)).tolist()
    timeline = Timeline()
    for batch in dataset.select(places).batches(_AT_A_TIME):
        try:
            yield prepare(batch, pipeline.preprocessor, timeline, detailed=False)
        except SAMPLE_ERRORS:  # samples that cannot share a batch
            continue


def _recorded(pipeline: Pipeline, dataset: Dataset, wanted: int) -> dict[str, list[list[Array]]]:
    """Run the task on the baseline's engines and return the inputs of all calls, by engine."""
    with ExitStack() as stack:
        recorders: dict[str, Any] = {}
        recorded = {name: _Calls() for name in pipeline.engines}
        for name, engine in pipeline.engines.items():
            baseline = replace(engine.spec, dtype="float32", pass_path=None, streams=1)
            recorders[name] = Reporting(stack.enter_context(open_engine("onnx", baseline)), recorded[name].keep)
        pipeline.set_up(recorders)
        for ready in _spread(dataset, wanted, pipeline):
            if ready.arrays is not None:
                pipeline.task.infer(recorders, ready.arrays, ready.contexts)
        return {name: calls.kept for name, calls in recorded.items()}


class _Calls:
    """Copies of the inputs of an engine's calls."""

    def __init__(self) -> None:
        self.kept: list[list[Array]] = []
        self._every, self._count = 1, 0

    def keep(self, arrays: Sequence[Array]) -> None:
        if self._count % self._every == 0:
            self.kept.append([array.copy() for array in arrays])
        self._count += 1
        if len(self.kept) >= KEPT_CALLS:
            self.kept, self._every = self.kept[::2], self._every * 2


class Reporting:
    """An engine that reports the inputs of a call (of each SPA) to a function before it computes."""

    def __init__(self, engine: Engine, on_call: Callable[[Sequence[Array]], None]) -> None:
        self._engine, self._on_call = engine, on_call

    def __call__(self, inputs: Array | Sequence[Array]) -> Array | list[Array]:
        """Run the model."""
        self._on_call([inputs] if isinstance(inputs, np.ndarray) else list(inputs))
        return self._engine(inputs)

    def call_shards(self, shards: Sequence[list[Array]]) -> list[list[Array]]:
        """Run the model on the arrays of each SPA."""
        for shard in shards:
            self._on_call(shard)
        return self._engine.call_shards(shards)

    def __getattr__(self, name: str) -> Any:
        """Return the engine's attribute."""
        return getattr(self._engine, name)
