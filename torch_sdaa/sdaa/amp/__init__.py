"""``torch.sdaa.amp``: ``torch.amp`` for this device, with the names of ``torch.cuda.amp``."""

from torch_sdaa.sdaa.amp.autocast_mode import autocast, custom_bwd, custom_fwd
from torch_sdaa.sdaa.amp.common import amp_definitely_not_available
from torch_sdaa.sdaa.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]
