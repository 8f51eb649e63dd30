"""Elementwise operators: arithmetic, activations, comparisons, choices."""

from __future__ import annotations

import math
from typing import Any

import torch

from torch_sdaa.dynamo.aten.table import Meta, Writer, onnx_of, tensor
from torch_sdaa.dynamo.builder import Builder, Unsupported, Value

# --------------------------------------------------------------------------------------------------------- one operand

_UNARY = {"neg": "Neg", "abs": "Abs", "ceil": "Ceil", "floor": "Floor", "round": "Round"}
_ALL_GONE = 40.0
"""``exp(-40)`` is below the resolution of any dtype at 1."""

_UNARY_FLOAT = {
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "reciprocal": "Reciprocal",
    "tanh": "Tanh",
    "erf": "Erf",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "asin": "Asin",
    "acos": "Acos",
    "atan": "Atan",
    "sinh": "Sinh",
    "cosh": "Cosh",
    "asinh": "Asinh",
    "acosh": "Acosh",
    "atanh": "Atanh",
}


def _unary(kind: str, whole: bool) -> Writer:
    def write(b: Builder, meta: Meta, x: Value) -> Value:
        x = b.cast(x, meta.dtype)
        if whole and not x.dtype.is_floating_point and kind in ("Ceil", "Floor", "Round"):
            return x
        if x.dtype is torch.bool:
            raise Unsupported("of booleans")
        return b.op(kind, [x], meta.dtype, meta.shape)

    return write


for _name, _kind in _UNARY.items():
    onnx_of(_name)(_unary(_kind, whole=True))
for _name, _kind in _UNARY_FLOAT.items():
    onnx_of(_name)(_unary(_kind, whole=False))


@onnx_of("relu")
def relu(b: Builder, meta: Meta, x: Value) -> Value:
    """Write ``relu``; ONNX Runtime's supports floats and two integer dtypes."""
    if x.dtype.is_floating_point:
        return b.op("Relu", [x], meta.dtype, meta.shape)
    return b.op("Max", [x, b.scalar(0, x.dtype)], meta.dtype, meta.shape)


def _above_one(b: Builder, x: Value) -> Value:
    """Return ``1 + exp(-x)``."""
    small = b.op("Exp", [b.op("Neg", [x], x.dtype, x.shape)], x.dtype, x.shape)
    return b.op("Add", [small, b.scalar(1.0, x.dtype)], x.dtype, x.shape)


@onnx_of("sigmoid")
def sigmoid(b: Builder, meta: Meta, x: Value) -> Value:
    """Write ``1 / (1 + exp(-x))``: ONNX Runtime's ``Sigmoid`` is 0 below -18, where the device's is ``exp(x)``."""
    x = b.cast(x, meta.dtype)
    return b.op("Reciprocal", [_above_one(b, x)], x.dtype, x.shape)


def _gate(b: Builder, meta: Meta, x: Value) -> Value:
    """Return the sigmoid of a product with ``x``.

    In float32 it is ONNX Runtime's, which takes a quarter of the time; the product is at most 2e-6 off. A narrow
    result would be rounded to another number.
    """
    if meta.narrow is not None:
        return sigmoid(b, meta, x)
    return b.op("Sigmoid", [x], x.dtype, x.shape)


@onnx_of("silu")
def silu(b: Builder, meta: Meta, x: Value) -> Value:
    """Write ``x * sigmoid(x)``; in narrow dtypes as PyTorch, ``x / (1 + exp(-x))``."""
    x = b.cast(x, meta.dtype)
    if meta.narrow is not None:
        return b.op("Div", [x, _above_one(b, x)], meta.dtype, meta.shape)
    return b.op("Mul", [x, _gate(b, meta, x)], meta.dtype, meta.shape)


@onnx_of("silu_backward")
def silu_backward(b: Builder, meta: Meta, grad: Value, x: Value) -> Value:
    """Write ``grad * s * (1 + x * (1 - s))`` for ``s = sigmoid(x)``."""
    grad, x = _pair(b, meta.dtype, grad, x)
    gate, one = _gate(b, meta, x), b.scalar(1.0, meta.dtype)

    def op(kind: str, y: str | Value, z: str | Value) -> Value:
        return b.op(kind, [y, z], meta.dtype, meta.shape)

    return op("Mul", op("Mul", grad, gate), op("Add", op("Mul", x, op("Sub", one, gate)), one))


@onnx_of("rsqrt")
def rsqrt(b: Builder, meta: Meta, x: Value) -> Value:
    """Write the reciprocal square root."""
    root = b.op("Sqrt", [b.cast(x, meta.dtype)], meta.dtype, meta.shape)
    return b.op("Reciprocal", [root], meta.dtype, meta.shape)


@onnx_of("trunc")
def trunc(b: Builder, meta: Meta, x: Value) -> Value:
    """Write the integer part: rounded towards 0."""
    if not x.dtype.is_floating_point:
        return x
    size = b.op("Floor", [b.op("Abs", [x], x.dtype, x.shape)], x.dtype, x.shape)
    return b.op("Mul", [b.op("Sign", [x], x.dtype, x.shape), size], x.dtype, x.shape)


@onnx_of("sign")
def sign(b: Builder, meta: Meta, x: Value) -> Value:
    """Write the sign; that of NaN is 0."""
    made = b.op("Sign", [x], meta.dtype, meta.shape)
    return b.instead_of_nan(x, b.scalar(0, x.dtype), made) if x.dtype.is_floating_point else made


@onnx_of("expm1")
def expm1(b: Builder, meta: Meta, x: Value) -> Value:
    """Write ``exp(x) - 1`` as ``2 sinh(x / 2) exp(x / 2)``, which is exact near 0."""
    return _expm1(b, b.cast(x, meta.dtype))


def _expm1(b: Builder, x: Value) -> Value:
    # For large negative x the result is -1, but exp is 0 and sinh infinite.
    low = b.op("Max", [x, b.scalar(-_ALL_GONE, x.dtype)], x.dtype, x.shape)
    half = b.op("Mul", [low, b.scalar(0.5, x.dtype)], x.dtype, x.shape)
    exp, sinh = (b.op(kind, [half], x.dtype, x.shape) for kind in ("Exp", "Sinh"))
    both = b.op("Mul", [exp, sinh], x.dtype, x.shape)
    return b.op("Mul", [both, b.scalar(2.0, x.dtype)], x.dtype, x.shape)


@onnx_of("log1p")
def log1p(b: Builder, meta: Meta, x: Value) -> Value:
    """Write ``log(1 + x)``; the rounding error of ``1 + x`` is corrected by ``x / ((1 + x) - 1)``."""
    x = b.cast(x, meta.dtype)
    more = b.op("Add", [x, b.scalar(1.0, x.dtype)], x.dtype, x.shape)
    kept = b.op("Sub", [more, b.scalar(1.0, x.dtype)], x.dtype, x.shape)
    whole, none = (b.op("Equal", [kept, each], torch.bool, x.shape) for each in (x, b.scalar(0.0, x.dtype)))
    ratio = b.op("Div", [x, kept], x.dtype, x.shape)
    ratio = b.op("Where", [whole, b.scalar(1.0, x.dtype), ratio], x.dtype, x.shape)  # an infinite x too
    made = b.op("Mul", [b.op("Log", [more], x.dtype, x.shape), ratio], x.dtype, x.shape)
    return b.op("Where", [none, x, made], x.dtype, x.shape)


@onnx_of("isnan")
def isnan(b: Builder, meta: Meta, x: Value) -> Value:
    """Write ``isnan``; False for integers."""
    x = x if x.dtype.is_floating_point else b.cast(x, torch.float32)
    return b.op("IsNaN", [x], torch.bool, meta.shape)


@onnx_of("isinf")
def isinf(b: Builder, meta: Meta, x: Value) -> Value:
    """Write ``isinf``."""
    return b.op("IsInf", [b.cast(x, torch.float32)], torch.bool, meta.shape)


@onnx_of("logical_not", "bitwise_not")
def logical_not(b: Builder, meta: Meta, x: Value) -> Value:
    """Write the negation of booleans."""
    if meta.dtype is not torch.bool:
        return b.op("BitwiseNot", [x], meta.dtype, meta.shape)
    return b.op("Not", [b.cast(x, torch.bool)], torch.bool, meta.shape)


# -------------------------------------------------------------------------------------------------------- two operands


def _pair(b: Builder, dtype: torch.dtype, x: Any, y: Any) -> list[Value]:
    return [tensor(b, x, dtype), tensor(b, y, dtype)]


def _scaled(b: Builder, y: Any, alpha: Any, dtype: torch.dtype) -> Value:
    y = tensor(b, y, dtype)
    if alpha == 1:
        return y
    return b.op("Mul", [y, b.scalar(alpha, dtype)], dtype, y.shape)


@onnx_of("add.Tensor", "add.Scalar")
def add(b: Builder, meta: Meta, x: Any, y: Any, alpha: Any = 1) -> Value:
    """Write a sum; for booleans "or"."""
    kind = "Or" if meta.dtype is torch.bool else "Add"
    return b.op(kind, [tensor(b, x, meta.dtype), _scaled(b, y, alpha, meta.dtype)], meta.dtype, meta.shape)


@onnx_of("sub.Tensor", "sub.Scalar")
def sub(b: Builder, meta: Meta, x: Any, y: Any, alpha: Any = 1) -> Value:
    """Write a difference."""
    return b.op("Sub", [tensor(b, x, meta.dtype), _scaled(b, y, alpha, meta.dtype)], meta.dtype, meta.shape)


@onnx_of("rsub.Scalar", "rsub.Tensor")
def rsub(b: Builder, meta: Meta, x: Any, y: Any, alpha: Any = 1) -> Value:
    """Write a difference with exchanged operands."""
    return b.op("Sub", [tensor(b, y, meta.dtype), _scaled(b, x, alpha, meta.dtype)], meta.dtype, meta.shape)


@onnx_of("mul.Tensor", "mul.Scalar")
def mul(b: Builder, meta: Meta, x: Any, y: Any) -> Value:
    """Write a product; for booleans "and"."""
    kind = "And" if meta.dtype is torch.bool else "Mul"
    return b.op(kind, _pair(b, meta.dtype, x, y), meta.dtype, meta.shape)


@onnx_of("div.Tensor", "div.Scalar")
def div(b: Builder, meta: Meta, x: Any, y: Any) -> Value:
    """Write a floating-point quotient."""
    return b.op("Div", _pair(b, meta.dtype, x, y), meta.dtype, meta.shape)


@onnx_of("addcmul")
def addcmul(b: Builder, meta: Meta, x: Value, y: Value, z: Value, *, value: Any = 1) -> Value:
    """Write ``x + value * y * z``, which the device rounds once."""
    return _added(b, meta, x, _product(b, meta, "Mul", y, z, value))


@onnx_of("addcdiv")
def addcdiv(b: Builder, meta: Meta, x: Value, y: Value, z: Value, *, value: Any = 1) -> Value:
    """Write ``x + value * y / z``, which the device rounds once."""
    return _added(b, meta, x, _product(b, meta, "Div", y, z, value))


def _product(b: Builder, meta: Meta, kind: str, y: Value, z: Value, value: Any) -> Value:
    y, z = _pair(b, meta.dtype, y, z)
    if value != 1:
        y = b.op("Mul", [y, b.scalar(value, meta.dtype)], meta.dtype, y.shape)
    return b.op(kind, [y, z], meta.dtype, torch.broadcast_shapes(y.shape, z.shape))


def _added(b: Builder, meta: Meta, x: Value, y: Value) -> Value:
    return b.op("Add", [b.cast(x, meta.dtype), y], meta.dtype, meta.shape)


@onnx_of("div.Tensor_mode", "div.Scalar_mode")
def div_mode(b: Builder, meta: Meta, x: Any, y: Any, *, rounding_mode: str | None = None) -> Value:
    """Write a rounded quotient."""
    if rounding_mode is None:
        return div(b, meta, x, y)
    if not meta.dtype.is_floating_point:
        made = b.op("Div", _pair(b, meta.dtype, x, y), meta.dtype, meta.shape)
        if rounding_mode == "trunc":
            return made
        raise Unsupported("integers divided and rounded down")
    made = b.op("Div", _pair(b, meta.dtype, x, y), meta.dtype, meta.shape)
    return trunc(b, meta, made) if rounding_mode == "trunc" else b.op("Floor", [made], meta.dtype, meta.shape)


@onnx_of("maximum")
def maximum(b: Builder, meta: Meta, x: Value, y: Value) -> Value:
    """Write the larger of two; NaN if either is."""
    return b.op("Max", _pair(b, meta.dtype, x, y), meta.dtype, meta.shape)


@onnx_of("minimum")
def minimum(b: Builder, meta: Meta, x: Value, y: Value) -> Value:
    """Write the smaller of two; NaN if either is."""
    return b.op("Min", _pair(b, meta.dtype, x, y), meta.dtype, meta.shape)


@onnx_of("pow.Tensor_Scalar")
def pow_scalar(b: Builder, meta: Meta, x: Value, exponent: Any) -> Value:
    """Write a power; squares, cubes and roots by their operators, like PyTorch's kernel."""
    x = b.cast(x, meta.dtype)
    if exponent in (2, 3) or (exponent == -2 and meta.dtype.is_floating_point):
        square = b.op("Mul", [x, x], meta.dtype, meta.shape)
        if exponent == 2:
            return square
        square = meta.stored(b, square, torch.bfloat16)  # PyTorch's kernel rounds it there, not in float16
        if exponent == -2:
            return b.op("Reciprocal", [square], meta.dtype, meta.shape)
        return b.op("Mul", [square, x], meta.dtype, meta.shape)
    if exponent == 0.5 and meta.dtype.is_floating_point:
        return b.op("Sqrt", [x], meta.dtype, meta.shape)
    if exponent == 1:
        return x
    if exponent == -1 and meta.dtype.is_floating_point:
        return b.op("Reciprocal", [x], meta.dtype, meta.shape)
    if not meta.dtype.is_floating_point:
        raise Unsupported("a power of integers")
    return b.op("Pow", [x, b.scalar(exponent, meta.dtype)], meta.dtype, meta.shape)


@onnx_of("pow.Tensor_Tensor", "pow.Scalar")
def pow_tensor(b: Builder, meta: Meta, x: Any, exponent: Value) -> Value:
    """Write a power with a tensor as exponent."""
    if not meta.dtype.is_floating_point:
        raise Unsupported("a power of integers")
    return b.op("Pow", _pair(b, meta.dtype, x, exponent), meta.dtype, meta.shape)


@onnx_of("fmod.Scalar", "fmod.Tensor")
def fmod(b: Builder, meta: Meta, x: Value, y: Any) -> Value:
    """Write the remainder of a division, with the sign of the dividend."""
    return b.op("Mod", _pair(b, meta.dtype, x, y), meta.dtype, meta.shape, fmod=1)


@onnx_of("remainder.Scalar", "remainder.Tensor")
def remainder(b: Builder, meta: Meta, x: Value, y: Any) -> Value:
    """Write the remainder of a division, with the sign of the divisor."""
    x, y = _pair(b, meta.dtype, x, y)
    if not meta.dtype.is_floating_point:
        return b.op("Mod", [x, y], meta.dtype, meta.shape)
    rest = b.op("Mod", [x, y], meta.dtype, meta.shape, fmod=1)
    zero = b.scalar(0.0, meta.dtype)
    below = b.op("Less", [b.op("Mul", [rest, y], meta.dtype, meta.shape), zero], torch.bool, meta.shape)
    moved = b.op("Add", [rest, y], meta.dtype, meta.shape)
    return b.op("Where", [below, moved, rest], meta.dtype, meta.shape)


_COMPARING = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual", "ne": "Equal"}


def _compared(name: str, kind: str) -> Writer:
    def write(b: Builder, meta: Meta, x: Any, y: Any) -> Value:
        dtype = _common(x, y)
        if dtype is torch.bool and kind != "Equal":
            dtype = torch.int32
        made = b.op(kind, _pair(b, dtype, x, y), torch.bool, meta.shape)
        return b.op("Not", [made], torch.bool, meta.shape) if name == "ne" else made

    return write


def _common(x: Any, y: Any) -> torch.dtype:
    """Return the dtype in which two operands are compared."""
    dummies = [torch.empty((1,) * min(v.rank, 1), dtype=v.dtype) if isinstance(v, Value) else v for v in (x, y)]
    return torch.result_type(*dummies)


for _name, _kind in _COMPARING.items():
    onnx_of(f"{_name}.Tensor", f"{_name}.Scalar")(_compared(_name, _kind))

_LOGICAL = {"and": "And", "or": "Or", "xor": "Xor"}


def _logical(kind: str, bitwise: bool) -> Writer:
    def write(b: Builder, meta: Meta, x: Any, y: Any) -> Value:
        if bitwise and meta.dtype is not torch.bool:
            return b.op(f"Bitwise{kind}", _pair(b, meta.dtype, x, y), meta.dtype, meta.shape)
        return b.op(kind, _pair(b, torch.bool, x, y), torch.bool, meta.shape)

    return write


for _name, _kind in _LOGICAL.items():
    onnx_of(f"logical_{_name}")(_logical(_kind, bitwise=False))
    onnx_of(f"bitwise_{_name}.Tensor", f"bitwise_{_name}.Scalar")(_logical(_kind, bitwise=True))

# ------------------------------------------------------------------------------------------------------------- choices


@onnx_of("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(b: Builder, meta: Meta, condition: Value, x: Any, y: Any) -> Value:
    """Write a choice by booleans."""
    return b.op("Where", [b.cast(condition, torch.bool), *_pair(b, meta.dtype, x, y)], meta.dtype, meta.shape)


@onnx_of("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(b: Builder, meta: Meta, x: Value, mask: Value, value: Any) -> Value:
    """Write a value with a number where a mask is true."""
    return b.op("Where", [mask, *_pair(b, meta.dtype, value, x)], meta.dtype, meta.shape)


@onnx_of("clamp", "clamp.Tensor")
def clamp(b: Builder, meta: Meta, x: Value, low: Any = None, high: Any = None) -> Value:
    """Write a value clamped to a range; NaN stays NaN."""
    x = b.cast(x, meta.dtype)
    for kind, bound in (("Max", low), ("Min", high)):
        if bound is None or (not isinstance(bound, Value) and math.isinf(bound) and not meta.dtype.is_floating_point):
            continue
        x = b.op(kind, [x, tensor(b, bound, meta.dtype)], meta.dtype, meta.shape)
    return x


@onnx_of("clamp_min", "clamp_min.Tensor")
def clamp_min(b: Builder, meta: Meta, x: Value, low: Any) -> Value:
    """Write a value clamped from below."""
    return clamp(b, meta, x, low)


@onnx_of("clamp_max", "clamp_max.Tensor")
def clamp_max(b: Builder, meta: Meta, x: Value, high: Any) -> Value:
    """Write a value clamped from above."""
    return clamp(b, meta, x, None, high)


@onnx_of("hardtanh")
def hardtanh(b: Builder, meta: Meta, x: Value, low: Any = -1, high: Any = 1) -> Value:
    """Write a value clamped to a range of numbers."""
    return clamp(b, meta, x, low, high)


# --------------------------------------------------------------------------------------------------------- activations


@onnx_of("gelu")
def gelu(b: Builder, meta: Meta, x: Value, *, approximate: str = "none") -> Value:
    """Write GELU, exact or by ``tanh``."""
    return b.op("Gelu", [x], meta.dtype, meta.shape, approximate=approximate)


@onnx_of("elu")
def elu(b: Builder, meta: Meta, x: Value, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Value:
    """Write ELU and its variants SELU and CELU."""
    x = b.cast(x, meta.dtype)
    below = _times(b, _expm1(b, _times(b, x, input_scale)), alpha * scale)
    above = _times(b, x, scale)
    positive = b.op("Greater", [x, b.scalar(0, x.dtype)], torch.bool, x.shape)
    return b.op("Where", [positive, above, below], x.dtype, x.shape)


def _times(b: Builder, x: Value, number: Any) -> Value:
    return x if number == 1 else b.op("Mul", [x, b.scalar(number, x.dtype)], x.dtype, x.shape)


@onnx_of("leaky_relu")
def leaky_relu(b: Builder, meta: Meta, x: Value, slope: Any = 0.01) -> Value:
    """Write a leaky relu."""
    return b.op("LeakyRelu", [x], meta.dtype, meta.shape, alpha=float(slope))


@onnx_of("hardswish")
def hardswish(b: Builder, meta: Meta, x: Value) -> Value:
    """Write ``x * relu6(x + 3) / 6``."""
    return b.op("HardSwish", [x], meta.dtype, meta.shape)


@onnx_of("hardsigmoid")
def hardsigmoid(b: Builder, meta: Meta, x: Value) -> Value:
    """Write ``relu6(x + 3) / 6``."""
    return b.op("HardSigmoid", [x], meta.dtype, meta.shape, alpha=1 / 6, beta=0.5)


@onnx_of("threshold_backward")
def threshold_backward(b: Builder, meta: Meta, grad: Value, x: Value, threshold: Any) -> Value:
    """Write the gradient of relu: 0 where the input does not exceed the threshold."""
    small = b.op("LessOrEqual", [x, b.scalar(threshold, x.dtype)], torch.bool, x.shape)
    return b.op("Where", [small, b.scalar(0, meta.dtype), b.cast(grad, meta.dtype)], meta.dtype, meta.shape)
