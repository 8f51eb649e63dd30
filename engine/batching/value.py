"""What is known of one tensor while a graph is followed, and one node with what is known of its inputs."""

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

_FEW = 256
"""Elements up to which the contents of a tensor are followed."""

MANY = 2**22
"""Elements of a constant up to which its rows are compared."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Where the samples are: index ``(o * batch + b) * inner + i`` along ``axis`` belongs to sample ``b``."""

    axis: int
    outer: Size = 1
    inner: Size = 1

    def at(self, axis: int) -> Rows:
        """Return the same arrangement along another axis."""
        return replace(self, axis=axis)

    def without(self, axes: Iterable[int]) -> Rows:
        """Return the same arrangement where these other axes are gone."""
        return self.at(self.axis - sum(axis < self.axis for axis in axes))

    @property
    def size(self) -> Size:
        """Elements along the axis."""
        return times(times(self.outer, BATCH), self.inner)

    @property
    def plain(self) -> bool:
        """Whether there is one element per sample along the axis."""
        return self.outer == 1 and self.inner == 1


@dataclass(frozen=True, slots=True)
class Fault:
    """Why samples are not shown to be independent; ``depends`` where they certainly are not."""

    reason: str
    depends: bool


@dataclass(frozen=True, slots=True)
class Count:
    """Elements of sample ``b`` that are ``stride * b`` plus ``low`` to ``high``: places in a table of all rows.

    Where it is ``led``, that goes for the first element of the last axis, and the others are rows of samples. Where it
    is ``mixed``, places met other numbers, and nothing but its shape can be read.
    """

    stride: Size
    low: int
    high: int
    led: bool = False
    mixed: bool = False


class UnprovenError(Exception):
    """Raised by an operator's rule, with the :class:`Fault`; never leaves this package."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Value:
    """What is known of a tensor. Without ``rows``, ``sized`` and ``fault`` it is the same whatever the samples are.

    Attributes:
        name: the tensor's name.
        dims: its shape, ``None`` where the rank is not known. A size that is not known has a symbol of its own. Only
            the one along the axis of the rows holds the number of samples.
        rows: where sample ``b`` is found, which then depends on sample ``b`` of the inputs alone, and neither on the
            number of samples nor on ``b``.
        content: its elements, where they are few and can be computed from sizes and constants (an object array).
        sized: its elements depend on the number of samples, and on nothing else of them.
        flat: axes along which it is certainly constant.
        tensor: the constant it is.
        fault: why nothing of the above is known.
        count: the elements along the axis of the rows are places of samples, which the rows of others must not be.
    """

    name: str
    dims: Sizes | None = None
    rows: Rows | None = None
    content: Array | None = None
    sized: bool = False
    flat: frozenset[int] = frozenset()
    tensor: TensorProto | None = None
    fault: Fault | None = None
    count: Count | None = None

    @property
    def shared(self) -> bool:
        """Whether it is the same whatever the samples and their number are."""
        return self.rows is None and not self.sized and self.fault is None

    @property
    def rank(self) -> int | None:
        """Number of dimensions."""
        return None if self.dims is None else len(self.dims)

    def has_samples_on(self, *axes: int) -> bool:
        """Say whether its samples lie along one of these axes."""
        return self.rows is not None and self.rows.axis in axes


def constant(name: str, tensor: TensorProto) -> Value:
    """Return what is known of a constant."""
    return Value(name, tuple(tensor.dims), tensor=tensor)


def from_content(name: str, content: Array) -> Value:
    """Return what is known of a tensor whose elements are."""
    sized = any(has_batch(number) for number in content.flat)
    return Value(name, tuple(content.shape), content=content, sized=sized)


def content_of(value: Value) -> Array | None:
    """Return a tensor's elements as an object array, ``None`` where they are not known or many."""
    if value.content is not None or value.tensor is None:
        return value.content
    array = read(value.tensor, _FEW)
    return None if array is None or array.dtype.kind not in "biuf" else objects(array)


def objects(array: Array) -> Array:
    """Return numbers as an object array of Python's."""
    return np.array(array.tolist(), dtype=object).reshape(array.shape)


def read(tensor: TensorProto, most: int) -> Array | None:
    """Return a constant's values if they are at most so many and at hand."""
    if int(np.prod(tensor.dims, dtype=np.int64)) > most or tensor.data_location == TensorProto.EXTERNAL:
        return None
    try:
        return numpy_helper.to_array(tensor)
    except (TypeError, ValueError):  # no numpy type, or no data
        return None


def is_flat(value: Value, axis: int) -> bool:
    """Say whether a shared tensor is certainly constant along an axis."""
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
    """What rules need of the walk over the graph."""

    opset: int
    number: int | None

    def inferred(self, name: str) -> Sizes | None:
        """Return the shape that ONNX infers, with a symbol for every size that is no number."""

    def follow(self, graph: GraphProto, inputs: Sequence[Value], outer: Mapping[str, Value]) -> list[Value]:
        """Return what is known of the outputs of the body of If, Loop or Scan."""


class Call:
    """One node with what is known of its inputs: what an operator's rule works on.

    ``inputs`` are in the node's order, ``None`` for one left out; ``scope`` holds every tensor known so far.
    """

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
        """Return an input that must be there.

        Raises:
            UnprovenError: it is not.
        """
        value = self.get(i)
        if value is None:
            raise self.unknown()
        return value

    def rank(self, i: int = 0) -> int:
        """Return an input's rank.

        Raises:
            UnprovenError: it is not known.
        """
        rank = self.need(i).rank
        if rank is None:
            raise self.fault(f"reads '{self.need(i).name}', whose rank is not known", depends=False)
        return rank

    def dims(self, i: int = 0) -> Sizes:
        """Return an input's shape.

        Raises:
            UnprovenError: its rank is not known.
        """
        self.rank(i)
        return self.need(i).dims or ()

    def axis(self, axis: int, i: int = 0, extra: int = 0) -> int:
        """Return an axis of an input counted from the front.

        Raises:
            UnprovenError: it counts from the back of a rank that is not known.
        """
        return axis if axis >= 0 else axis + self.rank(i) + extra

    def content(self, i: int) -> list[Number] | None:
        """Return the elements of an input, ``None`` where they are not known."""
        value = self.get(i)
        content = None if value is None else content_of(value)
        return None if content is None else list(content.flat)

    def integers(self, name: str, i: int) -> list[int] | None:
        """Return what is an attribute in older opsets and an input in newer ones; ``None`` where neither is there.

        Raises:
            UnprovenError: the input's elements are not known.
        """
        if name in self._attributes:
            value = self.attribute(name)
            return list(value) if isinstance(value, Sequence) else [value]
        if self.get(i) is None:
            return None
        content = self.content(i)
        if content is None or not all(isinstance(number, int) for number in content):
            raise self.fault(f"has {name} that are not known beforehand", depends=False)
        return [int(number) for number in content if isinstance(number, int)]

    # -------------------------------------------------------------------------------------------------- the results

    def out(self, rows: Rows | None, dims: Sequence[Size] | None = None, i: int = 0, rank: int | None = None) -> Value:
        """Return what is known of an output: where its samples are, and its shape as far as rule or ONNX know it."""
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
            raise self.fault("takes the number of samples for the size of another axis", depends=True)
        return Value(name, known, rows)

    def _shape_of(self, name: str, rank: int | None) -> Sizes | None:
        """Return the shape that ONNX infers of a tensor, or one of symbols where the rank at least is known."""
        known = self.tracer.inferred(name)
        if known is not None or rank is None:
            return known
        return tuple(symbol(f"{name}.{axis}") for axis in range(rank))

    def fill(self, size: Size) -> Size:
        """Return a size with the number of samples put in where the model fixes that."""
        return size if self.tracer.number is None else bound(size, self.tracer.number)

    # --------------------------------------------------------------------------------------------------- the faults

    @property
    def title(self) -> str:
        """The node, as the user is told of it."""
        return f"node '{self.node.name or next(filter(None, self.node.output), '')}' ({self.node.op_type})"

    def fault(self, clause: str, *, depends: bool) -> UnprovenError:
        """Return the error that says what this node does."""
        return UnprovenError(Fault(f"{self.title} {clause}", depends))

    def mixes(self, value: Value) -> UnprovenError:
        """Return the error that this node works along the axis of the samples."""
        return self.fault(f"works along the batch axis of '{value.name}'", depends=True)

    def pairs(self, values: Sequence[Value]) -> UnprovenError:
        """Return the error that this node brings samples together with other samples."""
        names = " and ".join(dict.fromkeys(f"'{value.name}'" for value in values))
        return self.fault(f"brings together different samples of {names}", depends=True)

    def unknown(self) -> UnprovenError:
        """Return the error that nothing is known of this node."""
        return self.fault("is not known to keep samples apart", depends=False)
