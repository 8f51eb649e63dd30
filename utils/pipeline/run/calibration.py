"""Real samples for engines that choose their ranges by them (int8): what each engine is fed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
"""Samples preprocessed together."""

KEPT_CALLS = 1024
"""Calls of one engine that are kept; of a loop with more (a stream, a decoder) every second, then every fourth, ..."""


def calibrate(pipeline: Pipeline, batches: Iterable[Batch]) -> None:
    """Give every engine the samples it still needs, spread evenly over the data set, as that often comes by class.

    Then the task is set up, as that may call an engine, and what it is then fed is recorded as well.

    Where a batch is one call, the prepared arrays are what the engine is fed. Where a task loops or has several models,
    it is run in float32 on the baseline's engines, and what each of them is fed is recorded.

    Raises:
        ConfigError: the batches are not those of a data set, or several processes would each choose other ranges.
        DataError: no sample reached an engine.
    """
    needing = {name: engine for name, engine in pipeline.engines.items() if engine.calibration_samples}
    if not needing:
        return
    dataset = dataset_of(batches)
    if dataset is None:
        raise ConfigError("int8 is calibrated from a data set; pass Dataset.batches(...), or call engine.calibrate()")
    if rank_and_size()[1] > 1:
        raise ConfigError("int8 is calibrated in one process: several would each choose other ranges; use one process")
    _calibrated(pipeline, dataset, needing)
    pipeline.set_up()


def _calibrated(pipeline: Pipeline, dataset: Dataset, needing: Mapping[str, Engine]) -> None:
    wanted = max(engine.calibration_samples for engine in needing.values())
    if pipeline.task.one_call:
        (engine,) = needing.values()
        engine.calibrate(call for ready in _spread(dataset, wanted, pipeline) for call in _calls(ready))
        return
    for name, calls in _recorded(pipeline, dataset, wanted).items():
        if name in needing:
            if not calls:
                raise DataError(f"model {name!r} was not called for any of {wanted} samples, so int8 has no ranges")
            needing[name].calibrate(calls)


def _calls(ready: PreparedBatch) -> Sequence[list[Array]]:
    """Return what an engine is fed of a batch: one call, or one for each SPA."""
    if ready.arrays is None:
        return []
    return ready.arrays if isinstance(ready.arrays, Shards) else [ready.arrays]


def _spread(dataset: Dataset, count: int, pipeline: Pipeline) -> Iterator[PreparedBatch]:
    """Yield prepared samples; one that cannot be prepared is listed by the evaluation itself and left out here."""
    places = np.unique(np.linspace(0, len(dataset) - 1, min(count, len(dataset))).astype(int)).tolist()
    timeline = Timeline()
    for batch in dataset.select(places).batches(_AT_A_TIME):
        try:
            yield prepare(batch, pipeline.preprocessor, timeline, detailed=False)
        except SAMPLE_ERRORS:  # samples that cannot share a batch
            continue


def _recorded(pipeline: Pipeline, dataset: Dataset, wanted: int) -> dict[str, list[list[Array]]]:
    """Run the task on the baseline's engines and return the calls of each."""
    with ExitStack() as stack:
        recorders: dict[str, Any] = {
            name: _Recorder(stack.enter_context(_baseline(engine))) for name, engine in pipeline.engines.items()
        }
        pipeline.set_up(recorders)
        for ready in _spread(dataset, wanted, pipeline):
            if ready.arrays is not None:
                pipeline.task.infer(recorders, ready.arrays, ready.contexts)
        return {name: recorder.calls for name, recorder in recorders.items()}


def _baseline(engine: Engine) -> Engine:
    """Open the same model in float32 on the baseline's target."""
    return open_engine("onnx", replace(engine.spec, dtype="float32", pass_path=None, streams=1))


class _Recorder:
    """An engine that keeps what it is fed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._every, self._count = 1, 0
        self.calls: list[list[Array]] = []

    def __call__(self, inputs: Array | Sequence[Array]) -> Array | list[Array]:
        """Run the model and keep a copy of its inputs."""
        self._keep([inputs] if isinstance(inputs, np.ndarray) else list(inputs))
        return self._engine(inputs)

    def call_shards(self, shards: Sequence[list[Array]]) -> list[list[Array]]:
        """Run what each SPA gets and keep copies."""
        for shard in shards:
            self._keep(shard)
        return self._engine.call_shards(shards)

    def _keep(self, arrays: Sequence[Array]) -> None:
        if self._count % self._every == 0:
            self.calls.append([array.copy() for array in arrays])
        self._count += 1
        if len(self.calls) >= KEPT_CALLS:
            self.calls, self._every = self.calls[::2], self._every * 2

    def __getattr__(self, name: str) -> Any:
        """Answer everything else as the engine does."""
        return getattr(self._engine, name)
