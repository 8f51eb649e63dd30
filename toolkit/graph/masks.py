"""Large negative values that an attention mask adds to the scores before a softmax.

A mask of -3.4e38 becomes minus infinity in float16. This is not an error if every path to an output goes through a
sink: an operator that gives the same result for both, such as a softmax, which gives 0. The bound is taken from the
baseline's values: elements at least twice as far out as any element that affects a result are excluded. In a fully
masked row -3.4e38 itself affects the result; nothing is excluded then, and the mask is reported as an error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import Array
from tecoinfer_modelzoo.formatting import plural
from toolkit.graph.nodes import grouped

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto
    from typing_extensions import Self

    from toolkit.graph.trace import Traced

FAR = 4096.0
"""Smallest magnitude that a softmax treats as infinite: exp(-4096) is 0, also after adding a score to the mask."""

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_TOP = 1e38  # magnitude that is treated as infinite after any multiplication
_ROOTS = 1024.0  # largest square root by which a score is divided, such as that of a head's width
_FLOATS, _BOOL = frozenset((1, 10, 11, 16)), 9  # ``onnx.TensorProto`` element types

_FREE = frozenset(("IsNaN", "Shape", "Size"))
"""Operators whose result does not depend on infinite values of either sign."""

_COMPARED = frozenset(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"))
"""Operators with boolean results, which are compared themselves."""

_ZERO = frozenset(("Exp", "Sigmoid", "Softmax"))  # operators that map minus infinity to 0, elementwise

_CUT = frozenset(("ArgMax", "Max", "ReduceMax", "TopK"))
"""Operators that select another element than minus infinity, if there is one."""

_KEEP: dict[str, Collection[int] | None] = {
    "Add": None,
    "Concat": None,
    "Min": None,
    "Sum": None,
    **dict.fromkeys(("Cast", "Clip", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "GatherElements"), (0,)),
    **dict.fromkeys(("GatherND", "Identity", "Reshape", "ReverseSequence", "Slice", "Split", "Squeeze"), (0,)),
    **dict.fromkeys(("Sub", "Tile", "Transpose", "Trilu", "Unsqueeze"), (0,)),
    **dict.fromkeys(("Pad", "ScatterElements", "ScatterND"), (0, 2)),
    "Where": (1, 2),
}
"""Operators that keep an infinite value and its sign -> indices of these inputs (``None``: all)."""

_TURN = {"Neg": 0, "Sub": 1}  # operators that change the sign -> index of that input


@dataclass(frozen=True, slots=True)
class Sink:
    """Operator whose result does not depend on infinite inputs.

    ``zero``: the output is 0 at the same index. ``most``: it is the largest of several inputs. ``row``: only the
    largest element of each row matters. ``bool``: it is a comparison.
    """

    kind: str
    read: str  # name of the input tensor
    written: str  # name of the output tensor
    sign: int  # of the infinite values; 0: either

    def alive(self, values: Mapping[str, Array]) -> float | None:
        """Return the largest magnitude that affects the result, or 0; ``None`` if ``values`` lacks the tensors."""
        if self.read not in values or self.written not in values:
            return None
        read, written = values[self.read], values[self.written]
        if self.kind == "zero":
            counts = self.sign * read[written != 0] if read.shape == written.shape else np.array([np.inf])
        elif self.kind == "row":
            counts = np.min(self.sign * read, axis=-1, initial=np.inf)
        else:
            counts = self.sign * written if written.dtype.kind == "f" else np.zeros(0)
        return max(0.0, float(np.fmax.reduce(counts, axis=None))) if counts.size else 0.0


@dataclass(frozen=True, slots=True)
class Mask:
    """Tensor whose infinite values only reach sinks."""

    sign: int  # of the infinite values; 0: either
    least: float  # magnitude that every sink treats as infinite
    sinks: frozenset[Sink]

    def covers(self, reference: Array, value: Array | None = None) -> Array:
        """Return the boolean mask of the elements that the sinks treat as infinite, in reference and value."""
        sign = self.sign or np.sign(reference)
        far = np.asarray(sign * reference >= _bound(self.least))
        return far if value is None else far & (sign * value >= _bound(self.least / 2))


def _bound(size: float) -> np.float32:
    """Return a bound as float32, since a float16 array cannot be compared with a larger Python number."""
    return np.float32(size if size <= _FLOAT32_MAX else np.inf)


_ANY = Mask(0, 0.0, frozenset())  # mask of a tensor whose readers do not depend on infinite values


class Masks:
    """The masks of a model by tensor name (only sinks are reached), and the values seen at the sinks."""

    def __init__(self, found: Mapping[str, Mask]) -> None:
        self.found = found
        self.sinks = {sink for mask in found.values() for sink in mask.sinks}
        self.written = {sink.written for sink in self.sinks}
        self._alive: dict[Sink, float] = {}

    def needs(self, written: Collection[str]) -> set[str]:
        """Return the inputs of the sinks that write these tensors."""
        return {sink.read for sink in self.sinks if sink.written in written}

    def forget(self) -> None:
        """Discard the seen values before another run."""
        self._alive.clear()

    def see(self, values: Mapping[str, Array]) -> None:
        """Record the values at the sinks in a run of the reference."""
        found = {sink: sink.alive(values) for sink in self.sinks}
        self._alive |= {sink: alive for sink, alive in found.items() if alive is not None}

    def of(self, name: str, reference: Array) -> Mask | None:
        """Return a tensor's mask, given its value in the seen run; ``None`` if nothing is masked or a sink unseen."""
        mask = self.found.get(name)
        if mask is None or reference.dtype.kind != "f" or not self._alive.keys() >= mask.sinks:
            return None
        farther = max(1.0, 2 * max(self._alive[sink] for sink in mask.sinks) / FAR)
        mask = replace(mask, least=mask.least * farther)
        return mask if mask.covers(reference).any() else None

    def stored(self) -> dict[str, Any]:
        """Return the masks as JSON data for a dump."""
        return {
            name: [mask.sign, mask.least, [[sink.kind, sink.read, sink.written, sink.sign] for sink in mask.sinks]]
            for name, mask in self.found.items()
        }

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Self:
        """Return the masks from :meth:`stored`; raise TypeError, ValueError or AttributeError for invalid data."""
        return cls(
            {
                name: Mask(int(sign), float(least), frozenset(Sink(*sink) for sink in sinks))
                for name, (sign, least, sinks) in stored.items()
            }
        )


def see_sinks(masks: Masks, reference: Traced, inputs: Sequence[Array], limit: int) -> None:
    """Run the reference for its sinks only, with at most about ``limit`` bytes of values at once."""
    nodes = [node for node in reference.nodes if masks.written.intersection(node.outputs)]
    for group in grouped(nodes, reference.sizes(inputs), max(1, limit)):
        written = {name for node in group for name in node.outputs if name}
        masks.see(reference.run(inputs, written | masks.needs(written)))


def masked_note(nodes: Sequence[str], count: int) -> str:
    """Return the note on the excluded elements of these nodes, which are in graph order."""
    where = f"{plural(len(nodes), 'node')} from {nodes[0]} on"
    return f"excluded: {plural(count, 'masked element')} of {where}, which a softmax or a maximum ignores"


def masks_of(model: ModelProto) -> Masks:
    """Find the masked tensors of a model's main graph, including inputs and initializers."""
    return Masks(_Finder(model).found)


class _Finder:
    """Search from the last node to the first: a tensor is masked if all readers are sinks or write masked tensors."""

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
        """Return the mask that a node implies for one of its inputs, or ``None``."""
        op, name, first = node.op_type, node.input[position], node.output[0]
        if node.domain not in ("", "ai.onnx"):
            return None
        if op in _FREE or (op == "Cast" and _to(node) == _BOOL):
            return _ANY
        if op in _COMPARED:
            return Mask(0, FAR, frozenset([Sink("bool", name, first, 0)]))
        if op in _ZERO:
            return Mask(-1, FAR, frozenset([Sink("zero", name, first, -1)]))
        if op == "Attention":
            return Mask(-1, FAR, frozenset([Sink("row", name, first, -1)])) if position == 3 else None
        if op in _CUT:
            passed = self._known.get(first) if op == "Max" else None
            if passed and passed.sign < 0:
                return passed
            data = position == 0 or op == "Max"
            return Mask(-1, FAR, frozenset([Sink("most", name, first, -1)])) if data and _largest(node) else None
        factor = self._factor(node, position)
        if factor is None:
            return None
        mask = _merged([self._known.get(written) for written in node.output if written])
        return mask and _scaled(mask, factor)

    def _factor(self, node: NodeProto, position: int) -> float | None:
        """Return the smallest factor of an infinite value in a node; ``None`` if the result is not known."""
        op = node.op_type
        if op in _TURN and position == _TURN[op]:
            return -1.0
        if op in _KEEP:
            places = _KEEP[op]
            kept = (places is None or position in places) and (op != "Cast" or _to(node) in _FLOATS)
            reduces = any(a.name == "reduction" and a.s not in (b"", b"none") for a in node.attribute)  # a scatter
            return 1.0 if kept and not reduces else None
        if op == "Mul":
            return self._constants.get(node.input[1 - position], (None, None))[0]
        if op == "Div" and position == 0:
            by = node.input[1]
            largest = _ROOTS if self._writers.get(by) == "Sqrt" else self._constants.get(by, (None, None))[1]
            return 1 / largest if largest else None
        return None


def _merged(masks: Sequence[Mask | None]) -> Mask | None:
    """Return the mask that holds for all readers; ``None`` if one has no mask, or one of another sign."""
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
    """Return smallest and largest magnitude, signed, of constants with a single sign and without 0."""
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
    """Return whether a node selects the largest elements."""
    return not any(a.name == "largest" and not a.i for a in node.attribute)
