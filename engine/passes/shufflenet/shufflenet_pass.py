"""The pass for networks with channel shuffles: gathers, cut where a Split follows, folded where a Conv does.

What each step saves on the simulated card is in ``docs/shufflenet.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.passes.rules import rewrite

if TYPE_CHECKING:
    import onnx

RULES = ("channel_shuffle", "shuffle_split", "gather_conv")


def use_passes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the optimised model; ``model`` itself is left as it is.

    Raises:
        PassError: the graph libraries cannot handle this model.
    """
    return rewrite(model, RULES)
