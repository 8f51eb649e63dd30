"""Let the Trainer of transformers use the device that accelerate selects.

Accelerate supports sdaa, and selects it in every process in which ``torch_sdaa`` is installed. In a process without
other ranks, ``TrainingArguments`` knows a fixed list of devices instead, and takes the CPU for others: the Trainer's
model and accelerate's batches would be on different devices. Its list of devices with bfloat16 is fixed, too.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch

from torch_sdaa.loading import late_imports
from torch_sdaa.loading.core import C

_MODULE, _NAME, _BFLOAT16 = "transformers.training_args", "_setup_devices", "is_torch_bf16_gpu_available"


def serve_when_imported() -> None:
    """Change ``TrainingArguments``, now or when its module is imported."""
    late_imports.when_imported(_MODULE, _change)


def _change() -> None:
    _accept_bfloat16()
    arguments = sys.modules[_MODULE].TrainingArguments
    original = vars(arguments).get(_NAME)
    if not isinstance(original, functools.cached_property):
        return  # another version's, which selects the device in another way

    @functools.wraps(original.func)
    def _setup_devices(self: Any) -> torch.device:
        device: torch.device = original.func(self)
        chosen = getattr(getattr(self, "distributed_state", None), "device", None)
        if device.type != "cpu" or chosen is None or chosen.type != "sdaa":
            return device
        self._n_gpu = 1  # one process drives one device
        return torch.device("sdaa", int(C.current_device()) if chosen.index is None else chosen.index)

    changed = functools.cached_property(_setup_devices)
    changed.__set_name__(arguments, _NAME)
    setattr(arguments, _NAME, changed)


def _accept_bfloat16() -> None:
    module = sys.modules[_MODULE]
    original = getattr(module, _BFLOAT16, None)
    if original is None:
        return  # another version's, which asks in another way

    @functools.wraps(original)
    def is_torch_bf16_gpu_available() -> bool:
        return bool(original() or torch.get_device_module("sdaa").is_available())

    setattr(module, _BFLOAT16, is_torch_bf16_gpu_available)
