"""Counts of the outputs of a node beyond the range of float16, predicted and actual."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from engine import Array
from toolkit.fix.guide import LARGEST
from toolkit.graph.masks import Mask, Masks
from toolkit.graph.nodes import Node

SMALLEST = 2.0**-14  # smallest normal float16
PREDICTED = ("beyond", "below")
ACTUAL = ("inf", "nan", "saturated", "flushed")


@dataclass
class NodeRange:
    """Range of a node's outputs over a data set; ``counts`` by the names of :data:`PREDICTED` and :data:`ACTUAL`."""

    node: Node
    elements: int = 0  # number of output values
    largest: float = 0.0  # float32 magnitudes without 0
    smallest: float = np.inf  # float32 magnitudes without 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*PREDICTED, *ACTUAL), 0))
    triggers: dict[str, str] = field(default_factory=dict)  # first sample of each count
    inherited: bool = False  # whether an input had Inf or NaN
    stored: bool = False  # whether an output is stored; outputs inside a kernel are not rounded
    masked: int = 0  # number of excluded elements, which are infinite in both runs and become 0 in a softmax

    @property
    def overflows(self) -> bool:
        """Whether values saturate or become Inf or NaN in this node."""
        return bool(self.counts["inf"] + self.counts["nan"] + self.counts["saturated"]) and not self.inherited

    @property
    def trigger(self) -> str:
        """The first sample that overflows, else that is predicted to overflow, else with too small values."""
        order = ("inf", "nan", "saturated", "beyond", "flushed", "below")
        return next((self.triggers[kind] for kind in order if kind in self.triggers), "")


@dataclass
class Values:
    """Both runs of a part: float32 and stored tensors by name, batch, its axis, number of samples, and masks."""

    wide: Mapping[str, Array]
    card: Mapping[str, Array]
    batch: int
    axis: int
    count: int
    half: Collection[str]
    masks: Masks

    def mask(self, name: str) -> Mask | None:
        """Return the mask of a tensor."""
        return self.masks.of(name, self.wide[name]) if name in self.wide else None

    def pair(self, name: str) -> tuple[Array, Array | None]:
        """Return a tensor of both runs, with a row per sample if it has the batch axis of the inputs."""
        both = [found.get(name) for found in (self.wide, self.card if name in self.half else {})]
        rows = [None if a is None else self._rows(a) for a in both]
        assert rows[0] is not None  # noqa: S101 - checked by the caller
        return rows[0], rows[1]

    def _rows(self, array: Array) -> Array:
        if array.ndim <= self.axis or array.shape[self.axis] != self.batch:
            return array.reshape(1, -1)
        return np.moveaxis(array, self.axis, 0)[: self.count].reshape(self.count, -1)

    def broken(self, name: str) -> bool:
        """Return whether a stored tensor has unmasked Inf or NaN."""
        if name not in self.card or self.card[name].dtype.kind != "f":
            return False
        broken = ~np.isfinite(self.card[name])
        mask = self.mask(name) if broken.any() else None
        if mask is not None and self.wide[name].shape == broken.shape:
            broken &= ~mask.covers(self.wide[name], self.card[name])
        return bool(broken.any())


def count(one: NodeRange, values: Values, names: Sequence[str]) -> None:
    """Add the values of a part, whose samples have these names, to the range of a node."""
    for name in one.node.outputs:
        if name in values.wide and values.wide[name].dtype.kind == "f":
            _add(one, *values.pair(name), names, values.mask(name))
    one.inherited = one.inherited or any(values.broken(source) for source in one.node.inputs)


def _add(one: NodeRange, wide: Array, stored: Array | None, names: Sequence[str], mask: Mask | None) -> None:
    """Add a tensor in float32, and as stored if it is."""
    with np.errstate(invalid="ignore"):
        size = np.abs(wide)
        flags = {"beyond": size > LARGEST, "below": (size < SMALLEST) & (size > 0)}
        if stored is not None and stored.shape != wide.shape:
            stored = None
        if stored is not None:
            one.stored = True
            flags |= _actual(wide, stored, flags["beyond"])
        if mask is not None:
            masked = mask.covers(wide, stored)
            one.masked += int(np.count_nonzero(masked))
            size, flags = np.where(masked, 0, size), {kind: flag & ~masked for kind, flag in flags.items()}
    one.elements += wide.size
    finite = size[np.isfinite(size) & (size > 0)]
    if finite.size:
        one.largest, one.smallest = max(one.largest, float(finite.max())), min(one.smallest, float(finite.min()))
    for kind, flag in flags.items():
        one.counts[kind] += int(np.count_nonzero(flag))
        if kind not in one.triggers and flag.any():
            row = int(np.flatnonzero(flag.any(axis=1))[0])
            one.triggers[kind] = names[row] if len(wide) == len(names) else f"{names[0]} ..."


def _actual(wide: Array, stored: Array, beyond: Array) -> dict[str, Array]:
    """Return a boolean mask by each name of :data:`ACTUAL`, for elements whose float32 value is not such."""
    return {
        "inf": np.isinf(stored) & ~np.isinf(wide),
        "nan": np.isnan(stored) & ~np.isnan(wide),
        "saturated": (np.abs(stored) == LARGEST) & beyond,
        "flushed": (stored == 0) & (wide != 0),
    }
