"""The pass for convolutional networks: the default pass, then constants folded into the weights they act on.

What ONNX Runtime folds by itself was seen by writing out the model it optimises (version 1.31, CPU, all optimisations
up to "extended", batch dynamic). "1 value" means a scalar, [1] or all-ones shape; "C" means [C,1,1] or [1,C,1,1]:

===========================================  =====================  =========
pattern                                      ONNX Runtime           this pass
===========================================  =====================  =========
BatchNormalization after Conv                folds                  folds
BatchNormalization after ConvTranspose       folds                  folds
BatchNormalization after Gemm                leaves                 folds
Conv, then * C or * scalar                   folds                  folds
Conv, then * [1] or all-ones shape           leaves                 folds
C * Conv, C + Conv (constant first)          leaves                 folds
Conv, then + C                               folds                  folds
Conv, then + 1 value                         leaves                 folds
Conv, then - or /; constant - Conv           leaves                 folds
ConvTranspose or Gemm, then + - * /          leaves                 folds
constant * or / before Conv                  leaves                 folds
===========================================  =====================  =========

What ONNX Runtime folds is folded here all the same: other targets read the same model, and it is done in float64.

Left alone on purpose: a shift before a padded Conv (the padding would have to be shifted too), and a batch norm with no
linear node before it (as Mul and Add it took about twice the time of ONNX Runtime's own kernel). onnxscript's rewrite
rules for batch norms are not used: they compute in the weights' dtype and fold ``training_mode=1``, which is not a
constant scale.
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
    """Return the optimised model; ``model`` itself is left as it is.

    Raises:
        PassError: the graph libraries cannot handle this model.
    """
    return _library.edit(model, _optimise, "resnet_pass")


def _optimise(model: ir.Model) -> None:
    import onnx_ir as ir

    _library.tidy(model)
    opset = model.opset_imports.get("", 0)
    if opset < 7:  # before numpy broadcasting, a constant's axis is an attribute
        return
    with np.errstate(all="ignore"):  # what comes out infinite or NaN is not folded
        for node in list(ir.traversal.RecursiveGraphIterator(model.graph)):
            if node.graph is not None:  # not removed by an earlier fold
                fold_after(node, opset)
                fold_before(node)
    _library.sweep(model)
