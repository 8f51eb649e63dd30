"""The front of a run: how samples become what an engine takes. It travels to other processes."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine import Array, DataError
from utils.tasks.base import Options, Prepared, Shards, Task
from utils.tasks.model import Model

Preprocess = Callable[[Any], "Array | Sequence[Array]"]
"""Samples to one array, or to a list of arrays; the simple form of a front."""


class Front(ABC):
    """Prepares samples and puts the parts of a batch together.

    Attributes:
        name: of the function that prepares, for messages.
        takes_out: whether it can write into an array that it is given.
        axes: for each input the axis of its samples; ``None``: the first.
    """

    name: str
    takes_out: bool
    axes: Sequence[int | None] | None = None

    @abstractmethod
    def prepare(self, samples: Sequence[Any], out: Array | None = None) -> Prepared:
        """Prepare some samples, into ``out`` where one is given."""

    @abstractmethod
    def collate(self, parts: Sequence[Prepared], names: Sequence[str]) -> list[Array] | Shards:
        """Put parts together; ``names`` are of the samples in them."""


class PlainFront(Front):
    """A function from samples to arrays, with the batch first in each."""

    def __init__(self, preprocess: Preprocess) -> None:
        self._preprocess = preprocess
        self.name, self.takes_out = _name(preprocess), _takes_out(preprocess)

    def prepare(self, samples: Sequence[Any], out: Array | None = None) -> Prepared:
        """Call the function."""
        done = self._preprocess(samples) if out is None else self._preprocess(samples, out=out)  # type: ignore[call-arg]
        return Prepared([done] if isinstance(done, np.ndarray) else list(done))

    def collate(self, parts: Sequence[Prepared], names: Sequence[str]) -> list[Array]:
        """Join the arrays of every input.

        Raises:
            DataError: they do not go together: every one is right by itself, so no single sample is to blame.
        """
        if len(parts) == 1:
            return list(parts[0].arrays)  # type: ignore[arg-type]
        shapes = [[np.shape(array)[1:] for array in part.arrays] for part in parts]
        other = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
        if other is not None:
            raise DataError(
                f"preprocess gives {names[0]} the shapes {shapes[0]} and {names[other]} {shapes[other]}, which cannot "
                "share a batch; resize them to one shape, or use a batch size of 1"
            )
        return [np.concatenate(column) for column in zip(*(part.arrays for part in parts), strict=True)]


class TaskFront(Front):
    """What a task does with samples before a model with these options takes them."""

    def __init__(self, task: Task, model: Model, options: Options) -> None:
        # Not the task itself: its other functions need not travel.
        self._prepare, self._collate, self._model, self._options = task.prepare, task.collate, model, options
        self.name, self.takes_out = _name(task.prepare), _takes_out(task.prepare)
        self.axes = [tensor.batch_axis for tensor in model.inputs] if not model.named else None

    def prepare(self, samples: Sequence[Any], out: Array | None = None) -> Prepared:
        """Call the task's ``prepare``."""
        if out is None:
            return self._prepare(samples, self._model, self._options)
        return self._prepare(samples, self._model, self._options, out=out)

    def collate(self, parts: Sequence[Prepared], names: Sequence[str]) -> list[Array] | Shards:
        """Call the task's ``collate``."""
        return self._collate(parts, self._model)


def as_front(preprocess: Preprocess | Front) -> Front:
    """Wrap a plain function, once."""
    return preprocess if isinstance(preprocess, Front) else PlainFront(preprocess)


def _takes_out(function: Callable[..., Any]) -> bool:
    """Say whether a function can write into an array that it is given."""
    try:
        return "out" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a callable without a signature
        return False


def _name(function: Any) -> str:
    inner = getattr(function, "func", function)  # of a partial
    return str(getattr(inner, "__qualname__", type(inner).__qualname__))
