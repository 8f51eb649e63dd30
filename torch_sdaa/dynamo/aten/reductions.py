"""Sums, means, extrema, counts, cumulative sums, top-k."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_sdaa.dynamo.aten.table import Meta, onnx_of, tensor
from torch_sdaa.dynamo.builder import Builder, Unsupported, Value


def _axes(x: Value, dims: Any) -> list[int]:
    if isinstance(dims, int):
        dims = [dims]
    return [axis % x.rank for axis in dims] if dims and x.rank else list(range(x.rank))


def _reduced(b: Builder, meta: Meta, kind: str, x: Value, dims: Any, keep: bool) -> Value:
    x = b.cast(x, meta.dtype)
    return b.reduce(kind, x, _axes(x, dims), keep)


@onnx_of("sum.dim_IntList", "sum")
def sum_(b: Builder, meta: Meta, x: Value, dims: Any = None, keep: bool = False, **_: Any) -> Value:
    """Write a sum."""
    return _reduced(b, meta, "ReduceSum", x, dims, keep)


@onnx_of("mean.dim", "mean")
def mean(b: Builder, meta: Meta, x: Value, dims: Any = None, keep: bool = False, **_: Any) -> Value:
    """Write a mean."""
    return _reduced(b, meta, "ReduceMean", x, dims, keep)


@onnx_of("prod", "prod.dim_int")
def prod(b: Builder, meta: Meta, x: Value, dim: Any = None, keep: bool = False, **_: Any) -> Value:
    """Write a product."""
    return _reduced(b, meta, "ReduceProd", x, dim, keep)


@onnx_of("amax")
def amax(b: Builder, meta: Meta, x: Value, dims: Any = None, keep: bool = False) -> Value:
    """Write a maximum."""
    return b.extreme("ReduceMax", b.cast(x, meta.dtype), _axes(x, dims), keep)


@onnx_of("amin")
def amin(b: Builder, meta: Meta, x: Value, dims: Any = None, keep: bool = False) -> Value:
    """Write a minimum."""
    return b.extreme("ReduceMin", b.cast(x, meta.dtype), _axes(x, dims), keep)


onnx_of("max")(lambda b, meta, x: amax(b, meta, x))
onnx_of("min")(lambda b, meta, x: amin(b, meta, x))


@onnx_of("any", "any.dim", "any.dims")
def any_(b: Builder, meta: Meta, x: Value, dims: Any = None, keep: bool = False) -> Value:
    """Write whether any element is true."""
    whole = b.cast(b.cast(x, torch.bool), torch.int32)
    return b.cast(b.reduce("ReduceMax", whole, _axes(x, dims), keep), torch.bool)


@onnx_of("all", "all.dim", "all.dims")
def all_(b: Builder, meta: Meta, x: Value, dims: Any = None, keep: bool = False) -> Value:
    """Write whether all elements are true."""
    whole = b.cast(b.cast(x, torch.bool), torch.int32)
    return b.cast(b.reduce("ReduceMin", whole, _axes(x, dims), keep), torch.bool)


def _variance(b: Builder, x: Value, dims: Any, correction: Any, keep: bool) -> tuple[Value, Value]:
    """Write a variance and its mean, from the distances to the mean."""
    axes = _axes(x, dims)
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    centre = b.reduce("ReduceMean", x, axes, keep=True)
    apart = b.op("Sub", [x, centre], x.dtype, x.shape)
    squares = b.op("Mul", [apart, apart], x.dtype, x.shape)
    total = b.reduce("ReduceSum", squares, axes, keep=keep)
    left = max(count - (1 if correction is None else correction), 0)
    if not left:
        raise Unsupported("a variance of too few elements")
    made = b.op("Div", [total, b.scalar(float(left), x.dtype)], x.dtype, total.shape)
    return made, b.reshape(centre, total.shape)


@onnx_of("var.correction")
def var(b: Builder, meta: Meta, x: Value, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Value:
    """Write a variance."""
    return _variance(b, x, dims, correction, keepdim)[0]


@onnx_of("var_mean.correction")
def var_mean(
    b: Builder, meta: Meta, x: Value, dims: Any = None, *, correction: Any = None, keepdim: bool = False
) -> list[Value]:
    """Write a variance and a mean."""
    return list(_variance(b, x, dims, correction, keepdim))


def _best(kind: str) -> Any:
    def write(b: Builder, meta: Meta, x: Value, dim: int | None = None, keep: bool = False) -> Value:
        flat = x if dim is not None else b.reshape(x, (x.numel,))
        if x.rank == 0 or x.dtype is torch.bool:
            raise Unsupported("an index in a scalar, or of booleans")
        axis = (dim or 0) % flat.rank
        shape = [1 if i == axis else d for i, d in enumerate(flat.shape)]
        return b.reshape(_place(b, kind, flat, axis, shape)[0], meta.shape)

    return write


def _place(b: Builder, kind: str, x: Value, axis: int, shape: Sequence[int]) -> tuple[Value, Value | None]:
    """Write the index of the first extremum, of the first NaN if there is one, and whether there is one."""
    more = {"axis": axis, "keepdims": 1}
    made = b.op(kind, [x], torch.int64, shape, **more)
    if not x.dtype.is_floating_point:
        return made, None
    nans = b.nans(x, torch.int32)
    found = b.reduce("ReduceMax", nans, [axis], keep=True)
    first = b.op("ArgMax", [nans], torch.int64, shape, **more)
    return b.op("Where", [b.cast(found, torch.bool), first, made], torch.int64, shape), found


onnx_of("argmax")(_best("ArgMax"))
onnx_of("argmin")(_best("ArgMin"))


def _with_place(kind: str, place: str) -> Any:
    def write(b: Builder, meta: Meta, x: Value, dim: int, keep: bool = False) -> list[Value]:
        if x.rank == 0 or x.dtype is torch.bool:
            raise Unsupported("over a scalar, or of booleans")
        axis = dim % x.rank
        shape = [1 if i == axis else d for i, d in enumerate(x.shape)]
        values = b.op(kind, [x, b.constant([axis])], x.dtype, shape, keepdims=1)
        where, nans = _place(b, place, x, axis, shape)
        values = values if nans is None else b.or_nan(values, nans)
        final = meta.shape if meta.results[0] else [d for i, d in enumerate(shape) if keep or i != axis]
        return [b.reshape(values, final), b.reshape(where, final)]

    return write


onnx_of("max.dim")(_with_place("ReduceMax", "ArgMax"))
onnx_of("min.dim")(_with_place("ReduceMin", "ArgMin"))


@onnx_of("cumsum")
def cumsum(b: Builder, meta: Meta, x: Value, dim: int, **_: Any) -> Value:
    """Write a cumulative sum."""
    x = b.cast(x, meta.dtype)
    if not x.rank:
        return x
    return b.op("CumSum", [x, b.constant(dim % x.rank)], meta.dtype, meta.shape)


@onnx_of("topk")
def topk(
    b: Builder, meta: Meta, x: Value, k: int, dim: int = -1, largest: bool = True, sort: bool = True
) -> list[Value]:
    """Write the largest elements and their indices."""
    if not x.rank:
        raise Unsupported("of a scalar")
    if b.is_narrow(x):
        raise Unsupported("of integers or rounded numbers: the order of equal ones differs")
    shape = [k if i == dim % x.rank else d for i, d in enumerate(x.shape)]
    more = {"axis": dim % x.rank, "largest": int(largest), "sorted": int(sort)}
    # NaN counts as the largest; ONNX Runtime does not define its order.
    sorted_by = b.instead_of_nan(x, b.scalar(float("inf"), x.dtype), x)
    _, places = b.ops("TopK", [sorted_by, b.constant([k])], [(x.dtype, shape), (torch.int64, shape)], **more)
    return [b.op("GatherElements", [x, places], x.dtype, shape, axis=dim % x.rank), places]


@onnx_of("dot")
def dot(b: Builder, meta: Meta, x: Value, y: Value) -> Value:
    """Write the product of two vectors."""
    return b.op("MatMul", [x, y], meta.dtype, ())


@onnx_of("linalg_vector_norm")
def vector_norm(
    b: Builder, meta: Meta, x: Value, order: Any = 2, dims: Sequence[int] | None = None, keep: bool = False, **_: Any
) -> Value:
    """Write the norm of a vector."""
    x = tensor(b, x, meta.dtype)
    if order == 2:
        squares = b.op("Mul", [x, x], x.dtype, x.shape)
        total = b.reduce("ReduceSum", squares, _axes(x, dims), keep)
        return b.op("Sqrt", [total], x.dtype, total.shape)
    sizes = b.op("Abs", [x], x.dtype, x.shape)
    if order == 1:
        return b.reduce("ReduceSum", sizes, _axes(x, dims), keep)
    if order == float("inf"):
        return b.extreme("ReduceMax", sizes, _axes(x, dims), keep)
    raise Unsupported(f"a norm of order {order}")
