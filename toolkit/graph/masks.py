"""Values that stand for infinity and end in nothing: what an attention mask adds to the scores before a softmax.

A mask of -3.4e38 is minus infinity in float16. That is no fault where the only way from it to any output leads through
operators that make the same of both, such as a softmax, which makes 0 of them. Whether it does is seen in the
baseline's values: in a row that is masked as a whole a softmax makes no 0, and then the mask is at fault.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import Array
from utils.text import plural

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto
    from typing_extensions import Self

FAR = 4096.0
"""Magnitude from which a value counts as infinite to a softmax: exp(-4096) is 0, with what is added to a mask, too."""

_TOP = 1e38
"""Magnitude that is infinite whatever it is multiplied by."""

_ROOTS = 1024.0
"""Largest square root (of a head's width, say) that a score is divided by."""

_FLOATS, _BOOL = frozenset((1, 10, 11, 16)), 9
"""``onnx.TensorProto`` element types."""

_FREE = frozenset(
    ("Equal", "Greater", "GreaterOrEqual", "IsNaN", "Less", "LessOrEqual", "Shape", "Size")
)  # what they write is compared itself, and has nothing infinite

_ZERO = frozenset(("Exp", "Sigmoid", "Softmax"))
"""They make 0 of minus infinity, in the same place."""

_CUT = frozenset(("ArgMax", "Clip", "GlobalMaxPool", "Max", "MaxPool", "ReduceMax", "Relu", "TopK"))
"""They take another element in place of minus infinity, where there is one."""

_KEEP: dict[str, Collection[int] | None] = {
    "Add": None,
    "Concat": None,
    "Min": None,
    "Sum": None,
    **dict.fromkeys(("Cast", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "GatherElements"), (0,)),
    **dict.fromkeys(("GatherND", "Identity", "Reshape", "ReverseSequence", "Slice", "Split", "Squeeze"), (0,)),
    **dict.fromkeys(("Sub", "Tile", "Transpose", "Trilu", "Unsqueeze"), (0,)),
    **dict.fromkeys(("Pad", "ScatterElements", "ScatterND"), (0, 2)),
    "Where": (1, 2),
}
"""Operators that leave an infinite value infinite, of the same sign, and at which inputs (``None``: all)."""

_TURN = {"Neg": 0, "Sub": 1}
"""Operators that change the sign, and at which input."""


@dataclass(frozen=True, slots=True)
class Sink:
    """Where infinite values end.

    Attributes:
        kind: ``zero``: what is written is 0 in the same place; ``none``: nothing infinite is written; ``row``: of
            every row that is read, something is finite.
        read, written: tensors. sign: of the infinite values.
    """

    kind: str
    read: str
    written: str
    sign: int

    def takes(self, values: Mapping[str, Array]) -> bool | None:
        """Say whether the infinite values of a run end here; ``None`` where the run does not have the tensors."""
        if self.read not in values or self.written not in values:
            return None
        far = self.sign * values[self.read] >= FAR
        if self.kind == "row":
            return not far.all(axis=-1).any() if far.ndim else not far
        written = values[self.written]
        if self.kind == "none":
            return written.dtype.kind != "f" or not (self.sign * written >= FAR).any()
        return written.shape == far.shape and not written[far].any()


@dataclass(frozen=True, slots=True)
class Mask:
    """What is known of a tensor whose infinite values end in sinks, all of them.

    Attributes:
        sign: of these values. least: magnitude from which they are infinite to every sink.
    """

    sign: int
    least: float
    sinks: frozenset[Sink]

    def covers(self, reference: Array, value: Array | None = None) -> Array:
        """Return which elements are infinite to the sinks, in the reference and in the value beside it."""
        # A float32 scalar: the bound may be beyond what a float16 array compares with.
        far = np.asarray(self.sign * reference >= np.float32(self.least))
        return far if value is None else far & (self.sign * value >= np.float32(self.least / 2))


_ANY = Mask(0, 0.0, frozenset())
"""Of a tensor whose readers do not care for infinite values."""


class Masks:
    """The tensors of a model whose infinite values all end in sinks, and which sinks do take them.

    Args:
        found: by tensor name.
    """

    def __init__(self, found: Mapping[str, Mask]) -> None:
        self.found = found
        self.sinks = {sink for mask in found.values() for sink in mask.sinks}
        self._taken: dict[Sink, bool] = {}

    def of(self, name: str, reference: Array) -> Mask | None:
        """Return what is known of a tensor, where its value in the reference has infinite elements."""
        mask = self.found.get(name)
        return mask if mask and reference.dtype.kind == "f" and mask.covers(reference).any() else None

    def needs(self, written: Collection[str]) -> set[str]:
        """Return what sinks read that write these tensors."""
        return {sink.read for sink in self.sinks if sink.written in written}

    def see(self, values: Mapping[str, Array]) -> None:
        """Look at the sinks of which a run of the reference has the tensors; one run that speaks against it counts."""
        for sink in self.sinks:
            taken = sink.takes(values)
            if taken is not None:
                self._taken[sink] = taken and self._taken.get(sink, True)

    def harmless(self, name: str) -> bool:
        """Say whether every sink of a tensor was seen, and took all there was."""
        return name in self.found and all(self._taken.get(sink, False) for sink in self.found[name].sinks)

    def stored(self) -> dict[str, Any]:
        """Return what a dump keeps of it, for JSON."""
        return {
            name: [mask.sign, mask.least, [[sink.kind, sink.read, sink.written, sink.sign] for sink in mask.sinks]]
            for name, mask in self.found.items()
        }

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Self:
        """Return what :meth:`stored` returned.

        Raises:
            TypeError, ValueError, AttributeError: it is something else.
        """
        return cls(
            {
                name: Mask(int(sign), float(least), frozenset(Sink(*sink) for sink in sinks))
                for name, (sign, least, sinks) in stored.items()
            }
        )


def masked_note(nodes: Sequence[str], count: int) -> str:
    """Say how many elements of these nodes, in graph order, a tool has left out."""
    where = f"{plural(len(nodes), 'node')} from {nodes[0]} on"
    return f"left out: {plural(count, 'masked element')} of {where}, of which a softmax (or a maximum) makes nothing"


def masks_of(model: ModelProto) -> Masks:
    """Find the tensors of a model's main graph, inputs and initializers too, whose infinite values end in sinks."""
    return Masks(_Finder(model).found)


class _Finder:
    """Goes from the last node to the first: a tensor is a mask where all its readers take it, or write one."""

    def __init__(self, model: ModelProto) -> None:
        from engine.onnx import used_names

        graph = model.graph
        self._constants = _scales(model)
        self._writers = {name: node.op_type for node in graph.node for name in node.output}
        self._readers: dict[str, list[tuple[NodeProto, int]]] = {}
        self._closed = {info.name for info in graph.output}
        for node in graph.node:
            for position, name in enumerate(node.input):
                self._readers.setdefault(name, []).append((node, position))
            self._closed.update(set(used_names(node)).difference(node.input))
        self._known: dict[str, Mask] = {}
        names = [name for node in reversed(graph.node) for name in node.output if name]
        names += [named.name for named in (*graph.input, *graph.initializer)]
        for name in names:
            mask = self._mask(name)
            if mask is not None:
                self._known[name] = mask
        self.found = {name: mask for name, mask in self._known.items() if mask.sinks}

    def _mask(self, name: str) -> Mask | None:
        if name in self._closed:
            return None
        return _merged([self._through(*reader) for reader in self._readers.get(name, ())])

    def _through(self, node: NodeProto, position: int) -> Mask | None:
        """Return what a node makes of infinite values at one of its inputs."""
        op, name, first = node.op_type, node.input[position], node.output[0]
        if node.domain not in ("", "ai.onnx"):
            return None
        if op in _FREE or (op == "Cast" and _to(node) == _BOOL):
            return _ANY
        if op in _ZERO:
            return Mask(-1, FAR, frozenset([Sink("zero", name, first, -1)]))
        if op == "Attention":
            return Mask(-1, FAR, frozenset([Sink("row", name, first, -1)])) if position == 3 else None
        if op in _CUT:
            passed = self._known.get(first) if op in ("Max", "Clip") else None
            if passed and passed.sign < 0:
                return passed
            data = position == 0 or op == "Max"
            return Mask(-1, FAR, frozenset([Sink("none", name, first, -1)])) if data and _largest(node) else None
        factor = self._factor(node, position)
        if factor is None:
            return None
        mask = _merged([self._known.get(written) for written in node.output if written])
        return mask and _scaled(mask, factor)

    def _factor(self, node: NodeProto, position: int) -> float | None:
        """Return by what an infinite value is multiplied, at least; ``None`` where it may become anything."""
        op = node.op_type
        if op in _TURN and position == _TURN[op]:
            return -1.0
        if op in _KEEP:
            places = _KEEP[op]
            kept = (places is None or position in places) and (op != "Cast" or _to(node) in _FLOATS)
            return 1.0 if kept and not _adds(node) else None
        if op == "Mul":
            return self._constants.get(node.input[1 - position], (None, None))[0]
        if op == "Div" and position == 0:
            by = node.input[1]
            largest = _ROOTS if self._writers.get(by) == "Sqrt" else self._constants.get(by, (None, None))[1]
            return 1 / largest if largest else None
        return None


def _merged(masks: Sequence[Mask | None]) -> Mask | None:
    """Return what holds for all readers; ``None`` where one takes no infinite values, or those of another sign."""
    known = [mask for mask in masks if mask is not None]
    signs = {mask.sign for mask in known if mask.sign}
    if len(known) < len(masks) or not known or len(signs) > 1:
        return None
    sinks = frozenset(sink for mask in known for sink in mask.sinks)
    return Mask(next(iter(signs), 0), max(mask.least for mask in known), sinks)


def _scaled(mask: Mask, factor: float) -> Mask:
    if not mask.sinks:
        return mask
    return replace(
        mask, sign=mask.sign if factor > 0 else -mask.sign, least=min(_TOP, max(FAR, mask.least / abs(factor)))
    )


def _scales(model: ModelProto) -> dict[str, tuple[float, float]]:
    """Return the smallest and the largest magnitude, with the sign, of constants that have one sign and no 0."""
    from onnx import TensorProto, numpy_helper

    graph = model.graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    tensors |= {node.output[0]: a.t for node in graph.node if node.op_type == "Constant" for a in node.attribute}
    found: dict[str, tuple[float, float]] = {}
    for name, tensor in tensors.items():
        if tensor.data_type not in _FLOATS or tensor.data_location == TensorProto.EXTERNAL:
            continue
        values = numpy_helper.to_array(tensor).astype(np.float64)
        if values.size and np.isfinite(values).all() and ((values > 0).all() or (values < 0).all()):
            sign = float(np.sign(values.flat[0]))
            found[name] = sign * float(np.abs(values).min()), sign * float(np.abs(values).max())
    return found


def _to(node: NodeProto) -> int:
    return next((int(a.i) for a in node.attribute if a.name == "to"), 0)


def _largest(node: NodeProto) -> bool:
    """Say whether a node takes the largest elements."""
    return not any(a.name == "largest" and not a.i for a in node.attribute)


def _adds(node: NodeProto) -> bool:
    """Say whether a scatter does more than put elements in place."""
    return any(a.name == "reduction" and a.s not in (b"", b"none") for a in node.attribute)
