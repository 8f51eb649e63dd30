"""Import of ``torch_sdaa``: names the device, registers ``torch.sdaa``, and patches PyTorch."""

from __future__ import annotations

import atexit
import sys

import torch

from torch_sdaa import distributed
from torch_sdaa.loading import (
    accelerate_import,
    apex_import,
    contrib_import,
    safetensors_import,
    torchvision_import,
    transformers_import,
)
from torch_sdaa.loading.core import C
from torch_sdaa.operators import python_kernels
from torch_sdaa.patches import nn_modules, small
from torch_sdaa.startup import simulated

_started = False


def start() -> None:
    """Make ``sdaa`` a device of this process; a second call does nothing."""
    global _started
    if _started:
        return
    _started = True
    torch.utils.rename_privateuse1_backend("sdaa")
    simulated.start()
    from torch_sdaa import sdaa, utils
    from torch_sdaa.patches import data_parallel, device_interface, fake_layouts, messages

    torch._register_device_module("sdaa", sdaa)
    for name, module in list(sys.modules.items()):
        if name == sdaa.__name__ or name.startswith(f"{sdaa.__name__}."):
            sys.modules["torch." + name.removeprefix("torch_sdaa.")] = module
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    torch.utils.dumper = utils.dumper
    python_kernels.register()
    nn_modules.mend()
    small.mend()
    sdaa.random.let_be_pickled()
    apex_import.offer()
    contrib_import.offer()
    messages.improve()
    data_parallel.change()
    sdaa.amp.grad_scaler.mend()
    distributed.register()
    device_interface.register_when_imported()
    fake_layouts.change_when_imported()
    torchvision_import.ease_when_imported()
    safetensors_import.serve_when_imported()
    accelerate_import.serve_when_imported()
    transformers_import.serve_when_imported()
    torch.set_default_tensor_type = sdaa.tensors.let_be_default(torch.set_default_tensor_type)
    atexit.register(C.drain)
    atexit.register(simulated.stop)  # called first
