"""Transposes and reshapes that cancel out, can be merged, or do not need a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.passes.rules._match import apply, attributes, known_from_one, node_of, permutation, rewriter, sizes

if TYPE_CHECKING:
    import onnx_ir as ir

ELEMENTWISE = (
    *("Abs", "Cast", "Ceil", "Clip", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu"),
    *("Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Softplus", "Sqrt", "Swish", "Tanh"),
)
"""Elementwise operators of one tensor."""

VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


def transpose_pair(model: ir.Model) -> int:
    """Transpose(Transpose(x)) becomes one Transpose, or x itself."""

    def pattern(op: Any, x: Any) -> Any:
        return op.Transpose(op.Transpose(x, _outputs=["inner"]), _outputs=["outer"])

    def check(context: Any, inner: ir.Value, outer: ir.Value, **_: Any) -> bool:
        return _composed(inner, outer) is not None

    def replace(op: Any, x: ir.Value, inner: ir.Value, outer: ir.Value) -> Any:
        return _transpose(op, x, _composed(inner, outer))

    return apply(model, [rewriter(pattern, replace, check, keep=True)])


def _composed(inner: ir.Value, outer: ir.Value) -> list[int] | None:
    first, second = permutation(node_of(inner)), permutation(node_of(outer))
    return [first[i] for i in second] if first is not None and second is not None else None


def _transpose(op: Any, x: Any, perm: list[int] | None) -> Any:
    return op.Identity(x) if perm == list(range(len(perm or ()))) else op.Transpose(x, perm=perm)


def transpose_past(model: ir.Model) -> int:
    """Transpose, elementwise operator, Transpose becomes the operator and the two transposes joined."""

    def rule(kind: str) -> Any:
        def pattern(op: Any, x: Any) -> Any:
            inner = op.Transpose(x, _outputs=["inner"])
            middle = getattr(op, kind)(inner, _allow_other_inputs=True, _outputs=["middle"])
            return op.Transpose(middle, _outputs=["outer"])

        def check(context: Any, inner: ir.Value, outer: ir.Value, **_: Any) -> bool:
            return _composed(inner, outer) is not None

        def replace(op: Any, x: ir.Value, inner: ir.Value, middle: ir.Value, outer: ir.Value) -> Any:
            done = getattr(op, kind)(x, *node_of(middle).inputs[1:], **attributes(node_of(middle)))
            return _transpose(op, done, _composed(inner, outer))

        return rewriter(pattern, replace, check)

    return apply(model, [rule(kind) for kind in ELEMENTWISE])


def transpose_view(model: ir.Model) -> int:
    """A Transpose that keeps the order of all axes longer than 1 becomes a Reshape."""

    def pattern(op: Any, x: Any) -> Any:
        return op.Transpose(x, _outputs=["outer"])

    def check(context: Any, x: ir.Value, outer: ir.Value) -> bool:
        perm, shape = permutation(node_of(outer)), sizes(x)
        if perm is None or shape is None or _turned(x, outer) is None:
            return False
        moved = [axis for axis in perm if shape[axis] != 1]
        return moved == sorted(moved)

    def replace(op: Any, x: ir.Value, outer: ir.Value) -> Any:
        return op.Reshape(x, _shape(op, _turned(x, outer) or []))

    return apply(model, [rewriter(pattern, replace, check)])


def _turned(x: ir.Value, outer: ir.Value) -> list[int] | None:
    """Return the shape of a transposed x for Reshape."""
    perm, shape = permutation(node_of(outer)), known_from_one(x)
    return [shape[i] for i in perm] if perm is not None and shape is not None else None


def _shape(op: Any, shape: list[int]) -> Any:
    return op.Constant(value_ints=shape)


def reshape_chain(model: ir.Model) -> int:
    """Consecutive views become one Reshape (the default pass removes views without effect)."""

    def chain(first: str, second: str) -> Any:
        def pattern(op: Any, x: Any) -> Any:
            inner = getattr(op, first)(x, _allow_other_inputs=True)
            return getattr(op, second)(inner, _allow_other_inputs=True, _outputs=["outer"])

        def replace(op: Any, x: ir.Value, outer: ir.Value) -> Any:
            return op.Reshape(x, _shape(op, known_from_one(outer) or []))

        return rewriter(pattern, replace, lambda context, outer, **_: known_from_one(outer) is not None, keep=True)

    return apply(model, [chain(a, b) for a in VIEWS for b in VIEWS])
