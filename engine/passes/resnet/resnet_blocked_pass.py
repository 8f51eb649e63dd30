"""ResNet pass for large batches: ``resnet_pass`` with the card's blocked data layout.

The published ResNet50 results of the T1 come from two passes, a plain one for card batches up to 16 and one from 32 on
with data in blocks of channels. The vendor's graph transformation is not published, and the layout does not change
values on the host, so the graph is that of ``resnet_pass``: only ``layout`` differs, and with it the rates of the card
description (``engine/sdaa/t1.yaml``) for the simulated time. On targets without layouts both passes are equal.
"""

from __future__ import annotations

from engine.passes.resnet.resnet_pass import use_passes

__all__ = ["layout", "use_passes"]

layout = "blocked"
