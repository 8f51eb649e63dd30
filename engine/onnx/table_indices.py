"""Inputs of a model that are table indices, and inputs that determine sizes."""

from __future__ import annotations

from onnx import GraphProto, ModelProto, NodeProto

from engine.onnx.range_rules import WHOLE
from engine.onnx.shapes import infer_shapes
from engine.onnx.view import dims, graph_inputs, used_names
from tecoinfer_modelzoo.errors import ModelError

_DRAWN = 2**20

_KEEPING = frozenset(
    {
        *("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split", "Expand", "Tile"),
        *("Cast", "Gather", "GatherND", "GatherElements"),
    }
)
"""Operators whose outputs are elements of the first input."""

_SIZING = {
    **dict.fromkeys(("Reshape", "Expand", "Tile", "TopK", "OneHot", "CenterCropPad", "Pad", "Trilu"), (1,)),
    "Slice": (1, 2, 3, 4),
    "Resize": (1, 2, 3),
    "Upsample": (1,),
    "Split": (1,),
    "ConstantOfShape": (0,),
    "Range": (0, 1, 2),
    "Loop": (0,),
    "RandomNormal": (0,),
    "Unsqueeze": (1,),
    "Squeeze": (1,),
    "Dropout": (1,),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow", "EyeLike"), (0,)),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "AffineGrid": (1,),
    "MaxUnpool": (2,),
    "DFT": (1,),
    "STFT": (1, 3),
}
"""Inputs that determine the size of a tensor or the position of a cut."""


def index_bounds(graph: GraphProto) -> dict[str, int]:
    """Return graph input -> smallest number of rows of the tables that it indexes, for a sorted graph with shapes."""
    infos = (*graph.input, *graph.value_info, *graph.output)
    shapes = {info.name: dims(info) for info in infos if info.type.tensor_type.HasField("shape")}
    shapes |= {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    sources = {info.name: info.name for info in graph.input}
    found: dict[str, int] = {}
    for node in graph.node:
        if node.domain not in ("", "ai.onnx"):
            continue
        if node.op_type in _KEEPING and node.input[0] in sources:
            sources |= dict.fromkeys(node.output, sources[node.input[0]])
        if node.op_type in ("Gather", "GatherElements") and node.input[1] in sources:
            shape = shapes.get(node.input[0])
            rows = shape[_axis(node)] if shape and -len(shape) <= _axis(node) < len(shape) else None
            source = sources[node.input[1]]
            if isinstance(rows, int) and rows > 0:
                found[source] = min(rows, found.get(source, rows))
    return found


def _axis(node: NodeProto) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)


def random_input_bounds(model: ModelProto) -> dict[str, tuple[int, int]]:
    """Return minimum and maximum of random values for each integer input that does not determine a size.

    Table indices stay within the table; other inputs within 2**20 and the range of their type.
    """
    try:
        graph = infer_shapes(model).graph
    except ModelError:
        return {}  # left to the runtimes
    rows, sizing = index_bounds(graph), sizing_inputs(graph)
    found = {}
    for info in graph_inputs(model):
        kind = info.type.tensor_type.elem_type
        if kind in WHOLE and info.name not in sizing:
            low, high = WHOLE[kind]
            most = rows.get(info.name, _DRAWN) - 1
            found[info.name] = (0 if info.name in rows else max(low, -most), min(high, most))
    return found


def sizing_inputs(graph: GraphProto) -> set[str]:
    """Return the graph inputs whose values determine a size, a position or an iteration count in the model."""
    wanted: set[str] = set()
    for node in reversed(graph.node):
        places = _SIZING.get(node.op_type, ()) if node.domain in ("", "ai.onnx") else ()
        wanted.update(name for place, name in enumerate(node.input) if name and place in places)
        if wanted.intersection(node.output) and node.op_type not in ("Shape", "Size"):
            wanted.update(used_names(node))
    return wanted & {info.name for info in graph.input}
