"""Pass for YOLOv5 models: constants are folded into weights, the Focus slices into a convolution, SiLU into one kernel.

===============================================  =============================================================
pattern                                          becomes
===============================================  =============================================================
four strided Slices, Concat, Conv (``Focus``)    one Conv of stride 2 with a kernel of twice the size
batch norm, or constants per channel, at a Conv  part of its weights
x * Sigmoid(x)                                   Swish: one kernel of the card instead of two
x * HardSigmoid(x), x * Clip(x + 3, 0, 6) / 6    HardSwish, which the card fuses with the convolution before it
activation behind a view of a convolution        the activation first, in the convolution's kernel
Transpose pairs, chains of Reshape               one, or none
===============================================  =============================================================

Swish requires opset 24; older models are converted. If this fails, the model keeps its opset and its Sigmoids, and a
warning gives the reason.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from engine.base import PassError
from engine.passes import _library
from engine.passes.resnet import resnet_pass
from engine.passes.rules import RULES, rewrite
from engine.passes.yolov5m.focus import fold_focus

if TYPE_CHECKING:
    import onnx

CHOSEN = ("silu", "hard_swish", "conv_activation", "transpose_pair", "transpose_view", "reshape_chain")


def use_passes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the optimized model; raise PassError if the graph libraries do not support it."""
    folded = _library.edit(resnet_pass.use_passes(model), fold_focus, "yolov5_pass")
    if all(node.op_type != "Sigmoid" for node in folded.graph.node):
        return rewrite(folded, CHOSEN)
    try:
        return rewrite(folded, CHOSEN, opset=RULES["silu"].min_opset)
    except PassError as error:
        warnings.warn(f"yolov5_pass does not fuse Sigmoid and Mul: {error}", stacklevel=2)
        return rewrite(folded, CHOSEN)
