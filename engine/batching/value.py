"""Known properties of a tensor during the analysis, and a node with the properties of its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper

from engine.batching.sizes import BATCH, Number, Size, bound, has_batch, symbol, times
from engine.signature import Array

Sizes: TypeAlias = tuple[Size, ...]

_FEW = 256  # maximum number of elements of a tensor whose contents are propagated
MANY = 2**22  # maximum number of elements of a constant whose rows are compared


@dataclass(frozen=True, slots=True)
class Rows:
    """Position of the samples: index ``(o * batch + b) * inner + i`` along ``axis`` belongs to sample ``b``."""

    axis: int
    outer: Size = 1
    inner: Size = 1

    def at(self, axis: int) -> Rows:
        """Return the same arrangement along another axis."""
        return replace(self, axis=axis)

    def without(self, axes: Iterable[int]) -> Rows:
        """Return the same arrangement after removing these other axes."""
        return self.at(self.axis - sum(axis < self.axis for axis in axes))

    @property
    def size(self) -> Size:
        """Number of elements along the axis."""
        return times(times(self.outer, BATCH), self.inner)

    @property
    def plain(self) -> bool:
        """Whether there is one element per sample along the axis."""
        return self.outer == 1 and self.inner == 1


@dataclass(frozen=True, slots=True)
class Fault:
    """Reason why samples are not proven independent; ``depends`` if they are certainly dependent."""

    reason: str
    depends: bool


@dataclass(frozen=True, slots=True)
class Count:
    """Elements of sample ``b`` are ``stride * b`` plus ``low`` to ``high``: positions in a table of all rows.

    If ``led``, this holds for the first element of the last axis, and the others are rows of samples. If ``mixed``,
    positions were combined with other numbers, and only the shape may be read.
    """

    stride: Size
    low: int
    high: int
    led: bool = False
    mixed: bool = False


class UnprovenError(Exception):
    """Raised by an operator's rule with a :class:`Fault`; does not leave this package."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Value:
    """Known properties of a tensor. Without ``rows``, ``sized`` and ``fault`` it does not depend on the samples.

    Unknown sizes in ``dims`` have a unique symbol; only that along the axis of the rows has the number of samples.
    Row ``b`` of ``rows`` only depends on sample ``b``, not on ``b`` or the number of samples.
    """

    name: str
    dims: Sizes | None = None  # shape, ``None`` if the rank is unknown
    rows: Rows | None = None  # position of the samples
    content: Array | None = None  # elements, if few and computable from sizes and constants (an object array)
    sized: bool = False  # the elements depend on the number of samples, but not on their values
    flat: frozenset[int] = frozenset()  # axes along which the tensor is certainly constant
    tensor: TensorProto | None = None
    fault: Fault | None = None  # why none of the above is known
    count: Count | None = None  # elements along the axis of the rows are sample positions, unlike those of other rows

    @property
    def shared(self) -> bool:
        """Whether it depends neither on the samples nor on their number."""
        return self.rows is None and not self.sized and self.fault is None

    @property
    def rank(self) -> int | None:
        """Number of dimensions."""
        return None if self.dims is None else len(self.dims)

    def has_samples_on(self, *axes: int) -> bool:
        """Return whether its samples are along one of these axes."""
        return self.rows is not None and self.rows.axis in axes


def constant(name: str, tensor: TensorProto) -> Value:
    """Return the properties of a constant."""
    return Value(name, tuple(tensor.dims), tensor=tensor)


def from_content(name: str, content: Array) -> Value:
    """Return the properties of a tensor with known elements."""
    sized = any(has_batch(number) for number in content.flat)
    return Value(name, tuple(content.shape), content=content, sized=sized)


def content_of(value: Value) -> Array | None:
    """Return a tensor's elements as an object array; ``None`` if they are unknown or too many."""
    if value.content is not None or value.tensor is None:
        return value.content
    array = read(value.tensor, _FEW)
    return None if array is None or array.dtype.kind not in "biuf" else objects(array)


def objects(array: Array) -> Array:
    """Return numbers as an object array of Python numbers."""
    return np.array(array.tolist(), dtype=object).reshape(array.shape)


def read(tensor: TensorProto, most: int) -> Array | None:
    """Return a constant's values if they are available and at most ``most``."""
    if int(np.prod(tensor.dims, dtype=np.int64)) > most or tensor.data_location == TensorProto.EXTERNAL:
        return None
    try:
        return numpy_helper.to_array(tensor)
    except (TypeError, ValueError):  # no NumPy dtype, or no data
        return None


def is_flat(value: Value, axis: int) -> bool:
    """Return whether a shared tensor is certainly constant along an axis."""
    if value.dims is None:
        return False
    if value.dims[axis] == 1 or axis in value.flat:
        return True
    array = value.content if value.tensor is None else read(value.tensor, MANY)
    if array is None:
        return False
    first = array.take([0], axis)
    return bool(np.array_equal(array, np.broadcast_to(first, array.shape)))


class Tracer(Protocol):
    """Interface of the analysis for rules."""

    opset: int
    number: int | None

    def inferred(self, name: str) -> Sizes | None:
        """Return the shape inferred by ONNX, with a symbol for every dynamic size."""

    def follow(self, graph: GraphProto, inputs: Sequence[Value], outer: Mapping[str, Value]) -> list[Value]:
        """Return the properties of the outputs of the body of If, Loop or Scan."""


class Call:
    """A node with its inputs (``None`` if omitted), for an operator's rule; ``scope`` holds all known tensors."""

    def __init__(self, node: NodeProto, inputs: list[Value | None], tracer: Tracer, scope: Mapping[str, Value]) -> None:
        self.node = node
        self.inputs = inputs
        self.tracer = tracer
        self.scope = scope

    @cached_property
    def _attributes(self) -> dict[str, AttributeProto]:
        return {attribute.name: attribute for attribute in self.node.attribute}

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute's value."""
        found = self._attributes.get(name)
        return default if found is None else helper.get_attribute_value(found)

    def get(self, i: int) -> Value | None:
        """Return an optional input."""
        return self.inputs[i] if i < len(self.inputs) else None

    def need(self, i: int) -> Value:
        """Return a required input; raise UnprovenError if it is missing."""
        value = self.get(i)
        if value is None:
            raise self.unknown()
        return value

    def rank(self, i: int = 0) -> int:
        """Return an input's rank; raise UnprovenError if it is unknown."""
        rank = self.need(i).rank
        if rank is None:
            raise self.unranked(self.need(i))
        return rank

    def dims(self, i: int = 0) -> Sizes:
        """Return an input's shape; raise UnprovenError if its rank is unknown."""
        self.rank(i)
        return self.need(i).dims or ()

    def axis(self, axis: int, i: int = 0, extra: int = 0) -> int:
        """Return an axis of an input from the front; raise UnprovenError for a negative one with unknown rank."""
        return axis if axis >= 0 else axis + self.rank(i) + extra

    def content(self, i: int) -> list[Number] | None:
        """Return the elements of an input, ``None`` if unknown."""
        value = self.get(i)
        content = None if value is None else content_of(value)
        return None if content is None else list(content.flat)

    def integers(self, name: str, i: int) -> list[int] | None:
        """Return an attribute of older opsets or input of newer ones, ``None`` if missing; raise if not constant."""
        if name in self._attributes:
            value = self.attribute(name)
            return list(value) if isinstance(value, Sequence) else [value]
        if self.get(i) is None:
            return None
        content = self.content(i)
        if content is None or not all(isinstance(number, int) for number in content):
            raise self.fault(f"has {name} that are not constant", depends=False)
        return [int(number) for number in content if isinstance(number, int)]

    def out(self, rows: Rows | None, dims: Sequence[Size] | None = None, i: int = 0, rank: int | None = None) -> Value:
        """Return an output: the position of the samples, and the shape as far as it is known."""
        name = self.node.output[i] if i < len(self.node.output) else ""
        known = tuple(dims) if dims is not None else self._shape_of(name, rank)
        if known is None:
            return Value(name, None, rows)
        others = known
        if rows is not None:
            if rows.axis >= len(known):
                raise self.unknown()
            before, after = known[: rows.axis], known[rows.axis + 1 :]
            known, others = (*before, rows.size, *after), (*before, *after)
        if any(map(has_batch, others)):
            raise self.fault("uses the number of samples as the size of another axis", depends=True)
        return Value(name, known, rows)

    def _shape_of(self, name: str, rank: int | None) -> Sizes | None:
        """Return the shape inferred by ONNX, or one of symbols if only the rank is known."""
        known = self.tracer.inferred(name)
        if known is not None or rank is None:
            return known
        return tuple(symbol(f"{name}.{axis}") for axis in range(rank))

    def fill(self, size: Size) -> Size:
        """Return a size with the number of samples inserted if the model fixes it."""
        return size if self.tracer.number is None else bound(size, self.tracer.number)

    @property
    def title(self) -> str:
        """The node's name and operator, for messages."""
        return f"node '{self.node.name or next(filter(None, self.node.output), '')}' ({self.node.op_type})"

    def fault(self, clause: str, *, depends: bool) -> UnprovenError:
        """Return the error with a description of what this node does."""
        return UnprovenError(Fault(f"{self.title} {clause}", depends))

    def mixes(self, value: Value) -> UnprovenError:
        """Return the error of a node that works along the sample axis."""
        return self.fault(f"works along the batch axis of '{value.name}'", depends=True)

    def pairs(self, values: Sequence[Value]) -> UnprovenError:
        """Return the error of a node that combines different samples."""
        names = " and ".join(dict.fromkeys(f"'{value.name}'" for value in values))
        return self.fault(f"brings together different samples of {names}", depends=True)

    def by_position(self, value: Value, *, depends: bool) -> UnprovenError:
        """Return the error of a node that reads a shared tensor with a different row for each sample."""
        return self.fault(f"has a row of '{value.name}' for each sample, by its position in the batch", depends=depends)

    def unranked(self, value: Value) -> UnprovenError:
        """Return the error of a node that reads a tensor of unknown rank."""
        return self.fault(f"reads '{value.name}', whose rank is not known", depends=False)

    def unknown(self) -> UnprovenError:
        """Return the error of a node without proven properties."""
        return self.fault("is not known to keep samples apart", depends=False)
