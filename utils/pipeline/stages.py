"""The front of both loops: preprocess batches ahead of the engine, in order, and lose no sample to a bad one."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine.base import Array, DataError, TecoInferError, usable_cores
from engine.timeline import Timeline
from utils.datasets.samples import Batch

if TYPE_CHECKING:
    from concurrent.futures import Future

Preprocess = Callable[[Any], "Array | Sequence[Array]"]

# What a preprocess function may raise for one bad sample; anything else is a bug in it and ends the run.
SAMPLE_ERRORS = (TecoInferError, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class Failure:
    """A sample that could not be run, and why."""

    name: str
    reason: str


class Ready(NamedTuple):
    """A preprocessed batch: the samples that made it, their arrays (one per input), and those that did not."""

    batch: Batch
    arrays: list[Array] | None
    failures: list[Failure]
    nan_inputs: list[str]


def prepared(
    batches: Iterable[Batch], preprocess: Preprocess, timeline: Timeline, workers: int | None = None
) -> Generator[Ready, None, None]:
    """Yield the batches preprocessed, in order, at most ``workers + 1`` batches ahead of the consumer.

    A batch that raises is preprocessed again sample by sample, so that only the bad samples are missing. A single batch
    is preprocessed in the calling thread.
    """
    workers = usable_cores() if workers is None else workers
    if workers < 1 or (isinstance(batches, Sized) and len(batches) == 1):
        for batch in batches:
            yield _prepare(batch, preprocess, timeline)
        return
    from concurrent.futures import ThreadPoolExecutor

    waiting: deque[Future[Ready]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="preprocess") as pool:
        try:
            for batch in batches:
                waiting.append(pool.submit(_prepare, batch, preprocess, timeline))
                if len(waiting) > workers + 1:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _prepare(batch: Batch, preprocess: Preprocess, timeline: Timeline) -> Ready:
    start = time.perf_counter()
    arrays: list[Array] | None
    failures: list[Failure]
    try:
        arrays, failures = _as_list(preprocess(batch.samples)), []
    except SAMPLE_ERRORS:
        batch, arrays, failures = _one_by_one(batch, preprocess)
    nan_inputs = [batch.names[i] for i in _nan_rows(arrays, len(batch.names))] if arrays else []
    timeline.add("preprocess", start, time.perf_counter(), len(batch.names))
    return Ready(batch, arrays, failures, nan_inputs)


def _as_list(arrays: Array | Sequence[Array]) -> list[Array]:
    return [arrays] if isinstance(arrays, np.ndarray) else list(arrays)


def _one_by_one(batch: Batch, preprocess: Preprocess) -> tuple[Batch, list[Array] | None, list[Failure]]:
    good: list[int] = []
    parts: list[list[Array]] = []
    failures = []
    for i, sample in enumerate(batch.samples):
        try:
            parts.append(_as_list(preprocess([sample])))
            good.append(i)
        except SAMPLE_ERRORS as error:
            failures.append(Failure(batch.names[i], str(error)))
    kept = Batch(
        [batch.samples[i] for i in good],  # type: ignore[arg-type]
        None if batch.labels is None else batch.labels[good],
        [batch.names[i] for i in good],
    )
    return kept, _joined(parts, kept.names) if parts else None, failures


def _joined(parts: list[list[Array]], names: list[str]) -> list[Array]:
    """Put the samples of a batch together again.

    Raises:
        DataError: they do not go together: every one is right by itself, so no single sample is to blame.
    """
    shapes = [[array.shape[1:] for array in part] for part in parts]
    other = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
    if other is not None:
        raise DataError(
            f"preprocess gives {names[0]} the shapes {shapes[0]} and {names[other]} {shapes[other]}, which cannot "
            "share a batch; resize them to one shape, or use a batch size of 1"
        )
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _nan_rows(arrays: list[Array], count: int) -> list[int]:
    bad = np.zeros(count, bool)
    for array in arrays:
        if array.dtype.kind == "f" and array.ndim and len(array) == count:
            bad |= np.isnan(array.reshape(count, -1)).any(axis=1)
    return [int(i) for i in np.flatnonzero(bad)]
