"""Public functions for ONNX models: load, check, inspect, bind shapes, infer, convert and save.

Modules are imported on first access, because importing ``onnx`` takes longer than opening a small model.
"""

from typing import TYPE_CHECKING

from tecoinfer_modelzoo.lazy import lazily

if TYPE_CHECKING:
    from engine.onnx.apart import origin as origin
    from engine.onnx.content import (
        ModelContent as ModelContent,
        external_names as external_names,
        model_content as model_content,
    )
    from engine.onnx.float16 import to_float16 as to_float16, to_float32 as to_float32
    from engine.onnx.half_range import (
        Loss as Loss,
        constant_tensors as constant_tensors,
        fusion_loss_message as fusion_loss_message,
        loss as loss,
    )
    from engine.onnx.large import copy_model as copy_model, fits_message as fits_message, tensor_bytes as tensor_bytes
    from engine.onnx.load import file_hash as file_hash, load_model as load_model, save_model as save_model
    from engine.onnx.shapes import NodeView as NodeView, bind_shapes as bind_shapes, infer_shapes as infer_shapes
    from engine.onnx.table_indices import random_input_bounds as random_input_bounds
    from engine.onnx.tails import KINDS as KINDS, Tail as Tail, output_tails as output_tails
    from engine.onnx.view import (
        dims as dims,
        graph_inputs as graph_inputs,
        metadata as metadata,
        rename_inputs as rename_inputs,
        signature as signature,
        sort_nodes as sort_nodes,
        subgraphs as subgraphs,
        tensors as tensors,
        used_names as used_names,
    )

_HOMES = {
    "engine.onnx.apart": "origin",
    "engine.onnx.content": "ModelContent external_names model_content",
    "engine.onnx.large": "copy_model fits_message tensor_bytes",
    "engine.onnx.load": "file_hash load_model save_model",
    "engine.onnx.shapes": "NodeView bind_shapes infer_shapes",
    "engine.onnx.view": "dims graph_inputs metadata rename_inputs signature sort_nodes subgraphs tensors used_names",
    "engine.onnx.table_indices": "random_input_bounds",
    "engine.onnx.tails": "KINDS Tail output_tails",
    "engine.onnx.float16": "to_float16 to_float32",
    "engine.onnx.half_range": "Loss constant_tensors fusion_loss_message loss",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)
