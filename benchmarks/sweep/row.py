"""One architecture of the sweep: its torch module, its inputs, and what is expected of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

Array = np.ndarray
Axes = Mapping[str, Mapping[int, str]]
Inputs = Callable[[np.random.Generator, int], list[Array]]

BATCH = "batch"
EXPORTERS = ("dynamo", "torchscript")
"""torch's two exporters: the one built on torch.export, and the older tracer."""


@dataclass(frozen=True)
class Row:
    """One architecture.

    Attributes:
        name: unique in the sweep.
        build: makes the torch module; torch's seed is set before.
        inputs: a random generator and a number of samples -> one array per input, floats in float32.
        names: of the inputs. outputs: names of the outputs.
        axes: per input its dynamic axes; ``None`` makes axis 0 of every input the batch.
        exporters: which of torch's exporters write it.
        refusals: combination (``"torchscript/*"``, ``"*/sdaa float16*"``; shell patterns) -> the reason expected of a
            refusal, as a regular expression.
        dependent: the samples of a call depend on one another, so the card runs a call on one SPA.
    """

    name: str
    build: Callable[[], torch.nn.Module]
    inputs: Inputs
    names: tuple[str, ...] = ("x",)
    outputs: tuple[str, ...] = ("y",)
    axes: Axes | None = None
    exporters: tuple[str, ...] = EXPORTERS
    refusals: Mapping[str, str] = field(default_factory=dict)
    dependent: bool = False

    @property
    def dynamic(self) -> Axes:
        """Return the dynamic axes of every input."""
        return self.axes if self.axes is not None else {name: {0: BATCH} for name in self.names}


def dims(row: Row, arrays: Sequence[Array]) -> dict[str, tuple[int, ...]]:
    """Return the size of every symbolic dimension besides the batch in these inputs."""
    found: dict[str, tuple[int, ...]] = {}
    for name, array in zip(row.names, arrays, strict=True):
        for axis, symbol in row.dynamic.get(name, {}).items():
            if symbol != BATCH:
                found[symbol] = (array.shape[axis],)
    return found


# -------------------------------------------------------------------------------------------------------------- inputs


def floats(*shape: int) -> Inputs:
    """Return what draws standard normal samples of a shape."""
    return lambda rng, count: [rng.standard_normal((count, *shape), np.float32)]


def images(size: int = 64, channels: int = 3) -> Inputs:
    """Return what draws square images."""
    return floats(channels, size, size)


def several(*parts: Inputs) -> Inputs:
    """Return what draws the inputs of all parts, in order."""
    return lambda rng, count: [array for part in parts for array in part(rng, count)]


def numbers(below: int, *shape: int) -> Inputs:
    """Return what draws whole numbers (int64) from 0 to ``below`` - 1."""
    return lambda rng, count: [rng.integers(0, below, (count, *shape), np.int64)]


def text(vocabulary: int = 200, longest: int = 12) -> Inputs:
    """Return what draws token numbers and a mask of 1 and 0: (samples, longest), each sample of its own length."""

    def draw(rng: np.random.Generator, count: int) -> list[Array]:
        ids = rng.integers(5, vocabulary, (count, longest), np.int64)
        lengths = rng.integers(longest // 3, longest + 1, count)
        lengths[0] = longest
        mask = (np.arange(longest) < lengths[:, None]).astype(np.int64)
        return [ids * mask, mask]

    return draw


def on_axis(axis: int, inputs: Inputs) -> Inputs:
    """Return what moves the batch of every input from axis 0 to another."""
    return lambda rng, count: [np.ascontiguousarray(np.moveaxis(a, 0, axis)) for a in inputs(rng, count)]


TEXT_AXES: Axes = {name: {0: BATCH, 1: "seq"} for name in ("input_ids", "attention_mask")}
