"""``autocast`` for this device, and decorators for an ``autograd.Function`` under it."""

from __future__ import annotations

from typing import Any

import torch


class autocast(torch.amp.autocast_mode.autocast):  # noqa: N801 -- as torch.cuda.amp.autocast
    """``torch.autocast("sdaa", ...)``: matrix products and convolutions in ``dtype``, sensitive operators in
    float32.
    """

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True) -> None:
        super().__init__("sdaa", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


def custom_fwd(fwd: Any = None, *, cast_inputs: torch.dtype | None = None) -> Any:
    """Return ``torch.amp.custom_fwd`` for this device."""
    return torch.amp.custom_fwd(fwd, device_type="sdaa", cast_inputs=cast_inputs)


def custom_bwd(bwd: Any) -> Any:
    """Return ``torch.amp.custom_bwd`` for this device."""
    return torch.amp.custom_bwd(bwd, device_type="sdaa")
