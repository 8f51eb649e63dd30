"""Builder of one ONNX graph: names, constants, and the casts of PyTorch's dtype rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from torch import fx

from torch_sdaa.dynamo.sizes import Sizes

OPSET = 20
"""Opset of the written ONNX operators, supported by ONNX Runtime and the card's cost model."""

IR_VERSION = 10

KINDS: Mapping[torch.dtype, int] = {
    torch.float32: TensorProto.FLOAT,
    torch.float16: TensorProto.FLOAT,
    torch.float64: TensorProto.DOUBLE,
    torch.int8: TensorProto.INT8,
    torch.int16: TensorProto.INT16,
    torch.int32: TensorProto.INT32,
    torch.int64: TensorProto.INT64,
    torch.uint8: TensorProto.UINT8,
    torch.bool: TensorProto.BOOL,
    torch.bfloat16: TensorProto.FLOAT,
}
"""Dtypes that a partition may contain. Narrow ones are stored as float32 and rounded after every operator of the traced
network (:meth:`Builder.rounded`): on a CPU, ONNX Runtime does not compute bfloat16, and computes several operators in
float16 as if they were one in float32, without rounding or overflow between them.
"""

NARROW: Mapping[torch.dtype, int] = {torch.float16: TensorProto.FLOAT16, torch.bfloat16: TensorProto.BFLOAT16}
"""Dtypes that are stored as float32, and their numbers in ONNX."""

ENDS: Mapping[torch.dtype, int] = {**KINDS, torch.float16: TensorProto.FLOAT16}
"""Likewise for a model's inputs and outputs: float16 is passed as it is. NumPy has no bfloat16."""

_NUMPY: Mapping[torch.dtype, type[np.generic]] = {
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.int8: np.int8,
    torch.int16: np.int16,
    torch.int32: np.int32,
    torch.int64: np.int64,
    torch.uint8: np.uint8,
    torch.bool: np.bool_,
}

_MOVES = {
    "Abs", "Concat", "Expand", "Gather", "GatherElements", "GatherND", "Identity", "Max", "MaxPool", "Min", "Neg",
    "Pad", "ReduceMax", "ReduceMin", "Relu", "Reshape", "Slice", "Tile", "TopK", "Transpose", "Trilu", "Where",
}  # fmt: skip
"""Operators whose results are input elements, possibly with another sign."""


class Unsupported(Exception):  # noqa: N818 -- not an error: the node stays with the device
    """A node has no ONNX form here; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the graph: name, shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def numel(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))


class Builder:
    """Builds a model from nodes (``sizes``: values of the symbols of the traced graph)."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.nodes: list[NodeProto] = []
        self.inputs: list[ValueInfoProto] = []
        self._constants: dict[tuple[Any, ...], TensorProto] = {}
        self._count = 0
        self._name = ""
        self._orders: dict[str, tuple[Value, list[int]]] = {}
        """Name of a transposed value -> its source, and the permutation."""
        self._rounded: dict[torch.dtype, set[str]] = {dtype: set() for dtype in NARROW}
        """Names of values that are exact in a narrow dtype, or not floating-point."""
        self._halves: dict[str, str] = {}
        """Name of a float32 value -> the same values in float16."""

    # --------------------------------------------------------------------------------------------------------- inputs

    def begin(self, node: fx.Node) -> None:
        """Name the following values after a node."""
        self._name = node.name

    def input(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Value:
        """Return an input of the graph."""
        kind_of(dtype)
        self.inputs.append(helper.make_tensor_value_info(name, ENDS[dtype], list(shape)))
        value = Value(name, tuple(shape), dtype)
        if dtype is torch.float16:
            self._name = name
            value = self._widened(value, dtype)
        for narrow, names in self._rounded.items():
            if dtype is narrow or not dtype.is_floating_point:
                names.add(value.name)
        return value

    def constant(self, array: Any, dtype: torch.dtype = torch.int64) -> str:
        """Return the name of a constant; equal ones are stored once."""
        made = np.ascontiguousarray(np.asarray(array).astype(_NUMPY[dtype])).reshape(np.shape(array))
        key = (made.tobytes(), made.dtype.str, made.shape)
        if key not in self._constants:
            self._constants[key] = numpy_helper.from_array(made, f"constant_{len(self._constants)}")
            for narrow, names in self._rounded.items():
                if made.dtype.kind != "f" or _is_exact(made, narrow):
                    names.add(self._constants[key].name)
        return self._constants[key].name

    def scalar(self, number: complex | bool, dtype: torch.dtype) -> str:
        """Return the name of a scalar, converted to an integer dtype like in PyTorch."""
        if isinstance(number, complex):
            raise Unsupported("a complex number")
        if not dtype.is_floating_point and dtype is not torch.bool:
            number = int(number)
        return self.constant(np.asarray(number), dtype)

    # ---------------------------------------------------------------------------------------------------------- nodes

    def op(
        self, kind: str, inputs: Sequence[str | Value], dtype: torch.dtype, shape: Sequence[int], **more: Any
    ) -> Value:
        """Write a node with one output and attributes ``more``."""
        return self.ops(kind, inputs, [(dtype, shape)], **more)[0]

    def ops(
        self,
        kind: str,
        inputs: Sequence[str | Value],
        outputs: Sequence[tuple[torch.dtype, Sequence[int]] | None],
        **more: Any,
    ) -> list[Value]:
        """Write a node; outputs that are ``None`` are omitted."""
        made: list[Value] = []
        names: list[str] = []
        for each in outputs:
            self._count += 1
            name = f"{self._name}.{self._count}" if each else ""  # names of traced nodes have no dots
            names.append(name)
            if each:
                made.append(Value(name, tuple(each[1]), each[0]))
        given = [value.name if isinstance(value, Value) else value for value in inputs]
        label = f"{self._name}/{kind}_{self._count}"
        for rounded in self._rounded.values():
            moves = kind in _MOVES and rounded.issuperset(filter(None, given))
            rounded.update(value.name for value in made if moves or not value.dtype.is_floating_point)
        self.nodes.append(helper.make_node(kind, given, names, name=label, **more))
        return made

    def cast(self, value: Value, dtype: torch.dtype) -> Value:
        """Return a value cast to a dtype."""
        if value.dtype is dtype:
            return value
        if value.dtype.is_floating_point and dtype is torch.uint8:  # negative values wrap as in PyTorch
            value = self.op("Cast", [value], torch.int64, value.shape, to=kind_of(torch.int64))
        return self.op("Cast", [value], dtype, value.shape, to=kind_of(dtype))

    def rounded(self, value: Value, dtype: torch.dtype) -> Value:
        """Return float32 values rounded to a narrow dtype, stored as float32; beyond its range they are infinite."""
        shape = value.shape
        if value.name not in self._rounded[dtype]:
            value = self._widened(self.op("Cast", [value], dtype, shape, to=NARROW[dtype]), dtype)
            self._rounded[dtype].add(value.name)
        return Value(value.name, shape, dtype)

    def _widened(self, narrow: Value, dtype: torch.dtype) -> Value:
        """Return values of a narrow dtype stored as float32."""
        value = self.op("Cast", [narrow], dtype, narrow.shape, to=TensorProto.FLOAT)
        if dtype is torch.float16:
            self._halves[value.name] = narrow.name
        return value

    def _half(self, value: Value) -> Value:
        """Return values that are exact in float16 stored as float16."""
        name = self._halves.get(value.name)
        if name is None:
            return self.op("Cast", [value], value.dtype, value.shape, to=TensorProto.FLOAT16)
        return Value(name, value.shape, value.dtype)

    def is_narrow(self, value: Value) -> bool:
        """Return whether a value has few bits, so that ties are likely."""
        return any(value.name in names for names in self._rounded.values())

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """Return a value in another shape."""
        if tuple(shape) == value.shape:
            return value
        return self.op("Reshape", [value, self.constant(list(shape))], value.dtype, shape, allowzero=1)

    def transpose(self, value: Value, order: Sequence[int]) -> Value:
        """Return a value with permuted dimensions."""
        order = [axis % value.rank for axis in order]
        source, before = self._orders.get(value.name, (value, list(range(value.rank))))
        order = [before[axis] for axis in order]  # consecutive permutations are merged, possibly to none
        if order == list(range(value.rank)):
            return source
        made = self.op("Transpose", [source], value.dtype, [source.shape[axis] for axis in order], perm=order)
        self._orders[made.name] = source, order
        return made

    def transposed(self, value: Value) -> Value | None:
        """Return the matrix whose transpose a value is; ``None`` if it is not a transpose."""
        source, order = self._orders.get(value.name, (value, []))
        return source if order == [1, 0] else None

    def expand(self, value: Value, shape: Sequence[int]) -> Value:
        """Return a value expanded to a larger shape."""
        if tuple(shape) == value.shape:
            return value
        return self.op("Expand", [value, self.constant(list(shape))], value.dtype, shape)

    def reduce(self, kind: str, value: Value, axes: Sequence[int], keep: bool) -> Value:
        """Return a reduction over axes; without axes the value itself."""
        axes = sorted(axis % value.rank for axis in axes) if value.rank else []
        if not axes:
            return value
        shape = [1 if i in axes else d for i, d in enumerate(value.shape) if keep or i not in axes]
        return self.op(kind, [value, self.constant(axes)], value.dtype, shape, keepdims=int(keep))

    def extreme(self, kind: str, value: Value, axes: Sequence[int], keep: bool) -> Value:
        """Return the maximum or minimum over axes; NaN if there is one, which ONNX Runtime ignores."""
        made = self.reduce(kind, value, axes, keep)
        if not value.dtype.is_floating_point or made is value:
            return made
        return self.or_nan(made, self.reduce("ReduceMax", self.nans(value, torch.int32), axes, keep))

    def nans(self, value: Value, dtype: torch.dtype) -> Value:
        """Return 1 where an element is NaN, else 0."""
        return self.cast(self.op("IsNaN", [value], torch.bool, value.shape), dtype)

    def or_nan(self, value: Value, nans: Value) -> Value:
        """Return NaN where ``nans`` is not 0, else the value."""
        nan = self.scalar(float("nan"), value.dtype)
        return self.op("Where", [self.cast(nans, torch.bool), nan, value], value.dtype, value.shape)

    def instead_of_nan(self, value: Value, other: str, made: Value) -> Value:
        """Return ``other`` where a value is NaN, else ``made``."""
        nan = self.op("IsNaN", [value], torch.bool, value.shape)
        return self.op("Where", [nan, other, made], made.dtype, made.shape)

    def slice(self, value: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
        """Return every ``step``-th element along an axis; the bounds must be in range."""
        length = max(0, -(-(stop - start) // step))
        shape = [length if i == axis else d for i, d in enumerate(value.shape)]
        bounds = [self.constant([number]) for number in (start, max(stop, start), axis, step)]
        return self.op("Slice", [value, *bounds], value.dtype, shape)

    # ---------------------------------------------------------------------------------------------------------- model

    def model(self, outputs: Sequence[Value]) -> ModelProto:
        """Return the model, without nodes that no output depends on."""
        ends, seen = [], {info.name for info in self.inputs} | {t.name for t in self._constants.values()}
        for value in outputs:
            self._name = "output"
            if value.dtype is torch.float16:
                value = self._half(value)
            if value.name in seen:  # outputs need unique names
                value = self.op("Identity", [value], value.dtype, value.shape)
            seen.add(value.name)
            ends.append(helper.make_tensor_value_info(value.name, ENDS[value.dtype], list(value.shape)))
        needed, kept = {info.name for info in ends}, []
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                kept.append(node)
                needed.update(node.input)
        constants = [tensor for tensor in self._constants.values() if tensor.name in needed]
        graph = helper.make_graph(kept[::-1], "partition", self.inputs, ends, constants)
        made = helper.make_model(graph, producer_name="torch_sdaa", opset_imports=[helper.make_opsetid("", OPSET)])
        made.ir_version = IR_VERSION
        return made


def _is_exact(array: Any, dtype: torch.dtype) -> bool:
    """Return whether a narrow dtype represents all elements of an array."""
    if array.dtype != np.float32:
        return False
    if dtype is torch.bfloat16:  # the upper half of float32's bits
        return not (array.view(np.uint32) & 0xFFFF).any()
    with np.errstate(over="ignore"):
        return np.array_equal(array.astype(np.float16).astype(np.float32), array, equal_nan=True)


def kind_of(dtype: torch.dtype) -> int:
    """Return ONNX's number of a dtype; raise Unsupported if a partition cannot contain the dtype."""
    if dtype not in KINDS:
        raise Unsupported(f"dtype {str(dtype).removeprefix('torch.')}")
    return KINDS[dtype]
