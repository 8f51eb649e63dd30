"""Small patches of PyTorch: fused layers under autocast, DLPack, and the profiler's names."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import torch
from torch.autograd.profiler_util import FunctionEvent, FunctionEventAvg
from torch.backends import mha

_FIGURES = ("{}_time", "{}_time_total", "self_{}_time_total", "{}_memory_usage", "self_{}_memory_usage")


def mend() -> None:
    """Apply the patches.

    ``nn.MultiheadAttention`` and the transformer layers only check autocast of CUDA, and their fused forms do not
    support it. ``torch.from_dlpack`` only knows the device's name before its renaming; memory is shared. The profiler's
    events and averages get attributes with ``sdaa`` instead of ``device``: ``table(sort_by="sdaa_time_total")``.
    """
    mha.get_fastpath_enabled = get_fastpath_enabled
    torch.Tensor.__dlpack_device__ = _knowing(torch.Tensor.__dlpack_device__)
    for figure in _FIGURES:
        for kind in (FunctionEvent, FunctionEventAvg):
            setattr(kind, figure.format("sdaa"), property(operator.attrgetter(figure.format("device"))))


def get_fastpath_enabled() -> bool:
    """Return whether fused layers are allowed: the value of ``torch.backends.mha``, without autocast."""
    if not torch.jit.is_scripting():
        return mha._is_fastpath_enabled and not torch.is_autocast_enabled("sdaa")
    return True


def _knowing(original: Callable[[Any], tuple[IntEnum, int]]) -> Callable[[Any], tuple[IntEnum, int]]:
    @functools.wraps(original)
    def __dlpack_device__(self: Any) -> tuple[IntEnum, int]:  # noqa: N807
        if torch.overrides.has_torch_function_unary(self) or self.device.type != "sdaa":
            return original(self)
        return torch.utils.dlpack.DLDeviceType.kDLExtDev, self.device.index

    return __dlpack_device__
