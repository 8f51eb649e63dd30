"""Strided slices, concatenated as channels before a convolution (YOLOv5's Focus), as a single convolution.

With s[g] = x[:, :, dy::2, dx::2] for piece g of the concatenation, a convolution with stride 1 and padding p of the
pieces reads x at 2 * (row + i - p) + dy. It equals a convolution of x with stride 2 and padding 2 * p whose kernel has
the weight of piece g at [2 * i + dy, 2 * j + dx]. The result is exact except for the order of summation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.passes._library import free_name, sweep, tidy
from engine.passes.resnet.affine import only_consumer
from engine.passes.rules._match import integers, sizes

if TYPE_CHECKING:
    import onnx_ir as ir

_CORNERS = {(0, 0), (0, 1), (1, 0), (1, 1)}
_NO_END = 2**31 - 1  # minimum end of a slice that exporters write for "to the end"


def fold_focus(model: ir.Model) -> None:
    """Rewrite all such convolutions in place."""
    fired = 0
    for node in list(model.graph):
        if node.op_type == "Conv" and node.domain == "":
            fired += _fold(model, node)
    if fired:
        sweep(model)
        tidy(model)


def _fold(model: ir.Model, conv: ir.Node) -> bool:
    import onnx_ir as ir

    joined = conv.inputs[0]
    concat = joined.producer() if joined is not None else None
    weight = conv.inputs[1]
    if joined is None or concat is None or concat.op_type != "Concat" or concat.domain != "":
        return False
    found = _pieces(concat)
    if found is None or only_consumer(joined) is not conv or not _is_plain(conv) or weight is None:
        return False
    x, corners = found
    if weight.const_value is None or weight.is_graph_input():
        return False
    old = np.asarray(weight.const_value.numpy())
    pads = [2 * pad for pad in conv.attributes.get_ints("pads", [0, 0, 0, 0])]
    wide = _widened(old, corners)
    name = free_name(model.graph, f"{weight.name}_focus")
    tensor = ir.tensor(wide, name=name)
    value = ir.Value(name=name, const_value=tensor)
    value.shape, value.dtype = ir.Shape(wide.shape), tensor.dtype
    model.graph.register_initializer(value)
    conv.replace_input_with(0, x)
    conv.replace_input_with(1, value)
    conv.attributes["pads"] = ir.AttrInt64s("pads", pads)
    conv.attributes["strides"] = ir.AttrInt64s("strides", [2, 2])
    conv.attributes["kernel_shape"] = ir.AttrInt64s("kernel_shape", list(wide.shape[2:]))
    return True


def _widened(old: np.ndarray[Any, Any], corners: list[tuple[int, int]]) -> np.ndarray[Any, Any]:
    """Return the weight of the single convolution: (outputs, C, 2 * kh, 2 * kw) from (outputs, 4 * C, kh, kw)."""
    outputs, channels, height, width = old.shape
    each = channels // len(corners)
    wide = np.zeros((outputs, each, 2 * height, 2 * width), old.dtype)
    for piece, (dy, dx) in enumerate(corners):
        wide[:, :, dy::2, dx::2] = old[:, piece * each : (piece + 1) * each]
    return wide


def _is_plain(conv: ir.Node) -> bool:
    """Return whether a convolution has rank 4, stride 1, one group, no dilation and explicit padding."""
    given, rank = conv.attributes, len(sizes(conv.inputs[1]) or ())
    ones = all(value == 1 for key in ("strides", "dilations") for value in given.get_ints(key, [1, 1]))
    return rank == 4 and ones and given.get_int("group", 1) == 1 and given.get_string("auto_pad", "NOTSET") == "NOTSET"


def _pieces(concat: ir.Node) -> tuple[ir.Value, list[tuple[int, int]]] | None:
    """Return the source of the pieces and their starts; ``None`` unless these are the four corners."""
    if len(concat.inputs) != len(_CORNERS) or concat.attributes.get_int("axis", 0) not in (1, -3):
        return None
    found = [_corner(value) for value in concat.inputs]
    sources = {id(piece[0]) for piece in found if piece is not None}
    if None in found or len(sources) != 1:
        return None
    corners = [piece[1] for piece in found if piece is not None]
    source = found[0][0] if found[0] is not None else None
    if source is None or set(corners) != _CORNERS or len(sizes(source) or ()) != 4:
        return None
    return source, corners


def _corner(value: ir.Value | None) -> tuple[ir.Value, tuple[int, int]] | None:
    """Return source and starts of Slices with step 2, one each of rows and columns, starting at 0 or 1."""
    starts: dict[int, int] = {}
    while value is not None and len(starts) < 2:
        node = value.producer()
        cut = _cut(node) if node is not None and node.op_type == "Slice" and node.domain == "" else None
        if node is None or cut is None or starts.keys() & cut.keys():
            return None
        starts |= cut
        value = node.inputs[0]
    return (value, (starts[2], starts[3])) if value is not None and starts.keys() == {2, 3} else None


def _cut(node: ir.Node) -> dict[int, int] | None:
    """Return axis -> start of a Slice of every second row or column to the end; else ``None``."""
    shape, given = sizes(node.inputs[0]), [integers(value) for value in node.inputs[1:]]
    if shape is None or len(given) != 4 or None in given:
        return None
    cut: dict[int, int] = {}
    for start, end, axis, step in zip(*(one or [] for one in given), strict=True):
        place = axis % 4
        length = shape[place] if len(shape) == 4 else None
        whole = end >= (_NO_END if length is None else length)
        if place not in (2, 3) or start not in (0, 1) or step != 2 or not whole or place in cut:
            return None
        cut[place] = start
    return cut
