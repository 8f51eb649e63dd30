"""Activations that exporters write out in several nodes, as ONNX's own operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations
from typing import TYPE_CHECKING, Any

from engine.passes.rules._match import apply, is_square, near, node_of, number, rewriter, with_constant, written_by

if TYPE_CHECKING:
    import onnx_ir as ir

_ROOT_HALF = math.sqrt(0.5)
_ROOT_TWO_OVER_PI = math.sqrt(2 / math.pi)
_SIXTH = 1 / 6


def silu(model: ir.Model) -> int:
    """x * Sigmoid(x) becomes Swish (Ramachandran et al., 2017)."""
    return apply(model, [rewriter(lambda op, x: op.Mul(x, op.Sigmoid(x)), lambda op, x: op.Swish(x))], commute=True)


def hard_swish(model: ir.Model) -> int:
    """x * Clip(x + 3, 0, 6) / 6 in any order, and x * HardSigmoid(x), become HardSwish (Howard et al., 2019)."""

    def clipped(op: Any, x: Any) -> Any:
        return op.Clip(op.Add(x, 3.0), 0.0, 6.0)

    patterns = [
        lambda op, x: op.Div(op.Mul(x, clipped(op, x)), 6.0),
        lambda op, x: op.Mul(x, op.Div(clipped(op, x), 6.0)),
        lambda op, x: op.Mul(op.Mul(x, clipped(op, x)), _SIXTH),
        lambda op, x: op.Mul(x, op.Mul(clipped(op, x), _SIXTH)),
    ]
    hard = rewriter(lambda op, x: op.Mul(x, op.HardSigmoid(x, _outputs=["h"])), _hard_swish, _has_slope_of_a_sixth)
    return apply(model, [hard, *(rewriter(p, _hard_swish) for p in patterns)], commute=True)


def _hard_swish(op: Any, x: Any, **_: Any) -> Any:
    return op.HardSwish(x)


def _has_slope_of_a_sixth(context: Any, h: ir.Value, **_: Any) -> bool:
    node = node_of(h)
    slope, middle = node.attributes.get_float("alpha", 0.2), node.attributes.get_float("beta", 0.5)
    return math.isclose(slope, _SIXTH, rel_tol=1e-5) and middle == 0.5


def gelu(model: ir.Model) -> int:
    """x / 2 * (1 + Erf(x / sqrt(2))) in any order becomes Gelu (Hendrycks and Gimpel, 2016)."""
    return _gelu(model, _is_erf_of, "none")


def gelu_tanh(model: ir.Model) -> int:
    """x / 2 * (1 + Tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) becomes Gelu with approximate="tanh"."""
    return _gelu(model, _is_tanh_of, "tanh")


def _gelu(model: ir.Model, is_factor: Callable[[ir.Value, ir.Value], bool], approximate: str) -> int:
    """Replace x * 0.5 * (1 + f(x)), whichever two of the three factors are multiplied first."""

    def check(context: Any, a: ir.Value, b: ir.Value, c: ir.Value) -> bool:
        return _source(a, b, c, is_factor) is not None

    def replace(op: Any, a: ir.Value, b: ir.Value, c: ir.Value) -> Any:
        return op.Gelu(_source(a, b, c, is_factor), approximate=approximate)

    rule = rewriter(lambda op, a, b, c: op.Mul(op.Mul(a, b), c), replace, check, keep=True)
    return apply(model, [rule], commute=True)


def _source(a: ir.Value, b: ir.Value, c: ir.Value, is_factor: Callable[[ir.Value, ir.Value], bool]) -> ir.Value | None:
    for x, half, factor in permutations((a, b, c)):
        one = with_constant(factor, "Add")
        if number(half) == 0.5 and one is not None and one[1] == 1 and is_factor(one[0], x):
            return x
    return None


def _is_erf_of(value: ir.Value, x: ir.Value) -> bool:
    node = written_by(value, "Erf")
    scaled = with_constant(node.inputs[0], "Mul") if node is not None else None
    return scaled is not None and scaled[0] is x and near(scaled[1], _ROOT_HALF)


def _is_tanh_of(value: ir.Value, x: ir.Value) -> bool:
    node = written_by(value, "Tanh")
    scaled = with_constant(node.inputs[0], "Mul") if node is not None else None
    total = written_by(scaled[0], "Add") if scaled is not None and near(scaled[1], _ROOT_TWO_OVER_PI) else None
    if total is None or x not in total.inputs:
        return False
    cubic = with_constant(total.inputs[total.inputs[0] is x], "Mul")
    return cubic is not None and near(cubic[1], 0.044715) and _is_cube_of(cubic[0], x)


def _is_cube_of(value: ir.Value, x: ir.Value) -> bool:
    power, product = written_by(value, "Pow"), written_by(value, "Mul")
    if power is not None:
        return power.inputs[0] is x and number(power.inputs[1]) == 3
    if product is None or x not in product.inputs:
        return False
    square = written_by(product.inputs[product.inputs[0] is x], "Mul", "Pow")
    return square is not None and is_square(square, x)
