"""What scripts for the T1 call the pass for large batches: ``resnet_pass`` with the data in five dimensions.

Five dimensions are what a blocked layout has: batch, blocks of channels, height, width, channels in a block. On the
simulated card that is the layout ``blocked`` of its description, so this is ``resnet_blocked_pass`` by the other name:
the graph is that of ``resnet_pass``, no value changes, and only the simulated time is another one.
"""

from __future__ import annotations

from engine.passes.resnet.resnet_blocked_pass import layout, use_passes

__all__ = ["layout", "use_passes"]
