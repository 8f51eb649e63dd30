"""Alias of ``resnet_blocked_pass`` under the name in scripts for the T1: ``resnet_pass`` with 5-D data.

The five dimensions of a blocked layout are batch, blocks of channels, height, width, channels in a block. On the
simulated card this is the layout ``blocked``: the graph is that of ``resnet_pass``, and only the simulated time
differs.
"""

from __future__ import annotations

from engine.passes.resnet.resnet_blocked_pass import layout, use_passes

__all__ = ["layout", "use_passes"]
