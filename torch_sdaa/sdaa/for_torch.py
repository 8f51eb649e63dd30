"""What PyTorch itself asks of a device's module."""

from __future__ import annotations

import torch

from torch_sdaa.loading.core import C
from torch_sdaa.reports import publish


def _lazy_init() -> None:
    """Let ``teco-smi`` see this process: PyTorch calls this before it makes the first tensor on the device."""
    publish.start()


def _is_in_bad_fork() -> bool:
    """Return whether this process was forked from one that had used a device."""
    return bool(C.in_bad_fork())


def _exchange_device(index: int) -> int:
    """Make a device the thread's, unless the number is negative; return the one before."""
    return int(C.exchange_device(index))


_maybe_exchange_device = _exchange_device


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes autocast may lower to."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return ``True``: the device computes bfloat16."""
    return True
