"""Pass for channel shuffles: gathers, divided before a Split, folded into a Conv (``docs/how-to/shufflenet.md``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.passes.rules import rewrite

if TYPE_CHECKING:
    import onnx

RULES = ("channel_shuffle", "shuffle_split", "gather_conv")


def use_passes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the optimized model; raise PassError if the graph libraries do not support it."""
    return rewrite(model, RULES)
