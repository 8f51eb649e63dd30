"""C functions, methods and constructors with a device argument: found by their schemas, redirected in place."""

from __future__ import annotations

from typing import Any

import torch

from torch_sdaa.loading.core import C
from torch_sdaa.transfer.device_text import DeviceText

_UNDECLARED = (
    *("as_tensor", "asarray", "nested_tensor", "new", "new_tensor", "tensor", "to", "type", "_parse_to"),
    *("_is_autocast_available", "get_autocast_dtype", "set_autocast_dtype", "_make_wrapper_subclass"),
)
"""Functions whose arguments are parsed manually, without a schema."""

_OF_CUDA = {"is_autocast_enabled": 0, "set_autocast_enabled": 1}
"""Functions that mean CUDA if called with this number of arguments."""

_LEFT = {"from_file", "eq", "ne"}
"""Excluded functions: the first creates CPU tensors only and has a file name; the others compare devices in
TorchScript.
"""

_HOLDERS = ("_VariableFunctions", "TensorBase", "_nn", "_fft", "_linalg", "_special", "_sparse", "_nested")
"""Attributes of ``torch._C`` that contain functions."""


def names() -> set[str]:
    """Return the names of all operators and other functions with a device argument."""
    found = set(_UNDECLARED)
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if space == "aten" and any("Device" in str(argument.type) for argument in schema.arguments):
            found.add(name)
    return (found | set(_OF_CUDA)) - _LEFT


def begin() -> int:
    """Redirect all functions; return their number."""
    C.redirect_begin(torch.device.type, torch._C.TensorBase.is_cuda, DeviceText)
    wanted, count = names(), 0
    holders: list[tuple[str, Any]] = [("torch", torch._C)]
    holders += [(name, getattr(torch._C, name)) for name in _HOLDERS if hasattr(torch._C, name)]
    for where, holder in holders:
        for name in sorted(wanted.intersection(dir(holder))):
            # The descriptors of the class are required, not bound methods.
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
