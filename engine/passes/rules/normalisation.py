"""Normalizations that exporters write as several nodes, as ONNX's operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.passes.rules._match import (
    apply,
    attributes,
    integers,
    is_square,
    node_of,
    rewriter,
    sizes,
    stands_for,
    with_constant,
    written_by,
)

if TYPE_CHECKING:
    import onnx_ir as ir

_DTYPES = frozenset({"FLOAT"})
"""The operator computes mean and variance in float32, which differs for float16 and float64."""


def layer_norm(model: ir.Model) -> int:
    """(x - mean) / sqrt(variance + epsilon) * scale (+ bias) becomes LayerNormalization (Ba et al., 2016)."""

    def replace(op: Any, normal: ir.Value, scale: ir.Value) -> Any:
        x, epsilon = _normalised(normal) or (normal, 0.0)
        return op.LayerNormalization(x, scale, axis=-1, epsilon=epsilon)

    def check(context: Any, normal: ir.Value, scale: ir.Value) -> bool:
        found = _normalised(normal)
        return found is not None and stands_for(found[0], normal, _DTYPES) and _is_vector(scale, found[0])

    def shift(op: Any, x: ir.Value, scale: ir.Value, bias: ir.Value, y: ir.Value) -> Any:
        return op.LayerNormalization(x, scale, bias, **attributes(node_of(y)))

    def shifts(context: Any, x: ir.Value, bias: ir.Value, y: ir.Value, **_: Any) -> bool:
        return node_of(y).attributes.get_int("axis", -1) == -1 and _is_vector(bias, x)

    scaled = rewriter(lambda op, normal, scale: op.Mul(normal, scale), replace, check, keep=True)
    shifted = rewriter(
        lambda op, x, scale, bias: op.Add(op.LayerNormalization(x, scale, _outputs=["y"]), bias), shift, shifts
    )
    return apply(model, [scaled, shifted], commute=True)


def _normalised(value: ir.Value) -> tuple[ir.Value, float] | None:
    """Return x and epsilon of (x - mean(x)) / sqrt(variance(x) + epsilon) over the last axis."""
    parts = _quotient(value)
    root = written_by(parts[1], "Sqrt") if parts is not None else None
    total = with_constant(root.inputs[0], "Add") if root is not None else None
    if parts is None or total is None:
        return None
    centred = written_by(parts[0], "Sub")
    x = centred.inputs[0] if centred is not None else None
    if centred is None or x is None:
        return None
    variance, mean = _averaged(total[0]), _averaged(centred.inputs[1])
    square = written_by(variance, "Mul", "Pow")
    fits = mean is x and square is not None and is_square(square, centred.outputs[0])
    return (x, total[1]) if fits else None


def _quotient(value: ir.Value) -> tuple[ir.Value, ir.Value] | None:
    """Return (a, b) of a / b or a * (1 / b)."""
    node = written_by(value, "Div", "Mul")
    if node is None:
        return None
    sides = [(node.inputs[0], node.inputs[1])]
    if node.op_type == "Mul":
        inverse = [written_by(side, "Reciprocal") for side in node.inputs]
        sides = [(node.inputs[1 - i], inner.inputs[0]) for i, inner in enumerate(inverse) if inner is not None]
    over, under = sides[0] if sides else (None, None)
    return (over, under) if over is not None and under is not None else None


def _averaged(value: ir.Value | None) -> ir.Value | None:
    """Return x if a value is the mean of x over the last axis, kept with size 1; else ``None``."""
    node = written_by(value, "ReduceMean")
    shape = sizes(node.inputs[0]) if node is not None else None
    if node is None or shape is None or node.attributes.get_int("keepdims", 1) != 1:
        return None
    given = node.attributes.get("axes")
    axes = list(given.as_ints()) if given is not None else integers(node.inputs[1] if len(node.inputs) > 1 else None)
    return node.inputs[0] if axes in ([-1], [len(shape) - 1]) else None


def _is_vector(value: ir.Value, x: ir.Value) -> bool:
    """Return whether a value has x's dtype and one element per index of x's last axis."""
    shape = sizes(x)
    return shape is not None and shape[-1] is not None and sizes(value) == shape[-1:] and value.dtype == x.dtype
