"""Constants that become infinite, 0 or subnormal in float16."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import Array
from tecoinfer_modelzoo.formatting import plural
from toolkit.fix.guide import LARGEST
from toolkit.graph.masks import masks_of

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import GraphProto, ModelProto, NodeProto

    from engine.onnx import Loss

_FLOAT = 1  # ``onnx.TensorProto.FLOAT``


@dataclass(frozen=True, slots=True)
class WeightRange:
    """Range of a constant in float16."""

    name: str  # of the constant
    reader: str  # name of the first node that reads it
    readers: int  # number of readers
    loss: Loss  # number of elements that become infinite, 0 or subnormal
    largest: float  # magnitudes without 0
    smallest: float  # magnitudes without 0
    float32: bool  # whether every reader takes it in float32
    mask: bool  # whether it is a mask before a softmax

    @property
    def overflows(self) -> bool:
        """Whether it becomes infinite in float16 storage and is not a mask."""
        return bool(self.loss.infinite) and not self.float32 and not self.mask

    @property
    def affected(self) -> bool:
        """Whether it overflows, or becomes 0 on a device that flushes subnormals."""
        return self.overflows or (self.loss.vanishes and not self.float32)

    def row(self) -> dict[str, Any]:
        """Return the row of the report."""
        tiny = self.loss.zero + self.loss.subnormal
        stored = not self.float32
        return {
            "name": self.name,
            "op": "constant",
            "module": "",
            "largest": self.largest,
            "smallest": self.smallest,
            "beyond": self.loss.infinite,
            "below": tiny,
            "inf": self.loss.infinite * stored,
            "nan": 0,
            "saturated": 0,
            "flushed": self.loss.zero * stored,
            "inherited": "",
            "stored": "yes" if stored else "",
            "elements": self.loss.elements,
            "masked": 0,
            "trigger": f"read by {self.reader}",
            "triggers": {},
            "share": self.loss.share,
            "readers": self.readers,
            "mask": "yes" if self.mask else "",
            "told": self.affected,
        }


def find_weights(model: ModelProto, pass_path: Path | None = None) -> list[WeightRange]:
    """Return the float constants that lose values in float16 (the form after ``pass_path``), in reading order."""
    from onnx import numpy_helper

    from engine.onnx import constant_tensors, infer_shapes, loss
    from engine.passes import PassOptions
    from engine.sdaa import inlined, keeping_exact, widen

    options = PassOptions.load(pass_path)
    wide = infer_shapes(widen(inlined(model)))
    graph = wide.graph
    reading = _readings(graph, keeping_exact(graph, options.keeps_float32))
    masks = masks_of(wide).found
    found = []
    for name, tensor in constant_tensors(graph).items():
        if tensor.data_type != _FLOAT or name not in reading:
            continue
        values = numpy_helper.to_array(tensor)
        lost = loss(values)
        if lost.share:
            mask = name in masks and bool((masks[name].covers(values) | (np.abs(values) <= LARGEST)).all())
            found.append(_range(name, values, lost, reading[name], mask))
    order = {name: place for place, name in enumerate(reading)}
    return sorted(found, key=lambda one: order[one.name])


def weight_notes(found: Sequence[WeightRange]) -> list[str]:
    """Return notes on constants that vanish, and on those that need float32."""
    notes = []
    vanishing = [one for one in found if one.loss.vanishes and not one.float32]
    if vanishing:
        worst = max(vanishing, key=lambda one: one.loss.share)
        notes.append(
            f"{plural(len(vanishing), 'weight')} mostly below 2^-14, which become 0 on a device that flushes "
            f"subnormals; the largest share in {worst.name}, read by {worst.reader}: {worst.loss.share:.2%}"
        )
    exact = [one for one in found if one.loss.infinite and one.float32]
    if exact:
        notes.append(
            f"{plural(len(exact), 'weight')} beyond 65504 but read in float32, such as {exact[0].name}, read by "
            f"{exact[0].reader}"
        )
    return notes


def weight_lead(found: Sequence[WeightRange]) -> str:
    """Return the part of the summary on infinite weights, or ""."""
    worst = [one for one in found if one.overflows]
    if not worst:
        return ""
    one = worst[0]
    return (
        f"; {plural(len(worst), 'weight')} infinite in float16, the first is {one.name}, read by {one.reader} "
        f"({one.loss.infinite} of {one.loss.elements} elements)"
    )


def _range(name: str, values: Array, lost: Loss, readers: Mapping[str, bool], mask: bool) -> WeightRange:
    size = np.abs(values[np.isfinite(values) & (values != 0)].astype(np.float64))
    return WeightRange(
        name,
        next(iter(readers)),
        len(readers),
        lost,
        float(size.max(initial=0.0)) if not np.isinf(values).any() else float("inf"),
        float(size.min(initial=np.inf)) if size.size else 0.0,
        all(readers.values()),
        mask,
    )


def _readings(graph: GraphProto, keep: Callable[[NodeProto], bool]) -> dict[str, dict[str, bool]]:
    """Return for each tensor its readers, and whether each reads it in float32."""
    from engine.onnx import used_names
    from engine.sdaa import float32_inputs, scalar_constants

    scalars = scalar_constants(graph)
    found: dict[str, dict[str, bool]] = {}
    for i, node in enumerate(graph.node):
        exact = {node.input[place] for place in float32_inputs(node, scalars) if place < len(node.input)}
        kept = keep(node)
        for name in used_names(node):
            found.setdefault(name, {})[node.name or f"{node.op_type}_{i}"] = kept or name in exact
    return found
