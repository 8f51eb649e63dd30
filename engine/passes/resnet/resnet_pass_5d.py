"""``resnet_blocked_pass`` under the name in scripts for the T1: batch, blocks, height, width, channels in a block."""

from __future__ import annotations

from engine.passes.resnet.resnet_blocked_pass import layout, use_passes

__all__ = ["layout", "use_passes"]
