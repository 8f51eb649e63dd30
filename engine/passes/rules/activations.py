"""Activations that exporters write as several nodes, as single ONNX operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations
from typing import TYPE_CHECKING, Any

from engine.passes.rules._match import apply, is_square, near, number, rewriter, stands_for, with_constant, written_by

if TYPE_CHECKING:
    import onnx_ir as ir

_ROOT_HALF = math.sqrt(0.5)
_ROOT_TWO_OVER_PI = math.sqrt(2 / math.pi)
_FLOATS = frozenset({"FLOAT", "FLOAT16", "DOUBLE"})
_HALF_OR_FLOAT = frozenset({"FLOAT", "FLOAT16"})
"""Dtypes of Swish, and of ONNX Runtime's HardSwish; neither supports float64."""


def silu(model: ir.Model) -> int:
    """x * Sigmoid(x) becomes Swish (Ramachandran et al., 2017)."""

    def check(context: Any, x: ir.Value, y: ir.Value) -> bool:
        return stands_for(x, y, _HALF_OR_FLOAT)

    rule = rewriter(lambda op, x: op.Mul(x, op.Sigmoid(x), _outputs=["y"]), lambda op, x, y: op.Swish(x), check)
    return apply(model, [rule], commute=True)


def hard_swish(model: ir.Model) -> int:
    """x * Clip(x + 3, 0, 6) / 6 in any order, and x * HardSigmoid(x), become HardSwish (Howard et al., 2019)."""

    def check(context: Any, y: ir.Value, **_: Any) -> bool:
        return stands_for(_hard_swished(y), y, _HALF_OR_FLOAT)

    def replace(op: Any, y: ir.Value, **_: Any) -> Any:
        return op.HardSwish(_hard_swished(y))

    roots = [lambda op, a, b: op.Mul(a, b, _outputs=["y"]), lambda op, a, b: op.Div(a, b, _outputs=["y"])]
    return apply(model, [rewriter(root, replace, check, keep=True) for root in roots])


def _hard_swished(y: ir.Value) -> ir.Value | None:
    """Return x if a value is the hard swish of x."""
    whole = _sixth(y)
    for value, gate_of in ((whole, _is_relu6), (y, _is_gate)):
        product = written_by(value, "Mul")
        for x, gate in (product.inputs, product.inputs[::-1]) if product is not None else ():
            if x is not None and gate is not None and gate_of(gate, x):
                return x
    return None


def _is_gate(value: ir.Value, x: ir.Value) -> bool:
    """Return whether a value is Clip(x + 3, 0, 6) / 6, or the equivalent HardSigmoid."""
    clip = _sixth(value)
    hard = written_by(value, "HardSigmoid")
    if hard is None:
        return clip is not None and _is_relu6(clip, x)
    slope, middle = hard.attributes.get_float("alpha", 0.2), hard.attributes.get_float("beta", 0.5)
    return hard.inputs[0] is x and math.isclose(slope, 1 / 6, rel_tol=1e-5) and middle == 0.5


def _is_relu6(value: ir.Value, x: ir.Value) -> bool:
    """Return whether a value is Clip(x + 3, 0, 6)."""
    clip = written_by(value, "Clip")
    if clip is None or len(clip.inputs) != 3 or [number(bound) for bound in clip.inputs[1:]] != [0, 6]:
        return False
    shifted = with_constant(clip.inputs[0], "Add")
    return shifted is not None and shifted[0] is x and shifted[1] == 3


def _sixth(value: ir.Value) -> ir.Value | None:
    """Return x if a value is x / 6."""
    found = with_constant(value, "Mul")
    return found[0] if found is not None and near(found[1], 1 / 6, found[0]) else None


def gelu(model: ir.Model) -> int:
    """x / 2 * (1 + Erf(x / sqrt(2))) in any order becomes Gelu (Hendrycks and Gimpel, 2016)."""
    return _gelu(model, _is_erf_of, "none")


def gelu_tanh(model: ir.Model) -> int:
    """x / 2 * (1 + Tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) becomes Gelu with approximate="tanh"."""
    return _gelu(model, _is_tanh_of, "tanh")


def _gelu(model: ir.Model, is_factor: Callable[[ir.Value, ir.Value], bool], approximate: str) -> int:
    """Replace x * 0.5 * (1 + f(x)), in any order of the three factors."""

    def check(context: Any, a: ir.Value, b: ir.Value, c: ir.Value, y: ir.Value) -> bool:
        return stands_for(_source(a, b, c, is_factor), y, _FLOATS)

    def replace(op: Any, a: ir.Value, b: ir.Value, c: ir.Value, y: ir.Value) -> Any:
        return op.Gelu(_source(a, b, c, is_factor), approximate=approximate)

    rule = rewriter(lambda op, a, b, c: op.Mul(op.Mul(a, b), c, _outputs=["y"]), replace, check, keep=True)
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
    return scaled is not None and scaled[0] is x and near(scaled[1], _ROOT_HALF, x)


def _is_tanh_of(value: ir.Value, x: ir.Value) -> bool:
    node = written_by(value, "Tanh")
    scaled = with_constant(node.inputs[0], "Mul") if node is not None else None
    total = written_by(scaled[0], "Add") if scaled is not None and near(scaled[1], _ROOT_TWO_OVER_PI, x) else None
    if total is None or x not in total.inputs:
        return False
    cubic = with_constant(total.inputs[total.inputs[0] is x], "Mul")
    return cubic is not None and near(cubic[1], 0.044715, x) and _is_cube_of(cubic[0], x)


def _is_cube_of(value: ir.Value, x: ir.Value) -> bool:
    power, product = written_by(value, "Pow"), written_by(value, "Mul")
    if power is not None:
        return power.inputs[0] is x and number(power.inputs[1]) == 3
    if product is None or x not in product.inputs:
        return False
    square = written_by(product.inputs[product.inputs[0] is x], "Mul", "Pow")
    return square is not None and is_square(square, x)
