"""What importing ``torch_sdaa`` does: names the device, registers ``torch.sdaa``, and mends what PyTorch leaves open."""

from __future__ import annotations

import atexit
import sys

import torch

from engine.sdaa import load_card, visible_devices
from torch_sdaa import nn_modules, operators, prices
from torch_sdaa.core import C

_started = False


def start() -> None:
    """Make ``sdaa`` a device of this process; a second call does nothing."""
    global _started
    if _started:
        return
    _started = True
    torch.utils.rename_privateuse1_backend("sdaa")
    card = load_card()
    C.set_device_count(len(visible_devices(0)))
    C.set_memory_limit(card.memory_bytes)
    C.set_pricer(prices.Pricer(card))
    from torch_sdaa import sdaa

    torch._register_device_module("sdaa", sdaa)
    sys.modules["torch.sdaa"] = sdaa
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    operators.register()
    nn_modules.mend()
    atexit.register(C.drain)
