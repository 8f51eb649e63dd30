"""Floats that count, index or measure positions, and that lower precision would corrupt.

bfloat16 represents integers exactly up to 256, float16 up to 2048 (and none above 65504). A number rounded before
scaling keeps its relative error; before a remainder, floor, difference, comparison or sine it does not. A sinusoidal
embedding of timestep 999 in bfloat16 is that of timestep 1000, and a rounded heat map index selects another row.

Float tensors are classified by :class:`Kind` in one pass over the graph. A number stays exact until it becomes a real
quantity: an input of an operator that mixes many values (MatMul, Conv, Softmax, normalization), or a product or
quotient with a real number. The sum of a position and a real offset is a coordinate, which stays exact as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import prod

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, numpy_helper

from engine.onnx.half_range import constant_tensors
from engine.onnx.view import dims, subgraphs
from engine.signature import Array

_FLOATS = frozenset((TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE))
_NARROW = frozenset(
    getattr(TensorProto, name)
    for name in ("INT8", "UINT8", "INT4", "UINT4", "INT2", "UINT2")
    if hasattr(TensorProto, name)
)
"""Integer types that every float type represents exactly; constants of these types are weights."""

_WAVES = frozenset(("Sin", "Cos"))
_ROUNDING = frozenset(("Floor", "Ceil", "Round", "Mod"))
_COMPARING = frozenset(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"))
_SENSITIVE = _WAVES | _ROUNDING | _COMPARING | {"Tan", "Exp"}
"""Operators that amplify the relative error of their input."""

_CURVED = _WAVES | {"Tan", "Exp", "Log", "Reciprocal"}  # operators whose outputs are not positions

_JOINING = frozenset(("Concat", "Where", "Min", "Max", "Clip", "ScatterElements", "ScatterND", "Pad"))
"""Operators whose outputs are elements of several inputs."""

_MOVING = _JOINING | {
    *("Identity", "Dropout", "Expand", "Tile", "Slice", "Split", "Reshape", "Flatten", "Squeeze", "Unsqueeze"),
    *("Transpose", "Gather", "GatherElements", "GatherND", "Compress", "ReverseSequence", "Trilu"),
    *("DepthToSpace", "SpaceToDepth", "TopK", "ReduceMax", "ReduceMin", "Relu"),
}
"""Operators whose outputs are elements of the inputs."""

_PASSING = _MOVING | {
    *("Add", "Sub", "Sum", "Mul", "Div", "Neg", "Abs", "Sign", "Pow", "Sqrt", "Log", "Reciprocal"),
    *("Cast", "CastLike", "Constant", "ConstantOfShape", "Range"),
}
"""Operators whose outputs still depend on few integers, unlike those that mix many values (MatMul)."""

_PICKING = frozenset(("Gather", "GatherElements", "GatherND"))
_OFFSET = frozenset(("Add", "Sub", "Sum"))
_SUMMING = frozenset(("ReduceSum", "CumSum", "ReduceMean"))
_ADDING = frozenset(("ScatterElements", "ScatterND"))

_COUNTING = frozenset(
    ("ArgMax", "ArgMin", "NonZero", "Shape", "Size", "Range", "CumSum", "NonMaxSuppression", "Unique", "TopK")
)
"""Operators whose outputs are counts or indices."""

_SIZES = frozenset(("Shape", "Size"))  # operators that do not read values
_FEW = 2.0  # maximum constant that may be added without harm, such as the 1 of ``1 - mask``
_FILL = 1000.0  # minimum factor that turns a mask into a fill value for scores, which is not a position
_EXACT = 2048  # largest integer up to which float16 represents all integers


class Kind(IntEnum):
    """Meaning of the numbers of a float tensor; the result of several inputs has the maximum of their kinds.

    Attributes:
        NUMBER: computed from integer inputs of unknown meaning (mask, timestep); exact if a sensitive operator follows.
    """

    FIXED = 0  # constants, and values computed from constants only
    FLAG = 1  # boolean values as numbers
    NUMBER = 2
    COUNT = 3  # counts and indices computed by the model; always exact
    PLACE = 4  # coordinates, computed from counts and real offsets; always exact


@dataclass(frozen=True, slots=True)
class Exact:
    """Tensors that must be float32."""

    written: frozenset[str]  # outputs of nodes that compute in float32
    inputs: frozenset[str]  # float inputs that hold integers
    outputs: frozenset[str]  # float outputs of the graph that hold counts or coordinates
    divisors: frozenset[str]  # tensors of ``written`` that products and quotients with real numbers read
    late: bool  # whether some of ``written`` depend on real quantities, and thus may come after most of the model


def exact_parts(graph: GraphProto) -> Exact:
    """Return the tensors of a sorted graph with inferred types that must be float32, outside of bodies.

    These are tensors between integers, or an input with one number per sample, and a sensitive operator; and counts,
    indices and coordinates computed by the model.
    """
    walk = _Walk(graph)
    kept = walk.kept()
    ends = {info.name for info in graph.output if walk.is_float(info.name)}
    inputs = {info.name for info in graph.input} & walk.given
    return Exact(
        written=frozenset(kept),
        inputs=frozenset(inputs),
        outputs=frozenset(name for name in ends & (kept | inputs) if name in inputs or walk.is_returned(name)),
        divisors=frozenset(walk.divisors & kept),
        late=not walk.late.isdisjoint(kept),
    )


class _Walk:
    """Classified float tensors of a graph; ``following``: nodes of integers, constants and coordinates, in order."""

    def __init__(self, graph: GraphProto) -> None:
        infos = (*graph.input, *graph.value_info, *graph.output)
        self.types = {info.name: info.type.tensor_type.elem_type for info in infos}
        self.sizes = {info.name: dims(info) for info in infos if info.type.tensor_type.HasField("shape")}
        self.constants = constant_tensors(graph)
        self.sizes |= {name: list(tensor.dims) for name, tensor in self.constants.items()}
        self.types |= {name: tensor.data_type for name, tensor in self.constants.items()}
        self.ends = [info.name for info in graph.output]
        self.given = set(_given(graph, self))  # float inputs that hold integers
        numbers = (set(_single_numbers(graph)) & _waved(graph)) | self.given
        self.kinds = dict.fromkeys(numbers, Kind.NUMBER)
        self.counts: set[str] = set()  # integers that do not depend on inputs and constants only
        self.spent: set[str] = set()
        """Tensors that stop being integers: results of curved functions, and inputs scaled by fractions."""
        self.fills: set[str] = set()  # masks multiplied by a fill value
        self.steps: set[str] = set()  # rows of integer tables (such as strides of levels), which scale coordinates
        self.divisors: set[str] = set()
        self.moving = {info.name for info in graph.input if not self.is_float(info.name)} | numbers
        """Tensors that do not depend on constants only."""
        self.late = {info.name for info in graph.input if self._is_real(info.name) and self.is_float(info.name)}
        """Tensors that depend on real quantities."""
        self.following: list[NodeProto] = []
        for node in graph.node:
            self._add(node)

    def is_float(self, name: str) -> bool:
        return self.types.get(name, TensorProto.FLOAT) in _FLOATS

    def _is_real(self, name: str) -> bool:
        return name not in self.kinds and name not in self.constants

    def _kind_of(self, name: str) -> Kind | None:
        """Return the kind of a float tensor; ``None`` for real quantities. Constants are examined on first use."""
        if name not in self.kinds and name in self.constants:
            inexact = _largest(self.constants[name]) > _EXACT and _holds_numbers(self.constants[name])
            self.kinds[name] = Kind.COUNT if inexact else Kind.FIXED
        return self.kinds.get(name)

    def _kinds_of(self, names: Sequence[str]) -> list[Kind | None]:
        """Return the kinds of a node's float inputs; next to counts and coordinates, steps are constants."""
        kinds = [self._kind_of(name) for name in names]
        if any(kind is not None and kind >= Kind.COUNT for kind in kinds):
            return [Kind.FIXED if name in self.steps else kind for name, kind in zip(names, kinds, strict=True)]
        return kinds

    def _is_step(self, node: NodeProto, floats: Sequence[str]) -> bool:
        """Return whether a node selects rows of an integer table, or moves such rows."""
        if node.op_type in _MOVING and floats and self.steps.issuperset(floats):
            return True
        return self._is_lookup(node) and _are_halves(self.constants[node.input[0]])

    def is_returned(self, name: str) -> bool:
        """Return whether a float output of the graph holds integers or coordinates."""
        return self.kinds.get(name, Kind.FIXED) >= Kind.NUMBER and name not in self.spent

    def _add(self, node: NodeProto) -> None:
        """Classify a node's outputs."""
        read = [name for name in node.input if name]
        floats = [name for name in read if self.is_float(name)]
        if node.op_type not in _SIZES and any(n in self.late or (self.is_float(n) and self._is_real(n)) for n in read):
            self.late.update(filter(None, node.output))
        counts = self._is_counting(node)
        if counts or not self.moving.isdisjoint(read):
            self.moving.update(filter(None, node.output))
        counted = (self._is_real(name) or self.kinds.get(name, Kind.FIXED) >= Kind.COUNT for name in floats)
        if counts or not self.counts.isdisjoint(read) or any(counted):
            self.counts.update(name for name in node.output if name and self._is_whole(name))
            self.moving.update(name for name in node.output if name and self._is_whole(name))
        if node.domain not in ("", "ai.onnx") or any(True for _ in subgraphs(node)):
            return
        self._note_divisor(node, floats)
        kind = self._kind(node, floats)
        if kind is None:
            return
        self.following.append(node)
        made = [name for name in node.output if name and self.is_float(name)]
        spent = not self.spent.isdisjoint(floats) or node.op_type in _CURVED or self._is_scaled(node, floats, kind)
        if spent and node.op_type not in _ROUNDING:
            self.spent.update(made)
        if kind < Kind.COUNT and (not self.fills.isdisjoint(floats) or self._is_filled(node, floats)):
            self.fills.update(made)
        self.kinds |= dict.fromkeys(made, kind)

    def _is_counting(self, node: NodeProto) -> bool:
        if node.op_type != "Cast" or self.is_float(node.input[0]) or not self.is_float(node.output[0]):
            return node.op_type in _COUNTING
        return self.types[node.input[0]] not in _NARROW and self.types[node.input[0]] != TensorProto.BOOL

    def _is_whole(self, name: str) -> bool:
        return not self.is_float(name) and self.types[name] not in (TensorProto.BOOL, TensorProto.STRING)

    def _kind(self, node: NodeProto, floats: Sequence[str]) -> Kind | None:
        """Return the kind of a node's float outputs; ``None`` for real quantities."""
        op = node.op_type
        data = node.input[0] if node.input else ""
        if op in ("Cast", "CastLike") and not self.is_float(data):
            return self._cast_kind(data)
        if op == "OneHot":
            return Kind.FLAG if node.input[2] in self.constants else None
        if op == "Range":
            return Kind.COUNT
        if op not in _PASSING | _SENSITIVE | _SUMMING and not self._is_outer(node):
            return None
        kinds = self._kinds_of(floats)
        known = [kind for kind in kinds if kind is not None]
        most = max(known, default=Kind.FIXED)
        if op in _SUMMING or (op in _ADDING and any(a.name == "reduction" and a.s == b"add" for a in node.attribute)):
            chosen = most is Kind.FIXED and not self.moving.isdisjoint(floats)
            return self._sum_kind(node, Kind.FLAG if chosen else most) if len(known) == len(kinds) else None
        if self._is_step(node, floats):
            self.steps.update(filter(None, node.output))
        if len(known) == len(kinds):
            if self._is_lookup(node) and most is Kind.FIXED:
                return None
            if op in _ROUNDING and most is Kind.NUMBER:
                return Kind.COUNT
            return Kind.NUMBER if op in _CURVED and most > Kind.NUMBER else most
        return self._mixed_kind(node, floats)

    def _cast_kind(self, source: str) -> Kind:
        if self.types[source] == TensorProto.BOOL:
            return Kind.FLAG
        if source in self.counts:
            return Kind.COUNT
        return Kind.NUMBER if source in self.moving else Kind.FIXED

    def _sum_kind(self, node: NodeProto, most: Kind) -> Kind | None:
        """Return the kind of sums: of booleans counts, of inputs counts if the sum may exceed float16's integers."""
        if most is Kind.PLACE or (node.op_type == "ReduceMean" and most in (Kind.FLAG, Kind.NUMBER)):
            return None
        if node.op_type == "CumSum" or most is Kind.FLAG:
            return Kind.COUNT
        if most in (Kind.FIXED, Kind.COUNT):
            summed = self._summed(node) if node.op_type in _ADDING else 0
            return Kind.COUNT if summed is None or summed > _EXACT else most
        return Kind.COUNT if (self._summed(node) or 0) > _EXACT else most

    def _summed(self, node: NodeProto) -> int | None:
        """Return the maximum number of summed elements; ``None`` if unknown."""
        shape = self.sizes.get(node.input[2 if node.op_type in _ADDING else 0])
        if shape is None or not all(isinstance(size, int) for size in shape):
            return None
        whole = prod(size for size in shape if isinstance(size, int))
        made = self.sizes.get(node.output[0], [None])
        if node.op_type in _ADDING or not all(isinstance(size, int) for size in made):
            return whole
        return whole // max(1, prod(size for size in made if isinstance(size, int)))

    def _mixed_kind(self, node: NodeProto, floats: Sequence[str]) -> Kind | None:
        """Return the kind of a node with numbers and real quantities: coordinates, or real quantities."""
        places = [name for name in floats if self.is_returned(name) and name not in self.fills]  # may get an offset
        if node.op_type in _OFFSET:
            sums = bool(places)
        else:
            sums = node.op_type in _JOINING and any(self.kinds[name] >= Kind.COUNT for name in places)
        return Kind.PLACE if sums else None

    def _note_divisor(self, node: NodeProto, floats: Sequence[str]) -> None:
        """Record counts that multiply or divide real quantities; they may exceed float16."""
        if node.op_type in ("Mul", "Div") and any(self._is_real(name) for name in floats):
            counted = [name for name in floats if self.kinds.get(name) is Kind.COUNT and name not in self.constants]
            self.divisors.update(counted)

    def _is_scaled(self, node: NodeProto, floats: Sequence[str], kind: Kind) -> bool:
        """Return whether integer inputs become fractions in this node."""
        if kind > Kind.NUMBER or node.op_type not in ("Mul", "Div"):
            return False
        return node.op_type == "Div" or not all(_are_halves(self.constants[n]) for n in floats if n in self.constants)

    def _is_filled(self, node: NodeProto, floats: Sequence[str]) -> bool:
        if node.op_type == "Mul":
            return any(_largest(self.constants[name]) >= _FILL for name in floats if name in self.constants)
        divisor = self.constants.get(node.input[1]) if node.op_type == "Div" and node.input[1] in floats else None
        return divisor is not None and _smallest(divisor) <= 1 / _FILL

    def _is_outer(self, node: NodeProto) -> bool:
        """Return whether a node is an outer product without a sum: positions times frequencies."""
        if node.op_type == "Einsum":
            equation = next((a.s.decode() for a in node.attribute if a.name == "equation"), "").replace(" ", "")
            terms, _, result = equation.partition("->")
            return bool(result) and set(terms) - {",", "."} <= set(result)
        sizes = [self.sizes.get(name, []) for name in node.input]
        return node.op_type == "MatMul" and (sizes[0][-1:] == [1] or sizes[1][-2:-1] == [1])

    def _is_lookup(self, node: NodeProto) -> bool:
        """Return whether a node selects rows of a weight table, whose values are weights and may be rounded."""
        return node.op_type in _PICKING and node.input[0] in self.constants and self.is_float(node.input[0])

    def kept(self) -> set[str]:
        """Return the outputs of the nodes that must compute in float32."""
        writers = {name: node for node in self.following for name in node.output if name}
        kept: set[str] = set()
        todo = [name for node in self.following if self._stays(node) for name in node.output if name]
        todo += [name for name in self.ends if name in writers and self.is_float(name) and self.is_returned(name)]
        while todo:
            name = todo.pop()
            if name in kept or name not in writers:
                continue
            kept.update(filter(None, writers[name].output))
            todo.extend(writers[name].input)
        return kept

    def _stays(self, node: NodeProto) -> bool:
        """Return whether a node must compute in float32 regardless of its readers."""
        floats = [name for name in node.output if name and self.is_float(name)]
        counted = any(self.kinds.get(name, Kind.FIXED) >= Kind.COUNT and name not in self.constants for name in floats)
        return counted or self._is_sensitive(node)

    def _is_sensitive(self, node: NodeProto) -> bool:
        """Return whether a node of ``following`` amplifies the error of a rounded input."""
        floats = [name for name in node.input if name and self.is_float(name) and name not in self.constants]
        if not floats or self.moving.isdisjoint(node.output):
            return False
        if node.op_type in ("Cast", "CastLike"):
            return not self.is_float(node.output[0]) and self.types[node.output[0]] != TensorProto.BOOL
        if node.op_type in _OFFSET:
            return len(floats) > 1 or any(
                name in self.constants and _largest(self.constants[name]) > _FEW for name in node.input
            )
        return node.op_type in _SENSITIVE


def _single_numbers(graph: GraphProto) -> Iterator[str]:
    """Yield the float inputs with one element, or one element per sample."""
    constants = {tensor.name for tensor in graph.initializer}
    for info in graph.input:
        whole = info.type.tensor_type.HasField("shape") and info.name not in constants
        if whole and info.type.tensor_type.elem_type in _FLOATS and all(size == 1 for size in dims(info)[1:]):
            yield info.name


def _waved(graph: GraphProto) -> set[str]:
    """Return the names from which passing operators lead to a sine or cosine."""
    reached: set[str] = set()
    for node in reversed(graph.node):
        if node.op_type in _WAVES or (node.op_type in _PASSING and reached.intersection(node.output)):
            reached.update(filter(None, node.input))
    return reached


def _given(graph: GraphProto, walk: _Walk) -> Iterator[str]:
    """Yield float inputs that are cast to integers, rounded or compared with large ones, after moves or constants."""
    reached: set[str] = set()
    for node in reversed(graph.node):
        if node.domain in ("", "ai.onnx") and (
            _takes_whole(node, walk) or (node.op_type in _PASSING and not reached.isdisjoint(node.output))
        ):
            reached.update(filter(None, node.input[:1] if node.op_type == "OneHot" else node.input))
    constants = {tensor.name for tensor in graph.initializer}
    for info in graph.input:
        if info.name in reached and info.name not in constants and walk.is_float(info.name):
            yield info.name


def _takes_whole(node: NodeProto, walk: _Walk) -> bool:
    """Return whether a node uses a float as an integer, or converts it to one."""
    if node.op_type == "Cast":
        made = next((a.i for a in node.attribute if a.name == "to" and a.type == AttributeProto.INT), 0)
        return walk.is_float(node.input[0]) and made not in _FLOATS | {TensorProto.BOOL, TensorProto.STRING}
    if node.op_type in _COMPARING:
        return any(name in walk.constants and _largest(walk.constants[name]) > _EXACT for name in node.input)
    return node.op_type in _ROUNDING or node.op_type == "OneHot"


_DISTINCT = 8  # minimum number of distinct values of a list of positions; a mean of colours has 3
_MOST = 2**20  # maximum number of elements of a constant that is examined
_FIRST = 64  # number of elements that are examined first


def _holds_numbers(tensor: TensorProto) -> bool:
    """Return whether a float constant contains positions: multiples of 1/2, with more distinct values than a mask."""
    values = _values(tensor)
    return values is not None and _all_halves(values) and len(np.unique(values)) >= _DISTINCT


def _are_halves(tensor: TensorProto) -> bool:
    """Return whether all numbers of a constant are multiples of 1/2; ``False`` for external data."""
    values = _values(tensor)
    return values is not None and _all_halves(values)


def _all_halves(values: Array) -> bool:
    for part in (values[:_FIRST], values):  # the first elements suffice to recognize weights
        doubled = part * 2
        if not np.isfinite(part).all() or not (doubled == np.rint(doubled)).all():
            return False
    return True


def _largest(tensor: TensorProto) -> float:
    """Return the largest magnitude of a constant; 0 for external data."""
    values = _values(tensor)
    return 0.0 if values is None else float(np.abs(values).max(initial=0.0))


def _smallest(tensor: TensorProto) -> float:
    """Return the smallest magnitude of a constant; infinity for external data."""
    values = _values(tensor)
    return np.inf if values is None else float(np.abs(values).min(initial=np.inf))


def _values(tensor: TensorProto) -> Array | None:
    """Return the values in float64; ``None`` if they are not numeric, too many, or external."""
    if tensor.data_location == TensorProto.EXTERNAL or prod(tensor.dims) > _MOST:
        return None
    if tensor.data_type == TensorProto.STRING:
        return None
    return numpy_helper.to_array(tensor).astype(np.float64).reshape(-1)
