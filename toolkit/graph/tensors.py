"""What is known of the tensors that nodes write, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

from engine import Dim

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, ValueInfoProto

NUMBERS = frozenset((1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13))
"""``TensorProto.DataType`` of what numpy holds as numbers: not strings, complex, bfloat16 nor anything smaller."""

_BYTES = {2: 1, 3: 1, 9: 1, 4: 2, 5: 2, 10: 2, 7: 8, 11: 8, 13: 8}
"""Bytes of an element by type, where not 4."""


class Tensors:
    """What nodes of the main graph write.

    Attributes:
        kinds: tensor -> its element type in ONNX (0: unknown).
        skipped: those that are no arrays of numbers -> what they are, such as ``sequence``.
        dims: tensor -> dimensions, where their number is known; graph inputs too.
    """

    def __init__(self, model: ModelProto) -> None:
        from engine.onnx import dims, infer_shapes

        graph = infer_shapes(model).graph
        written = _written(graph)
        self.skipped = {name: what for name, info in written.items() if (what := _no_numbers(info))}
        self.kinds = {name: _element(info) for name, info in written.items() if name not in self.skipped}
        self.dims: dict[str, list[Dim]] = {info.name: dims(info) for info in graph.input}
        self.dims |= {name: dims(info) for name, info in written.items() if info is not None and _has_shape(info)}

    def sizes(self, known: Mapping[str, int]) -> dict[str, int]:
        """Return the bytes of every tensor whose shape is known; symbols have the given sizes."""
        shapes = {
            name: [d if isinstance(d, int) else known.get(d or "", 1) for d in self.dims[name]]
            for name in self.kinds
            if name in self.dims
        }
        return {name: prod(shape) * _BYTES.get(self.kinds[name], 4) for name, shape in shapes.items()}


def _written(graph: GraphProto) -> dict[str, ValueInfoProto | None]:
    """Return what nodes write, in order, with what is known of it."""
    infos = {info.name: info for info in (*graph.value_info, *graph.output)}
    return {name: infos.get(name) for node in graph.node for name in node.output if name}


def _no_numbers(info: ValueInfoProto | None) -> str:
    """Return what a value is where it is known to be no array of numbers, else ""."""
    from onnx import TensorProto

    form = info.type.WhichOneof("value") if info is not None else None
    if form not in (None, "tensor_type"):
        return str(form).removesuffix("_type")
    element = _element(info)
    return TensorProto.DataType.Name(element).lower() if element and element not in NUMBERS else ""


def _element(info: ValueInfoProto | None) -> int:
    return int(info.type.tensor_type.elem_type) if info is not None else 0


def _has_shape(info: ValueInfoProto) -> bool:
    return info.type.WhichOneof("value") == "tensor_type" and bool(info.type.tensor_type.HasField("shape"))
