"""The float32 form of a model that holds float16: what it computes where nothing but its weights is rounded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto

_HALF = 10
"""``onnx.TensorProto`` element type."""


def float32_form(model: ModelProto) -> ModelProto:
    """Return a model with every float16 tensor as float32 of the same value; one that holds none as it is."""
    from engine.onnx_graph import tensors
    from engine.sdaa.float16 import widen

    graph = model.graph
    held = {tensor.data_type for tensor in tensors(graph)}
    held |= {info.type.tensor_type.elem_type for info in (*graph.input, *graph.output, *graph.value_info)}
    return widen(model) if _HALF in held else model


def float32_file(path: Path, folder: Path) -> Path:
    """Return a model file itself, or its float32 form written to a folder where it holds float16."""
    from engine.onnx_graph import save_model
    from toolkit.intermediates import load_named

    model = load_named(path)
    wide = float32_form(model)
    if wide is model:
        return path
    save_model(wide, folder / path.name)
    return folder / path.name
