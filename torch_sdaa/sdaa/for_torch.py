"""Functions of a device module that PyTorch calls."""

from __future__ import annotations

import torch

from torch_sdaa.loading.core import C
from torch_sdaa.reports import publish


def _lazy_init() -> None:
    """Start publishing to ``teco-smi``: PyTorch calls this before the first tensor on the device."""
    publish.start()


def _is_in_bad_fork() -> bool:
    """Return whether this process was forked from one that had used a device."""
    return bool(C.in_bad_fork())


def _exchange_device(index: int) -> int:
    """Set the thread's current device unless the index is negative; return the previous one."""
    return int(C.exchange_device(index))


_maybe_exchange_device = _exchange_device


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes of autocast."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return ``True``: the device computes bfloat16."""
    return True
