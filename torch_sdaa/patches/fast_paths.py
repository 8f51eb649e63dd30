"""Disable PyTorch's fused attention layers under autocast, which they do not support.

``nn.MultiheadAttention`` and the transformer layers only check autocast of CUDA.
"""

from __future__ import annotations

import torch
from torch.backends import mha


def mend() -> None:
    """Let the layers also check this device's autocast."""
    mha.get_fastpath_enabled = get_fastpath_enabled


def get_fastpath_enabled() -> bool:
    """Return whether fused layers are allowed: the value of ``torch.backends.mha``, without autocast."""
    if not torch.jit.is_scripting():
        return mha._is_fastpath_enabled and not torch.is_autocast_enabled("sdaa")
    return True
