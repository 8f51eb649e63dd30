"""Plain functions as a task, for :func:`utils.pipeline.evaluate` and :func:`utils.pipeline.predict`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine import Array, Engine
from utils.datasets.base import Dataset
from utils.metrics.base import Metric
from utils.pipeline.run.pipeline import Pipeline, Preprocessor
from utils.tasks.base import Options, Rendering, Task
from utils.tasks.prepared import Prepared, Shards


class FunctionTask(Task):
    """Plain functions, and an engine or any callable from arrays to arrays, as a task without options.

    Args:
        engine: computes; from arrays to an array or a list of arrays.
        preprocess: samples to one array, or to a list of arrays, with the batch first in each.
        postprocess: outputs to predictions.
    """

    name, domain = "", ""
    data_help = "class folders, a label file, or an .npz with labels"

    def __init__(
        self,
        engine: Callable[[Any], Any] | None,
        preprocess: Callable[..., Any],
        postprocess: Callable[[Any], Any] | None,
    ) -> None:
        super().__init__(Options())
        self._engine: Any = engine
        self._preprocess, self._postprocess = preprocess, postprocess
        self.describes = type(engine).__name__

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Not used: the caller passes batches."""
        raise NotImplementedError

    def prepare(self, samples: Any, **out: Any) -> Prepared:
        """Call the function."""
        done = self._preprocess(samples, **out)
        return Prepared([done] if not isinstance(done, (list, tuple)) else list(done))

    def collate(self, parts: Sequence[Prepared]) -> list[Array] | Shards:
        """Join the arrays of every input; DataError if they do not fit: each is correct alone, so no sample is to
        blame.
        """
        from utils.tasks.collating import joined

        return joined(parts)

    def infer(self, engines: Mapping[str, Engine], arrays: Any, contexts: Any) -> Any:
        """Call the engine or callable."""
        return self._engine(arrays)

    @property
    def one_call(self) -> bool:
        """A batch is one call."""
        return True

    def decode(self, outputs: Any, contexts: Any) -> Any:
        """Call the function."""
        return outputs if self._postprocess is None else self._postprocess(outputs)

    def metric(self, dataset: Dataset) -> Metric:
        """Not used: the caller passes a metric."""
        raise NotImplementedError

    def show(self, sample: Any, prediction: Any) -> Rendering:
        """Not used: answers are returned."""
        raise NotImplementedError

    def source(self, method: str) -> Callable[..., Any]:
        """Return the function itself."""
        return {"prepare": self._preprocess, "decode": self._postprocess}.get(method) or super().source(method)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the engine behind: another process only prepares."""
        return {**super().__getstate__(), "_engine": None, "_postprocess": None}


def as_preprocessor(preprocess: Callable[..., Any] | Preprocessor) -> Preprocessor:
    """Wrap a plain function from samples to arrays, once."""
    if isinstance(preprocess, Preprocessor):
        return preprocess
    return Preprocessor(FunctionTask(None, preprocess, None))


def as_pipeline(
    engine: Callable[[Any], Any], preprocess: Callable[..., Any], postprocess: Callable[[Any], Any]
) -> Pipeline:
    """Wrap plain functions and an engine, or any callable from arrays to arrays."""
    engines: dict[str, Any] = {"model": engine} if hasattr(engine, "timeline") else {}
    return Pipeline(FunctionTask(engine, preprocess, postprocess), engines)
