"""What scripts for the T1 call the pass with fewer points at which the card waits; here, one with fewer kernels.

The vendor's pass puts operators into the graph that synchronise the card. The simulated card has no such operator: it
runs a shard's kernels one after another, each behind a launch. What has a counterpart is to launch less: after
``resnet_pass``, activations move before the views behind a convolution, so that they join its kernel
(``conv_activation``), and transposes and reshapes that copy nothing, or follow one another, go (``transpose_view``,
``transpose_pair``, ``reshape_chain``). A plain ResNet has none of these: there this is ``resnet_pass`` by another name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.passes.resnet import resnet_pass
from engine.passes.rules import rewrite

if TYPE_CHECKING:
    import onnx

RULES = ("conv_activation", "transpose_pair", "transpose_view", "reshape_chain")


def use_passes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the optimised model; ``model`` itself is left as it is.

    Raises:
        PassError: the graph libraries cannot handle this model.
    """
    return rewrite(resnet_pass.use_passes(model), RULES)
