"""Channel shuffles (Zhang et al., ShuffleNet, 2018) as gathers, and gathers as part of what reads them.

Exported, a shuffle is Reshape, Transpose, Reshape: a copy between views. As one Gather its index is a constant that can
be cut where a Split follows, and taken into the weights where a convolution does.
"""

from __future__ import annotations

from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.passes.resnet.affine import only_consumer
from engine.passes.rules._match import apply, integers, node_of, permutation, rewriter, sizes

if TYPE_CHECKING:
    import onnx_ir as ir

_AXIS = 1


def channel_shuffle(model: ir.Model) -> int:
    """Reshape, Transpose, Reshape that only reorder axis 1 become one Gather."""

    def pattern(op: Any, x: Any) -> Any:
        split = op.Reshape(x, _allow_other_inputs=True, _outputs=["split"])
        turned = op.Transpose(split, _outputs=["turned"])
        return op.Reshape(turned, _allow_other_inputs=True, _outputs=["joined"])

    def check(context: Any, x: ir.Value, split: ir.Value, turned: ir.Value, joined: ir.Value) -> bool:
        return _order(x, split, turned, joined) is not None

    def replace(op: Any, x: ir.Value, split: ir.Value, turned: ir.Value, joined: ir.Value) -> Any:
        return _gather(op, x, _order(x, split, turned, joined) or [])

    return apply(model, [rewriter(pattern, replace, check)])


def _gather(op: Any, x: Any, order: list[int]) -> Any:
    return op.Gather(x, op.Constant(value_ints=order), axis=_AXIS)


def _order(x: ir.Value, split: ir.Value, turned: ir.Value, joined: ir.Value) -> list[int] | None:
    """Return which channel goes where; ``None`` unless axis 1 alone is split, permuted in itself, and joined again.

    The length of the first axis need not be known: it follows from the others.
    """
    before, inside, after = sizes(x), sizes(split), sizes(joined)
    perm = permutation(node_of(turned))
    if before is None or inside is None or after is None or perm is None or len(before) < 2 or before[1:] != after[1:]:
        return None
    extra = len(inside) - len(before)
    groups, rest = [d or 0 for d in inside[1 : 2 + extra]], inside[2 + extra :]
    axes = perm[1 : 2 + extra]
    if extra < 1 or None in before[1:] or rest != before[2:] or prod(groups) != before[1]:
        return None
    if perm[0] != 0 or perm[2 + extra :] != list(range(2 + extra, len(inside))):
        return None
    order = np.arange(prod(groups)).reshape(groups).transpose([axis - 1 for axis in axes])
    return [int(i) for i in order.reshape(-1)]


def shuffle_split(model: ir.Model) -> int:
    """Split(Gather(x, channels)) along axis 1 becomes one Gather per piece."""
    found = [node for node in model.graph if node.op_type == "Split" and node.domain == ""]
    return sum(_split(model, node) for node in found)


def _split(model: ir.Model, node: ir.Node) -> int:
    """Cut the gather before one Split: written out by hand, since the number of outputs is open."""
    import onnx_ir as ir

    gather = node.inputs[0].producer() if node.inputs[0] is not None else None
    order = _channels(gather)
    lengths = [(sizes(output) or [None, None])[_AXIS : _AXIS + 1] for output in node.outputs]
    axis = node.attributes.get_int("axis", 0)
    rank = len(sizes(node.outputs[0]) or ())
    whole = [length[0] for length in lengths if length and length[0] is not None]
    if gather is None or order is None or axis not in (_AXIS, _AXIS - rank) or len(whole) != len(lengths):
        return 0
    if only_consumer(gather.outputs[0]) is not node or sum(whole) != len(order):
        return 0
    ends = list(accumulate(whole))
    new: list[ir.Node] = []
    for output, start, end in zip(node.outputs, [0, *ends], ends, strict=False):
        index = ir.node("Constant", [], {"value_ints": order[start:end]}, name=f"{output.name}_channels")
        piece = ir.node("Gather", [gather.inputs[0], index.outputs[0]], {"axis": _AXIS}, name=f"{output.name}_gather")
        piece.outputs[0].shape, piece.outputs[0].type = output.shape, output.type
        new += [index, piece]
    values = [piece.outputs[0] for piece in new[1::2]]
    ir.convenience.replace_nodes_and_values(model.graph, node, [node, gather], new, list(node.outputs), values)
    return 1


def _channels(node: ir.Node | None) -> list[int] | None:
    """Return the constant channels a Gather along axis 1 takes, none of them counted from the end."""
    if node is None or node.op_type != "Gather" or node.domain != "" or node.attributes.get_int("axis", 0) != _AXIS:
        return None
    shape, order = sizes(node.inputs[1]), integers(node.inputs[1])
    if order is None or shape is None or len(shape) != 1 or min(order, default=-1) < 0:
        return None
    return order


def gather_conv(model: ir.Model) -> int:
    """Conv(Gather(x, channels), w) becomes Conv(x, w'), where channel order[i] of w' is channel i of w.

    Channels that are not gathered get zeros: more arithmetic, and one kernel less.
    """

    def pattern(op: Any, x: Any, w: Any) -> Any:
        gathered = op.Gather(x, _allow_other_inputs=True, _outputs=["gathered"])
        return op.Conv(gathered, w, _allow_other_inputs=True, _outputs=["y"])

    def check(context: Any, x: ir.Value, w: ir.Value, gathered: ir.Value, y: ir.Value) -> bool:
        order, shape = _channels(node_of(gathered)), sizes(x)
        grouped = node_of(y).attributes.get_int("group", 1) != 1
        if order is None or shape is None or len(shape) < 3 or shape[_AXIS] is None or grouped:
            return False
        constant = w.const_value is not None and not w.is_graph_input()
        return constant and len(set(order)) == len(order)

    def replace(op: Any, x: ir.Value, w: ir.Value, gathered: ir.Value, y: ir.Value) -> Any:
        import onnx_ir as ir

        node, order, shape = node_of(y), _channels(node_of(gathered)), sizes(x)
        old: np.ndarray[Any, Any] = np.asarray(w.const_value.numpy() if w.const_value is not None else ())
        wide = np.zeros((old.shape[0], (shape or [])[_AXIS] or 0, *old.shape[2:]), old.dtype)
        wide[:, order] = old
        name = f"{y.name}_reordered_weight"
        weight = op.initializer(ir.tensor(wide, name=name), name)
        return op.Conv(x, weight, *node.inputs[2:], **dict(node.attributes))

    return apply(model, [rewriter(pattern, replace, check)])
