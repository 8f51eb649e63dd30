"""Where float16 is too narrow for a model: predicted from float32 values, and seen in the card's storage.

Predicted: a float32 value whose magnitude is beyond 65504, or below the smallest normal 2 ** -14 and not 0. Actual, in
the faithful float16 form: Inf, NaN, saturated (65504 itself, where float32 is beyond it), or flushed (0 where float32
is not). Counts are of elements over the whole data set.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import Array, ConfigError
from toolkit.fix.guide import LARGEST
from toolkit.fix.records import Feed
from toolkit.fix.samples import PLANS, in_parts
from toolkit.fix.wide import float32_file
from toolkit.graph.inputs import Shapes, batched_specs
from toolkit.graph.trace import Node, Traced, load_named, traced
from utils.progress import progress

if TYPE_CHECKING:
    from typing_extensions import Self

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


def find_overflow(path: Path, parts: Iterable[Feed], batch: int, pass_path: Path | None = None) -> list[NodeRange]:
    """Run a model over a data set in float32 and in the card's float16 storage, and return all nodes in order.

    Args:
        path: the ONNX file.
        parts: what the model is fed over the data set; at most ``batch`` samples at a time are run. Calls may have
            several shapes, for each of which the card has a form of its own.
        batch: samples of a call.
        pass_path: pass file of the float16 form; its ``skip_ops`` stay float32.

    Raises:
        ModelError, InputError, PassError: the model cannot be run on these samples.
        ConfigError: calls have too many shapes.
    """
    with tempfile.TemporaryDirectory(prefix="teco-overflow-") as folder:
        wide = traced(float32_file(path, Path(folder)), "onnx", dtype="float32", batch=batch)
    with wide, _Cards(path, batch, pass_path) as cards:
        specs = batched_specs(load_named(path))
        found = [NodeRange(node) for node in wide.nodes]
        axis = next((spec.batch_axis for spec in specs if spec.batch_axis is not None), 0)
        for part in progress(parts, "batch"):
            names = part.names
            for full in in_parts(part.inputs, specs, batch):
                card = cards.of({spec.name: array.shape for spec, array in zip(wide.inputs, full, strict=True)})
                given, names = names[:batch], names[batch:] or names
                for group in _groups(wide, full):
                    only = None if group is None else {name for n in group for name in (*n.inputs, *n.outputs)}
                    both = wide.run(full, only), card.run(full, only)
                    values = _Values(*both, batch, axis, len(given), card.half)
                    for one in found if group is None else [found[node.index] for node in group]:
                        _count(one, values, given)
    return found


class _Cards:
    """The card's form of a model for each shape of its calls; a context manager."""

    def __init__(self, path: Path, batch: int, pass_path: Path | None) -> None:
        self._path, self._batch, self._pass_path = path, batch, pass_path
        self._open: dict[tuple[tuple[int, ...], ...], Traced] = {}

    def of(self, shapes: Shapes) -> Traced:
        """Return the form for these shapes by input name."""
        key = tuple(shapes.values())
        if key not in self._open:
            if len(self._open) == PLANS:
                raise ConfigError(
                    f"calls have more than {PLANS} shapes, such as {', '.join(map(str, key))}, and the card has a form "
                    "of the model for each; pad them to a few sizes: --dim NAME=64,128"
                )
            how: dict[str, Any] = {"batch": self._batch, "pass_path": self._pass_path, "shapes": shapes}
            self._open[key] = traced(self._path, "sdaa", dtype="float16", **how)
        return self._open[key]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for card in self._open.values():
            card.close()


def _groups(wide: Traced, inputs: list[Array]) -> Iterator[list[Node] | None]:
    groups = wide.groups(inputs)
    yield from [None] if len(groups) < 2 else groups


@dataclass
class _Values:
    """Both runs of a part: float32 and stored tensors by name, batch, its axis, and how many samples of it count."""

    wide: Mapping[str, Array]
    card: Mapping[str, Array]
    batch: int
    axis: int
    count: int
    half: Collection[str]

    def pair(self, name: str) -> tuple[Array, Array | None]:
        """Return a tensor of both runs, samples in rows where it has the batch at the inputs' place."""
        both = [found.get(name) for found in (self.wide, self.card if name in self.half else {})]
        rows = [None if a is None else self._rows(a) for a in both]
        assert rows[0] is not None  # noqa: S101 - the caller has looked
        return rows[0], rows[1]

    def _rows(self, array: Array) -> Array:
        if array.ndim <= self.axis or array.shape[self.axis] != self.batch:
            return array.reshape(1, -1)
        return np.moveaxis(array, self.axis, 0)[: self.count].reshape(self.count, -1)

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
