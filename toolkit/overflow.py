"""Where float16 is too narrow for a model: predicted from float32 values, and seen in the card's storage.

Predicted: a float32 value whose magnitude is beyond 65504, or below the smallest normal 2 ** -14 and not 0. Actual, in
the faithful float16 form: Inf, NaN, saturated (65504 itself, where float32 is beyond it), or flushed (0 where float32
is not). Counts are of elements over the whole data set.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np

from engine.base import Array
from toolkit.fix.guide import LARGEST
from toolkit.fix.samples import Part, filled
from toolkit.fix.wide import float32_file
from toolkit.intermediates import Node, Traced, traced
from utils.progress import progress

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
        triggers: by a name of these, the first sample with such a value.
        inherited: whether Inf or NaN was in what it read.
        stored: whether its outputs are stored at all: what is fused away is never rounded, and counts nothing.
    """

    node: Node
    elements: int = 0
    largest: float = 0.0
    smallest: float = np.inf
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*PREDICTED, *ACTUAL), 0))
    triggers: dict[str, str] = field(default_factory=dict)
    inherited: bool = False
    stored: bool = False

    @property
    def overflows(self) -> bool:
        """Whether Inf or NaN begins here, or values saturate here."""
        return bool(self.counts["inf"] + self.counts["nan"] + self.counts["saturated"]) and not self.inherited

    @property
    def trigger(self) -> str:
        """The first sample that overflows actually, or else is predicted to, or else has values that are too small."""
        order = ("inf", "nan", "saturated", "beyond", "flushed", "below")
        return next((self.triggers[kind] for kind in order if kind in self.triggers), "")


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
    with tempfile.TemporaryDirectory(prefix="teco-overflow-") as folder:
        wide = traced(float32_file(path, Path(folder)), "onnx", dtype="float32", batch=batch)
    parts = iter(parts)
    first = next(parts)
    full = filled(first.inputs, wide.inputs, batch)
    shapes = {spec.name: array.shape for spec, array in zip(wide.inputs, full, strict=True)}
    card = traced(path, "sdaa", dtype="float16", batch=batch, pass_path=pass_path, shapes=shapes)
    with wide, card:
        found = [NodeRange(node) for node in wide.nodes]
        for part in progress(chain([first], parts), "batch"):
            full = filled(part.inputs, wide.inputs, batch)
            for group in _groups(wide, full):
                names = None if group is None else {name for node in group for name in (*node.inputs, *node.outputs)}
                values = _Values(wide.run(full, names), card.run(full, names), batch, len(part.names), card.half)
                for one in found if group is None else [found[node.index] for node in group]:
                    _count(one, values, part.names)
    return found


def _groups(wide: Traced, inputs: list[Array]) -> Iterator[list[Node] | None]:
    groups = wide.groups(inputs)
    yield from [None] if len(groups) < 2 else groups


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
            if kind not in one.triggers and flag.any():
                row = int(np.flatnonzero(flag.any(axis=1))[0])
                one.triggers[kind] = names[row] if len(wide) == len(names) else f"{names[0]} ..."
    one.inherited = one.inherited or any(values.broken(source) for source in one.node.inputs)
