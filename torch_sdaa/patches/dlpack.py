"""DLPack: torch knows an extension's device by the name before its renaming."""

from __future__ import annotations

import functools
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import torch


def mend() -> None:
    """Let ``torch.from_dlpack`` and others accept tensors of this device, sharing memory."""
    torch.Tensor.__dlpack_device__ = _knowing(torch.Tensor.__dlpack_device__)


def _knowing(original: Callable[[Any], tuple[IntEnum, int]]) -> Callable[[Any], tuple[IntEnum, int]]:
    @functools.wraps(original)
    def __dlpack_device__(self: Any) -> tuple[IntEnum, int]:  # noqa: N807
        if torch.overrides.has_torch_function_unary(self) or self.device.type != "sdaa":
            return original(self)
        return torch.utils.dlpack.DLDeviceType.kDLExtDev, self.device.index

    return __dlpack_device__
