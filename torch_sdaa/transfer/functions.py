"""Functions, methods and constructors of C that take a device: found by their declarations, redirected in place."""

from __future__ import annotations

from typing import Any

import torch

from torch_sdaa.loading.core import C
from torch_sdaa.transfer.device_text import DeviceText

_UNDECLARED = (
    *("as_tensor", "asarray", "nested_tensor", "new", "new_tensor", "tensor", "to", "type", "_parse_to"),
    *("_is_autocast_available", "get_autocast_dtype", "set_autocast_dtype", "_make_wrapper_subclass"),
)
"""Those whose arguments are read by hand, so that no declaration names them."""

_OF_CUDA = {"is_autocast_enabled": 0, "set_autocast_enabled": 1}
"""Those that mean CUDA where they are called with so many arguments only."""

_LEFT = {"from_file", "eq", "ne"}
"""The first makes tensors of the CPU only, and a file may have any name; the others compare devices in TorchScript."""

_HOLDERS = ("_VariableFunctions", "TensorBase", "_nn", "_fft", "_linalg", "_special", "_sparse", "_nested")
"""What of ``torch._C`` holds functions."""


def names() -> set[str]:
    """Return the names of all operators that take a device, and of what else does."""
    found = set(_UNDECLARED)
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if space == "aten" and any("Device" in str(argument.type) for argument in schema.arguments):
            found.add(name)
    return (found | set(_OF_CUDA)) - _LEFT


def begin() -> int:
    """Redirect all of them; return how many."""
    C.redirect_begin(torch.device.type, torch._C.TensorBase.is_cuda, DeviceText)
    wanted, count = names(), 0
    holders: list[tuple[str, Any]] = [("torch", torch._C)]
    holders += [(name, getattr(torch._C, name)) for name in _HOLDERS if hasattr(torch._C, name)]
    for where, holder in holders:
        for name in sorted(wanted.intersection(dir(holder))):
            # A class's own descriptors are wanted, not what its instances make of them.
            found = vars(holder).get(name) if isinstance(holder, type) else getattr(holder, name)
            shown = f"{'torch.Tensor' if where == 'TensorBase' else 'torch'}.{name}"
            if found is not None and C.redirect_function(shown, found, _OF_CUDA.get(name, -1)):
                count += 1
    for name, kind in (
        ("torch.Generator", torch.Generator),
        ("torch.Stream", torch.Stream),
        ("torch.Event", torch.Event),
        ("torch.UntypedStorage", torch.UntypedStorage),
    ):
        C.redirect_constructor(name, kind)
    return count
