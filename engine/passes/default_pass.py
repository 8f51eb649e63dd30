"""The pass for any model: shape inference, constant folding, and removal of what the outputs do not need.

The work is done by onnx-ir and onnxscript. Identities, inference-time Dropout, repeated subexpressions, dead nodes and
unused weights go; names of graph inputs and outputs, opset, IR version and metadata stay. Folding writes no tensor of
more than 8192 elements, so a model does not grow. Needs opset 7 or later for the Dropout step, any opset for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.passes import _library

if TYPE_CHECKING:
    import onnx


def use_passes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the optimised model; ``model`` itself is left as it is.

    Raises:
        PassError: the graph libraries cannot handle this model.
    """
    return _library.edit(model, _library.tidy, "default_pass")
