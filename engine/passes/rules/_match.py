"""Helpers of the rules: onnxscript's rewriter, and conservative reading of nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnx_ir as ir

Pattern = Callable[..., Any]


def rewriter(pattern: Pattern, replace: Pattern, check: Pattern | None = None, keep: bool = False) -> Any:
    """Return an onnxscript rewrite rule; ``check`` gets the context and the matched parts by name.

    ``keep``: keep matched nodes that have other readers, and remove the others.
    """
    from onnxscript.rewriter.pattern import RewriteRule

    return RewriteRule(pattern, replace, check, remove_nodes=not keep)


def apply(model: ir.Model, rules: Sequence[Any], commute: bool = False) -> int:
    """Apply onnxscript rules in place, also (``commute``) with swapped operands of Add and Mul; return the matches."""
    from onnxscript.rewriter.pattern import RewriteRuleSet

    return int(RewriteRuleSet(list(rules), commute=commute).apply_to_model(model))


def node_of(value: ir.Value) -> ir.Node:
    """Return the node that computes a matched value."""
    node = value.producer()
    if node is None:
        raise TypeError(f"{value.name} is not an output of a node")
    return node


def sizes(value: ir.Value | None) -> list[int | None] | None:
    """Return a value's shape with ``None`` for dynamic sizes; ``None`` if the rank is unknown."""
    if value is None or value.shape is None:
        return None
    return [d if isinstance(d, int) else None for d in value.shape]


def known_from_one(value: ir.Value | None) -> list[int] | None:
    """Return a shape for Reshape, in which one dimension may be -1; ``None`` if impossible."""
    shape = sizes(value)
    if shape is None or shape.count(None) > 1 or 0 in shape:
        return None
    return [-1 if d is None else d for d in shape]


def integers(value: ir.Value | None) -> list[int] | None:
    """Return the elements of an integer constant as a flat list, else ``None``."""
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    array = np.asarray(value.const_value.numpy())
    return [int(i) for i in array.reshape(-1)] if array.dtype.kind in "iu" else None


def number(value: ir.Value | None) -> float | None:
    """Return the value of a float constant with one element, else ``None``."""
    if value is None or value.const_value is None or value.is_graph_input() or value.const_value.size != 1:
        return None
    found = float(np.asarray(value.const_value.numpy()).astype(np.float64).reshape(()))
    return found if math.isfinite(found) else None


def permutation(node: ir.Node) -> list[int] | None:
    """Return a Transpose's order of axes; by default the axes are reversed."""
    perm = node.attributes.get("perm")
    if perm is not None:
        return [int(i) for i in perm.as_ints()]
    rank = sizes(node.inputs[0])
    return list(range(len(rank)))[::-1] if rank is not None else None


def attributes(node: ir.Node) -> dict[str, Any]:
    """Return a node's attributes as keyword arguments of the same operator."""
    return dict(node.attributes)


def written_by(value: ir.Value | None, *kinds: str) -> ir.Node | None:
    """Return the node that computes a value if it is one of these operators, else ``None``."""
    node = value.producer() if value is not None else None
    return node if node is not None and node.domain == "" and node.op_type in kinds else None


def with_constant(value: ir.Value | None, kind: str) -> tuple[ir.Value, float] | None:
    """Return (x, constant) of x + constant (``Add``) or x * constant (``Mul``, or ``Div`` by one), in either order."""
    node = written_by(value, kind, "Div") if kind == "Mul" else written_by(value, kind)
    if node is None:
        return None
    first, second = node.inputs
    found = number(second)
    if first is not None and found is not None:
        divided = node.op_type == "Div"
        return (first, 1 / found if divided else found) if found or not divided else None
    found = number(first)
    return (second, found) if found is not None and second is not None and node.op_type != "Div" else None


def near(value: float, other: float, x: ir.Value) -> bool:
    """Return whether two constants are equal except for rounding to the dtype of ``x``."""
    half = x.dtype is not None and x.dtype.name == "FLOAT16"
    return math.isclose(value, other, rel_tol=1e-3 if half else 1e-6)


def stands_for(x: ir.Value | None, y: ir.Value, dtypes: Collection[str]) -> bool:
    """Return whether an operator of one input applied to ``x`` could compute ``y``: supported dtype and equal rank.

    A constant with one element may increase the rank, if it has more dimensions than its operand.
    """
    before, after = sizes(x), sizes(y)
    known = x is not None and x.dtype is not None and before is not None and after is not None
    return known and x.dtype.name in dtypes and len(before) == len(after)  # type: ignore[union-attr, arg-type]


def same_size(a: int | ir.SymbolicDim, b: int | ir.SymbolicDim) -> bool:
    """Return whether two dimensions are certainly equal: the same number or the same symbol."""
    return a == b and (isinstance(a, int) or a.value is not None)


def is_square(node: ir.Node, x: ir.Value) -> bool:
    """Return whether a Mul or Pow is x * x or x ** 2."""
    return node.inputs[0] is x and (node.inputs[1] is x if node.op_type == "Mul" else number(node.inputs[1]) == 2)
