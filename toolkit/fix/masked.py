"""Exclusion of masked elements inside a graph, by additional nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit.graph.masks import FAR, Mask, Sink, masks_of

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_BOOL = 9
"""``onnx.TensorProto`` element type."""


class MaskedElements:
    """Nodes that exclude the elements of :class:`toolkit.graph.masks.Masks` within a float32 graph.

    ``model``: the graph; constants are added to it. ``floats``: names of its float32 tensors. ``nodes``: to be appended
    to the graph; every method may add more.
    """

    def __init__(self, model: ModelProto, floats: Collection[str]) -> None:
        self._graph, self._floats = model.graph, floats
        self._constants = {tensor.name for tensor in self._graph.initializer}
        self.nodes: list[NodeProto] = []
        written = {name for node in self._graph.node for name in node.output}
        has_where = any(one.version >= 9 for one in model.opset_import if one.domain in ("", "ai.onnx"))
        known = masks_of(model).found if has_where else {}
        self._found = {name: mask for name, mask in known.items() if name in written and self._can_tell(name, mask)}
        alive = {sink: self._alive(sink) for mask in self._found.values() for sink in mask.sinks}
        self._far = {
            name: self._beyond(name, mask, [alive[sink] for sink in mask.sinks]) for name, mask in self._found.items()
        }

    def without(self, name: str) -> str:
        """Return a tensor with 0 in place of masked elements, or the tensor itself without a mask."""
        return self._add("Where", self._far[name], self._constant(0.0), name) if name in self._far else name

    def pair(self, name: str, other: str) -> tuple[str, str]:
        """Return two tensors with 0 in place of elements that are masked in both."""
        if name not in self._far:
            return name, other
        mask, zero = self._found[name], self._constant(0.0)
        near = self._add("Less", self._signed(other, mask.sign), self._constant(mask.least / 2))
        both = self._add("And", self._far[name], self._add("Not", near))
        return self._add("Where", both, zero, name), self._add("Where", both, zero, other)

    def _can_tell(self, name: str, mask: Mask) -> bool:
        """Return whether the bound of a mask can be computed by nodes."""
        reads = {name, *(sink.read for sink in mask.sinks)}
        return reads.issubset(self._floats) and all(sink.kind != "row" for sink in mask.sinks)

    def _alive(self, sink: Sink) -> str:
        """Return the scalar of the largest magnitude that affects a sink's result; "" without such elements."""
        if sink.kind == "bool" or sink.written not in self._floats:
            return ""
        values = self._signed(sink.read if sink.kind == "zero" else sink.written, sink.sign)
        if sink.kind == "zero":
            values = self._add("Where", self._add("Cast", sink.written, to=_BOOL), values, self._constant(0.0))
        flat = self._add("Reshape", values, self._constant(-1, np.int64, 1))
        return self._add("ReduceMax", self._add("Concat", flat, self._constant(0.0, size=1), axis=0), keepdims=0)

    def _beyond(self, name: str, mask: Mask, alive: Sequence[str]) -> str:
        """Return the boolean tensor of the masked elements."""
        scale = self._constant(min(2 * mask.least / FAR, 1e38))
        bounds = [self._add("Mul", one, scale) for one in alive if one]
        bound = self._add("Max", self._constant(mask.least), *bounds)
        return self._add("Not", self._add("Less", self._signed(name, mask.sign), bound))

    def _signed(self, name: str, sign: int) -> str:
        return self._add("Mul", name, self._constant(float(sign))) if sign else self._add("Abs", name)

    def _constant(self, value: float, dtype: Any = np.float32, size: int = 0) -> str:
        """Return the name of a constant: a scalar, or an array of ``size`` elements."""
        from onnx import numpy_helper

        name = f"@masked:{value!r}:{size}"
        if name not in self._constants:
            self._constants.add(name)
            array = np.full((size,) if size else (), value, dtype)
            self._graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def _add(self, op: str, *inputs: str, **how: Any) -> str:
        from onnx import helper

        name = f"@masked:{op}:{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name, **how))
        return name
