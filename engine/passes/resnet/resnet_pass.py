"""Pass for convolutional networks: the default pass, then constants are folded into the weights.

ONNX Runtime (version 1.31, CPU, optimizations up to "extended", dynamic batch) only folds BatchNormalization after Conv
or ConvTranspose, Conv then * C or * scalar, and Conv then + C. This pass also folds BatchNormalization after Gemm;
Conv then * [1] or all-ones shape, + 1 value, - or /; C * Conv, C + Conv and constant - Conv; ConvTranspose or Gemm then
+ - * /; and constant * or / before Conv. "1 value" is a scalar, [1] or all-ones shape, "C" [C,1,1] or [1,C,1,1].

Patterns that ONNX Runtime folds are folded here as well, because other targets read the same model, and in float64.

Not folded: a shift before a padded Conv (the padding would have to be shifted), and a batch norm without a linear node
before it (as Mul and Add it takes about twice the time of ONNX Runtime's kernel). onnxscript's rewrite rules for batch
norms are not used: they compute in the weights' dtype and fold ``training_mode=1``, which is not a constant scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.passes import _library
from engine.passes.resnet.linear import fold_after, fold_before

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir


def use_passes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the optimized model; raise PassError if the graph libraries do not support it."""
    return _library.edit(model, _optimise, "resnet_pass")


def _optimise(model: ir.Model) -> None:
    import onnx_ir as ir

    _library.tidy(model)
    opset = model.opset_imports.get("", 0)
    if opset < 7:  # without NumPy broadcasting, a constant's axis is an attribute
        return
    with np.errstate(all="ignore"):  # infinite and NaN results are not folded
        for node in list(ir.traversal.RecursiveGraphIterator(model.graph)):
            if node.graph is not None:  # not removed by an earlier fold
                fold_after(node, opset)
                fold_before(node)
    _library.sweep(model)
