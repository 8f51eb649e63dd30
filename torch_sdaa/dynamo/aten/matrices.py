"""Matrix products."""

from __future__ import annotations

from typing import Any

from torch_sdaa.dynamo.aten.table import Meta, onnx_of
from torch_sdaa.dynamo.builder import Builder, Unsupported, Value


def _product(b: Builder, meta: Meta, x: Value, y: Value) -> Value:
    """Write a product of two matrices; transposed ones are read in their original layout."""
    left, right = b.transposed(x), b.transposed(y)
    if left is None and right is None:
        return b.op("MatMul", [x, y], meta.dtype, meta.shape)
    flips = {"transA": int(left is not None), "transB": int(right is not None)}
    return b.op("Gemm", [left or x, right or y], meta.dtype, meta.shape, **flips)


def _float(meta: Meta) -> None:
    if not meta.dtype.is_floating_point:
        raise Unsupported("a matrix product of integers")


@onnx_of("mm")
def mm(b: Builder, meta: Meta, x: Value, y: Value) -> Value:
    """Write a product of two matrices."""
    _float(meta)
    return _product(b, meta, x, y)


@onnx_of("bmm")
def bmm(b: Builder, meta: Meta, x: Value, y: Value) -> Value:
    """Write products of matrices in two batches."""
    _float(meta)
    return b.op("MatMul", [x, y], meta.dtype, meta.shape)


@onnx_of("addmm")
def addmm(b: Builder, meta: Meta, bias: Value, x: Value, y: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    """Write a product of two matrices plus a bias."""
    _float(meta)
    left, right = b.transposed(x), b.transposed(y)
    flips = {"transA": int(left is not None), "transB": int(right is not None)}
    scales = {"alpha": float(alpha), "beta": float(beta)}
    return b.op("Gemm", [left or x, right or y, bias], meta.dtype, meta.shape, **flips, **scales)
