"""What importing ``torch_sdaa`` does: names the device, registers ``torch.sdaa``, and mends what PyTorch leaves open."""

from __future__ import annotations

import atexit
import sys

import torch

from torch_sdaa import nn_modules, operators, simulated
from torch_sdaa.core import C

_started = False


def start() -> None:
    """Make ``sdaa`` a device of this process; a second call does nothing."""
    global _started
    if _started:
        return
    _started = True
    torch.utils.rename_privateuse1_backend("sdaa")
    simulated.start()
    from torch_sdaa import sdaa

    torch._register_device_module("sdaa", sdaa)
    sys.modules["torch.sdaa"] = sdaa
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    operators.register()
    nn_modules.mend()
    atexit.register(C.drain)
    atexit.register(simulated.stop)  # is called before it
