"""Scaled dot-product attention (Vaswani et al., 2017), which exporters write out, as ONNX's own operator."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, Any

from engine.passes.rules._match import apply, node_of, number, permutation, rewriter, sizes

if TYPE_CHECKING:
    import onnx_ir as ir


def attention(model: ir.Model) -> int:
    """Softmax(q @ k.T * scale (+ mask)) @ v becomes Attention; the scale may stand before, behind, or nowhere."""
    scores = [
        lambda op, q, kt: op.Mul(op.MatMul(q, kt), op_var("times")),
        lambda op, q, kt: op.Div(op.MatMul(q, kt), op_var("over")),
        lambda op, q, kt: op.MatMul(op.Mul(q, op_var("times")), op.Mul(kt, op_var("times_k"))),
        lambda op, q, kt: op.MatMul(op.Mul(q, op_var("times")), kt),
        lambda op, q, kt: op.MatMul(op.Div(q, op_var("over")), kt),
        lambda op, q, kt: op.MatMul(q, kt),
    ]
    return apply(model, [_rule(score, masked) for score, masked in product(scores, (True, False))], commute=True)


def op_var(name: str) -> Any:
    """Return a named place in a pattern for any value."""
    from onnxscript.rewriter import pattern

    return pattern.Var(name)


def _rule(score: Any, masked: bool) -> Any:
    def pattern(op: Any, q: Any, k: Any, v: Any) -> Any:
        logits = score(op, q, op.Transpose(k, _outputs=["kt"]))
        if masked:
            logits = op.Add(logits, op_var("mask"))
        return op.MatMul(op.Softmax(logits, _outputs=["weights"]), v, _outputs=["y"])

    def replace(op: Any, q: ir.Value, k: ir.Value, v: ir.Value, kt: ir.Value, **rest: Any) -> Any:
        order = _key_order(kt) or []
        keys = k if order == sorted(order) else op.Transpose(k, perm=order)
        extra = [rest["mask"]] if masked else []
        return op.Attention(q, keys, v, *extra, scale=_scale(rest))

    return rewriter(pattern, replace, _check)


def _check(context: Any, q: ir.Value, v: ir.Value, kt: ir.Value, weights: ir.Value, **rest: Any) -> bool:
    if any(len(sizes(value) or ()) != 4 for value in (q, v, kt)) or _key_order(kt) is None:
        return False
    if node_of(weights).attributes.get_int("axis", -1) not in (-1, 3):
        return False
    heads = {(sizes(value) or [])[1] for value in (q, v, kt)}
    mask = rest.get("mask")
    fits = mask is None or (mask.dtype == q.dtype and 2 <= len(sizes(mask) or ()) <= 4)
    return len(heads) == 1 and None not in heads and fits and _scale(rest) is not None


def _key_order(kt: ir.Value) -> list[int] | None:
    """Return the order of axes that makes keys (batch, heads, positions, size) of what is transposed to ``kt``."""
    perm = permutation(node_of(kt))
    return [perm[0], perm[1], perm[3], perm[2]] if perm is not None and len(perm) == 4 else None


def _scale(found: dict[str, Any]) -> float | None:
    """Return the factor of the scores; ``None`` where it is no positive constant."""
    factor = 1.0
    for name in ("times", "times_k", "over"):
        if name not in found:
            continue
        value = number(found[name])
        if value is None or value <= 0:
            return None
        factor *= 1 / value if name == "over" else value
    return factor if math.isfinite(factor) else None
