"""The ResNet pass for large batches: what ``resnet_pass`` does, with the data in the card's blocked layout.

The published ResNet50 figures of the T1 come from two passes, a plain one for card batches up to 16 and one from 32 on
that lays the data out in blocks of channels. What the vendor's pass does to the graph is not published, and on the host
the order of the bytes changes no value, so the graph is that of ``resnet_pass``: only ``layout`` differs, and with it
the rates of the card's description (``engine/sdaa/t1.yaml``) that the simulated time is worked out with. On targets
without layouts this pass and ``resnet_pass`` are the same.
"""

from __future__ import annotations

from engine.passes.resnet.resnet_pass import use_passes

__all__ = ["layout", "use_passes"]

layout = "blocked"
