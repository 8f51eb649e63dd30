"""Pass for any model: shape inference, constant folding, and removal of unused parts.

Implemented by onnx-ir and onnxscript. Removes identities, inference Dropout, duplicate subexpressions, dead nodes and
unused weights; keeps the names of graph inputs and outputs, opset, IR version and metadata. Folding does not create
tensors with more than 8192 elements, so models do not grow. The Dropout step requires opset 7 or later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.passes import _library

if TYPE_CHECKING:
    import onnx


def use_passes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the optimized model; raise PassError if the graph libraries do not support it."""
    return _library.edit(model, _library.tidy, "default_pass")
