"""ResNet pass with fewer kernels, under the name of the vendor's pass with fewer synchronization points.

The vendor's pass inserts operators that synchronize the card. The simulated card has no such operator: it runs the
kernels of a shard one after another, each with a launch. The equivalent is to launch fewer kernels: after
``resnet_pass``, activations move before the views behind a convolution, so that they join its kernel
(``conv_activation``), and transposes and reshapes without a copy, or in sequence, are merged (``transpose_view``,
``transpose_pair``, ``reshape_chain``). A plain ResNet has none of these and is treated as by ``resnet_pass``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.passes.resnet import resnet_pass
from engine.passes.rules import rewrite

if TYPE_CHECKING:
    import onnx

RULES = ("conv_activation", "transpose_pair", "transpose_view", "reshape_chain")


def use_passes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the optimized model; raise PassError if the graph libraries do not support it."""
    return rewrite(resnet_pass.use_passes(model), RULES)
