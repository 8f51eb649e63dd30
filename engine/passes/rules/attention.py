"""Scaled dot-product attention (Vaswani et al., 2017) of several nodes, as ONNX's operator."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from engine.passes.resnet.affine import only_consumer
from engine.passes.rules._match import (
    apply,
    node_of,
    permutation,
    rewriter,
    same_size,
    sizes,
    with_constant,
    written_by,
)

if TYPE_CHECKING:
    import onnx_ir as ir

Shape: TypeAlias = "list[int | None] | None"  # a shape as returned by :func:`~engine.passes.rules._match.sizes`

_DTYPES = frozenset({"FLOAT", "FLOAT16"})
_TO_KEYS = [0, 1, 3, 2]


class _Parts(NamedTuple):
    """Inputs of an attention: query and value are (batch, heads, positions, size), ``keys`` before ``order``.

    ``mask`` is added to the scores, ``scale`` multiplies them.
    """

    query: ir.Value
    keys: ir.Value
    order: list[int]
    value: ir.Value
    mask: ir.Value | None
    scale: float


def attention(model: ir.Model) -> int:
    """Softmax(q @ k.T * scale (+ mask)) @ v becomes Attention; the scale may be before, after, or missing."""

    def pattern(op: Any, logits: Any, v: Any) -> Any:
        return op.MatMul(op.Softmax(logits), v, _outputs=["y"])

    def check(context: Any, y: ir.Value, **_: Any) -> bool:
        return _read(node_of(y)) is not None

    def replace(op: Any, y: ir.Value, **_: Any) -> Any:
        found = _read(node_of(y))
        if found is None:
            raise TypeError(f"{y.name} is not an attention")
        straight = found.order == sorted(found.order)
        keys = found.keys if straight else op.Transpose(found.keys, perm=found.order)
        extra = [] if found.mask is None else [found.mask]
        return op.Attention(found.query, keys, found.value, *extra, scale=found.scale)

    return apply(model, [rewriter(pattern, replace, check)])


def _read(product: ir.Node) -> _Parts | None:
    """Return the parts of an attention that ends with a MatMul; ``None`` if incomplete, or parts have other readers."""
    weights, value = product.inputs
    softmax = written_by(weights, "Softmax")
    whole = len(sizes(product.outputs[0]) or ()) == 4  # a scale of higher rank would have increased the rank
    if softmax is None or value is None or not whole or softmax.attributes.get_int("axis", -1) not in (-1, 3):
        return None
    scores, mask = _unmasked(softmax.inputs[0])
    scores, scale = _unscaled(scores)
    factors = _factors(scores)
    if scores is None or factors is None:
        return None
    query, turned, over = factors
    keys, scale = _keys(turned), scale * over
    fits = _fits(query, turned, value) and (mask is None or _is_mask(mask, scores))
    if keys is None or not fits or not 0 < scale < math.inf:
        return None
    return _Parts(query, *keys, value, mask, scale)


def _factors(scores: ir.Value | None) -> tuple[ir.Value, ir.Value, float] | None:
    """Return queries, transposed keys and total scale of scores q @ k.T without other readers."""
    node = written_by(scores, "MatMul")
    if scores is None or node is None or only_consumer(scores) is None:
        return None
    query, over_query = _unscaled(node.inputs[0])
    turned, over_keys = _unscaled(node.inputs[1])
    return None if query is None or turned is None else (query, turned, over_query * over_keys)


def _unmasked(logits: ir.Value | None) -> tuple[ir.Value | None, ir.Value | None]:
    """Return (scores, mask) of scores + mask, in either order; the scores are a product."""
    node = written_by(logits, "Add")
    for scores, mask in (node.inputs, node.inputs[::-1]) if node is not None else ():
        if written_by(_unscaled(scores)[0], "MatMul") is not None:
            return scores, mask
    return logits, None


def _unscaled(value: ir.Value | None) -> tuple[ir.Value | None, float]:
    """Return (x, factor) of a value."""
    return with_constant(value, "Mul") or (value, 1.0)


def _keys(turned: ir.Value) -> tuple[ir.Value, list[int]] | None:
    """Return the source of transposed (possibly flattened) keys, and the order of its axes for 4-D keys."""
    return _turned_whole(turned) or _turned_flat(turned)


def _turned_whole(turned: ir.Value) -> tuple[ir.Value, list[int]] | None:
    node = written_by(turned, "Transpose")
    perm = permutation(node) if node is not None else None
    if node is None or node.inputs[0] is None or perm is None or len(perm) != 4:
        return None
    return node.inputs[0], [perm[i] for i in _TO_KEYS]


def _turned_flat(turned: ir.Value) -> tuple[ir.Value, list[int]] | None:
    swap = written_by(_reshaped(turned), "Transpose")
    if swap is None or permutation(swap) != [0, 2, 1]:
        return None
    keys = _reshaped(swap.inputs[0])
    same = _is_swapped(sizes(keys), sizes(swap.inputs[0]), sizes(turned))
    return (keys, [0, 1, 2, 3]) if keys is not None and same else None


def _reshaped(value: ir.Value | None) -> ir.Value | None:
    """Return the input of the Reshape that computes a value."""
    node = written_by(value, "Reshape")
    return None if node is None else node.inputs[0]


def _is_swapped(whole: Shape, flat: Shape, after: Shape) -> bool:
    """Return whether a tensor of known shape, flattened to 3-D and transposed, ends with its last two axes swapped."""
    if whole is None or flat is None or after is None or len(whole) != 4 or len(after) != 4:
        return False
    return whole[2:] == flat[1:] and [whole[i] for i in _TO_KEYS][1:] == after[1:] and None not in whole[1:]


def _fits(query: ir.Value, turned: ir.Value, value: ir.Value) -> bool:
    """Return whether all have rank 4 and one dtype, and equal batch and heads without broadcasting."""
    shapes = [one.shape for one in (query, turned, value) if one.shape is not None and len(one.shape) == 4]
    if len(shapes) != 3 or query.dtype is None or query.dtype.name not in _DTYPES:
        return False
    first = shapes[0]
    return all(same_size(first[axis], shape[axis]) for shape in shapes[1:] for axis in (0, 1))


def _is_mask(mask: ir.Value, scores: ir.Value) -> bool:
    """Return whether a mask has the scores' dtype, and broadcasts to their shape.

    Its last two axes must be complete: the operator pads a shorter last axis as masked, and ONNX Runtime 1.31 does not
    broadcast the second last.
    """
    if mask.shape is None or scores.shape is None or not 2 <= len(mask.shape) <= 4 or mask.dtype != scores.dtype:
        return False
    pairs = list(zip(reversed(mask.shape), reversed(scores.shape), strict=False))
    return all(same_size(a, b) or (a == 1 and axis > 1) for axis, (a, b) in enumerate(pairs))
