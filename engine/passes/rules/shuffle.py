"""Channel shuffles (Zhang et al., ShuffleNet, 2018) as gathers, and gathers merged into their readers.

A shuffle is exported as Reshape, Transpose, Reshape: a copy between views. As a Gather, its constant index can be
divided before a Split, and folded into the weights of a convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.passes._library import free_name
from engine.passes.resnet.affine import only_consumer
from engine.passes.rules._match import apply, integers, node_of, permutation, rewriter, sizes

if TYPE_CHECKING:
    import onnx_ir as ir

_AXIS = 1


def channel_shuffle(model: ir.Model) -> int:
    """Reshape, Transpose, Reshape that only permute axis 1 become one Gather."""

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
    """Return the permutation of channels; ``None`` unless only axis 1 is split, permuted and joined."""
    before, inside, after = sizes(x), sizes(split), sizes(joined)
    perm = permutation(node_of(turned))
    if before is None or inside is None or after is None or perm is None or len(before) < 2 or before[1:] != after[1:]:
        return None
    groups = _groups(before, inside)
    end = 1 + len(groups)
    if not groups or perm[0] != 0 or perm[end:] != list(range(end, len(inside))):
        return None
    order = np.arange(prod(groups)).reshape(groups).transpose([axis - 1 for axis in perm[1:end]])
    return [int(i) for i in order.reshape(-1)]


def _groups(before: list[int | None], inside: list[int | None]) -> list[int]:
    """Return the sizes into which axis 1 is split; empty if other axes change."""
    extra = len(inside) - len(before)
    groups, rest = [d or 0 for d in inside[1 : 2 + extra]], inside[2 + extra :]
    alone = None not in before[1:] and rest == before[2:] and prod(groups) == before[1]
    return groups if extra >= 1 and alone else []


def shuffle_split(model: ir.Model) -> int:
    """Split(Gather(x, channels)) along axis 1, or Slices of it, become one Gather per piece."""
    nodes = [node for node in model.graph if node.domain == ""]
    fired = sum(_split(model, node) for node in nodes if node.op_type == "Split")
    return fired + sum(_slices(model, node) for node in nodes if node.op_type == "Gather")


def _slices(model: ir.Model, gather: ir.Node) -> int:
    """Replace Slices along the channels, the only readers of a gather, by gathers."""
    import onnx_ir as ir

    order, gathered = _channels(gather), gather.outputs[0]
    readers = [use.node for use in gathered.uses()]
    if order is None or gathered.is_graph_output() or any(gathered in node.inputs[1:] for node in readers):
        return 0
    pieces = [_sliced(node, order) if node.graph is gather.graph else None for node in readers]
    if not pieces or None in pieces:
        return 0
    for node, piece in zip(readers, pieces, strict=True):
        new, values = _gathers(gather, node.outputs, [piece or []])
        ir.convenience.replace_nodes_and_values(model.graph, node, [node], new, list(node.outputs), values)
    return 1


def _sliced(node: ir.Node, order: list[int]) -> list[int] | None:
    """Return the gathered channels that a Slice selects; ``None`` if it is not a Slice along the channels."""
    if node.op_type != "Slice" or node.domain != "" or len(node.inputs) < 4:
        return None
    bounds = [integers(value) for value in node.inputs[1:]]
    rank = len(sizes(node.inputs[0]) or ())
    starts, ends, axes, *steps = bounds
    if starts is None or ends is None or axes not in ([_AXIS], [_AXIS - rank]) or steps not in ([], [[1]]) or not rank:
        return None
    return order[starts[0] : ends[0]] or None


def _split(model: ir.Model, node: ir.Node) -> int:
    """Replace a gather and its Split by gathers; not an onnxscript rule, because the number of outputs varies."""
    import onnx_ir as ir

    gather = node.inputs[0].producer() if node.inputs[0] is not None else None
    order, lengths = _channels(gather), _lengths(node)
    axis = node.attributes.get_int("axis", 0)
    rank = len(sizes(node.outputs[0]) or ())
    if gather is None or order is None or lengths is None or axis not in (_AXIS, _AXIS - rank):
        return 0
    if only_consumer(gather.outputs[0]) is not node or sum(lengths) != len(order):
        return 0
    ends = list(accumulate(lengths))
    pieces = [order[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    new, values = _gathers(gather, node.outputs, pieces)
    ir.convenience.replace_nodes_and_values(model.graph, node, [node, gather], new, list(node.outputs), values)
    return 1


def _lengths(node: ir.Node) -> list[int] | None:
    """Return the sizes of a node's outputs along axis 1; ``None`` if one is unknown."""
    found = [(sizes(output) or [None, None])[_AXIS : _AXIS + 1] for output in node.outputs]
    known = [length[0] for length in found if length and length[0] is not None]
    return known if len(known) == len(found) else None


def _gathers(
    gather: ir.Node, outputs: Sequence[ir.Value], pieces: Sequence[list[int]]
) -> tuple[list[ir.Node], list[ir.Value]]:
    """Return nodes that gather each piece from the input of ``gather``, and their outputs."""
    import onnx_ir as ir

    new: list[ir.Node] = []
    for output, piece in zip(outputs, pieces, strict=True):
        index = ir.node("Constant", [], {"value_ints": piece}, name=f"{output.name}_channels")
        taken = ir.node("Gather", [gather.inputs[0], index.outputs[0]], {"axis": _AXIS}, name=f"{output.name}_gather")
        taken.outputs[0].shape, taken.outputs[0].type = output.shape, output.type
        new += [index, taken]
    return new, [node.outputs[0] for node in new[1::2]]


def _channels(node: ir.Node | None) -> list[int] | None:
    """Return the constant, non-negative channels of a Gather along axis 1."""
    if node is None or node.op_type != "Gather" or node.domain != "" or node.attributes.get_int("axis", 0) != _AXIS:
        return None
    shape, order = sizes(node.inputs[1]), integers(node.inputs[1])
    if order is None or shape is None or len(shape) != 1 or min(order, default=-1) < 0:
        return None
    return order


def gather_conv(model: ir.Model) -> int:
    """Conv(Gather(x, channels), w) becomes Conv(x, w'): channel order[i] of w' is w's i, others 0; one kernel less."""

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
        name = free_name(model.graph, f"{y.name}_reordered_weight")
        weight = op.initializer(ir.tensor(wide, name=name), name)
        return op.Conv(x, weight, *node.inputs[2:], **dict(node.attributes))

    return apply(model, [rewriter(pattern, replace, check)])
