"""Where float16 is too narrow for a model: predicted from float32 values, and seen in the card's storage.

Predicted: a float32 value whose magnitude is beyond 65504, or below the smallest normal 2 ** -14 and not 0. Actual, in
the faithful float16 form: Inf, NaN, saturated (65504 itself, where float32 is beyond it), or flushed (0 where float32
is not). Counts are of elements over the whole data set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np

from engine.base import Array
from toolkit.fix.samples import Part
from toolkit.intermediates import Node, Traced, traced

LARGEST = 65504.0
"""Largest float16."""
SMALLEST = 2.0**-14
"""Smallest normal float16."""

PREDICTED = ("beyond", "below")
ACTUAL = ("inf", "nan", "saturated", "flushed")


@dataclass
class NodeRange:
    """What a node's outputs do over a data set.

    Attributes:
        node: the node. elements: values it wrote. largest, smallest: float32 magnitudes seen, 0 left out.
        counts: by a name of :data:`PREDICTED` or :data:`ACTUAL`.
        trigger: the first sample that overflows actually, or else is predicted to; "" where none does.
        inherited: whether Inf or NaN was in what it read, wherever it wrote some.
        stored: whether its outputs are stored at all: what is fused away is never rounded, and counts nothing.
    """

    node: Node
    elements: int = 0
    largest: float = 0.0
    smallest: float = np.inf
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*PREDICTED, *ACTUAL), 0))
    trigger: str = ""
    inherited: bool = False
    stored: bool = False

    @property
    def overflows(self) -> bool:
        """Whether Inf or NaN begins here, or values saturate here."""
        return bool(self.counts["inf"] + self.counts["nan"] + self.counts["saturated"]) and not self.inherited

    @property
    def severity(self) -> tuple[int, int, float]:
        """What to look at first: where overflow begins, where values go beyond, where most are flushed."""
        flushed = self.counts["flushed"] / max(self.elements, 1)
        return int(self.overflows), int(self.counts["beyond"] > 0), flushed


def find_overflow(path: Path, parts: Iterable[Part], batch: int, pass_path: Path | None = None) -> list[NodeRange]:
    """Run a model over a data set in float32 and in the card's float16 storage, and return all nodes in order.

    Args:
        path: the ONNX file.
        parts: the data set, at most ``batch`` samples at a time.
        batch: samples of a call.
        pass_path: pass file of the float16 form; its ``skip_ops`` stay float32.

    Raises:
        ModelError, InputError, PassError: the model cannot be run on these samples.
    """
    wide = traced(path, "onnx", dtype="float32", batch=batch)
    parts = iter(parts)
    first = next(parts)
    shapes = {spec.name: (batch, *a.shape[1:]) for spec, a in zip(wide.inputs, first.inputs, strict=True)}
    card = traced(path, "sdaa", dtype="float16", batch=batch, pass_path=pass_path, shapes=shapes)
    with wide, card:
        found = [NodeRange(node) for node in wide.nodes]
        for part in chain([first], parts):
            full = [_padded(array, batch) for array in part.inputs]
            for group in _groups(wide, full):
                names = None if group is None else {name for node in group for name in (*node.inputs, *node.outputs)}
                values = _Values(wide.run(full, names), card.run(full, names), batch, len(part.names), card.half)
                for one in found if group is None else [found[node.index] for node in group]:
                    _count(one, values, part.names)
    return found


def _groups(wide: Traced, inputs: list[Array]) -> Iterator[list[Node] | None]:
    groups = wide.groups(inputs)
    yield from [None] if len(groups) < 2 else groups


def _padded(array: Array, batch: int) -> Array:
    """Return a short last part with its last sample repeated: the card computes in one fixed batch."""
    short = batch - len(array)
    return array if short <= 0 else np.concatenate([array, np.repeat(array[-1:], short, axis=0)])


@dataclass
class _Values:
    """Both runs of a part: float32 and stored tensors by name, batch and how many samples of it count."""

    wide: Mapping[str, Array]
    card: Mapping[str, Array]
    batch: int
    count: int
    half: Collection[str]

    def pair(self, name: str) -> tuple[Array, Array | None]:
        """Return a tensor of both runs, samples in rows where it has the batch first."""
        both = [found.get(name) for found in (self.wide, self.card if name in self.half else {})]
        rows = [None if a is None else self._rows(a) for a in both]
        assert rows[0] is not None  # noqa: S101 - the caller has looked
        return rows[0], rows[1]

    def _rows(self, array: Array) -> Array:
        batched = array.ndim > 0 and len(array) == self.batch
        return array[: self.count].reshape(self.count, -1) if batched else array.reshape(1, -1)

    def broken(self, name: str) -> bool:
        """Say whether a stored tensor holds Inf or NaN."""
        return name in self.card and self.card[name].dtype.kind == "f" and not np.isfinite(self.card[name]).all()


def _count(one: NodeRange, values: _Values, names: list[str]) -> None:
    for name in one.node.outputs:
        if name not in values.wide or values.wide[name].dtype.kind != "f":
            continue
        wide, stored = values.pair(name)
        with np.errstate(invalid="ignore"):
            size = np.abs(wide)
            flags = {"beyond": size > LARGEST, "below": (size < SMALLEST) & (size > 0)}
            if stored is not None and stored.shape == wide.shape:
                one.stored = True
                flags["inf"], flags["nan"] = np.isinf(stored) & ~np.isinf(wide), np.isnan(stored) & ~np.isnan(wide)
                flags["saturated"] = (np.abs(stored) == LARGEST) & flags["beyond"]
                flags["flushed"] = (stored == 0) & (wide != 0)
        one.elements += wide.size
        finite = size[np.isfinite(size) & (size > 0)]
        if finite.size:
            one.largest, one.smallest = max(one.largest, float(finite.max())), min(one.smallest, float(finite.min()))
        for kind, flag in flags.items():
            one.counts[kind] += int(np.count_nonzero(flag))
        bad = [flags[kind] for kind in ("inf", "nan", "saturated", "beyond") if kind in flags and flags[kind].any()]
        if bad and not one.trigger:
            row = int(np.flatnonzero(bad[0].any(axis=1))[0])
            one.trigger = names[row] if len(wide) == len(names) else f"{names[0]} ..."
        if one.counts["inf"] + one.counts["nan"] and any(values.broken(source) for source in one.node.inputs):
            one.inherited = True
