"""PyTorch's fused attention layers, which autocast does not know: they are left where it is on.

``nn.MultiheadAttention`` and the transformer's layers leave them where autocast is on for CUDA, and ask for no other.
"""

from __future__ import annotations

import torch
from torch.backends import mha


def mend() -> None:
    """Let the layers ask for this device's autocast too."""
    mha.get_fastpath_enabled = get_fastpath_enabled


def get_fastpath_enabled() -> bool:
    """Return whether the layers may be fused: what ``torch.backends.mha`` says, outside autocast."""
    if not torch.jit.is_scripting():
        return mha._is_fastpath_enabled and not torch.is_autocast_enabled("sdaa")
    return True
