"""Operators after a convolution or matrix product, folded into its weights or moved next to it.

onnxscript's rules are not used: they compute in the weights' dtype and fold ``training_mode=1``, which is not a
constant scale. The float64 folding of ``resnet_pass`` is used instead, for one kind of subsequent operator at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.passes.resnet.affine import only_consumer
from engine.passes.resnet.linear import fold_after
from engine.passes.rules._match import apply, attributes, node_of, rewriter
from engine.sdaa.kernels import LINEAR

if TYPE_CHECKING:
    import onnx_ir as ir

_ACTIVATIONS = ("Relu", "Clip", "LeakyRelu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Elu")
"""The card's fused activations except PRelu, whose slope is bound to an axis."""

_MOVES = ("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze")


def conv_batch_norm(model: ir.Model) -> int:
    """Fold a batch norm into the linear node before it, with subsequent foldable operators."""
    return _fold(model, lambda follower: follower.op_type == "BatchNormalization")


def conv_bias(model: ir.Model) -> int:
    """Fold a constant Add, Sub, Mul or Div into the linear node before it."""
    return _fold(model, lambda follower: follower.op_type in ("Add", "Sub", "Mul", "Div"))


def _fold(model: ir.Model, wanted: Callable[[ir.Node], bool]) -> int:
    opset, fired = model.opset_imports.get("", 0), 0
    with np.errstate(all="ignore"):  # infinite and NaN results are not folded
        for node in list(model.graph):
            follower = only_consumer(node.outputs[0]) if node.graph is not None and node.outputs else None
            fired += follower is not None and wanted(follower) and fold_after(node, opset)
    return fired


def conv_activation(model: ir.Model) -> int:
    """Activation(Move(linear)) becomes Move(Activation(linear)), which saves a kernel."""
    return apply(model, [_rule(kind, move) for kind in _ACTIVATIONS for move in _MOVES])


def _rule(kind: str, move: str) -> Any:
    def pattern(op: Any, x: Any) -> Any:
        moved = getattr(op, move)(x, _allow_other_inputs=True, _outputs=["moved"])
        return getattr(op, kind)(moved, _allow_other_inputs=True, _outputs=["y"])

    def check(context: Any, x: ir.Value, **_: Any) -> bool:
        producer = x.producer()
        return producer is not None and producer.op_type in LINEAR and len(x.uses()) == 1 and not x.is_graph_output()

    def replace(op: Any, x: ir.Value, moved: ir.Value, y: ir.Value) -> Any:
        active = getattr(op, kind)(x, *node_of(y).inputs[1:], **attributes(node_of(y)))
        return getattr(op, move)(active, *node_of(moved).inputs[1:], **attributes(node_of(moved)))

    return rewriter(pattern, replace, check)
