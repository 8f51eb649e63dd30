"""Typed tensors and storages of older scripts: ``torch.sdaa.FloatTensor``, ``torch.sdaa.FloatStorage``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.storage import _LegacyStorage

from torch_sdaa.sdaa.devices import Device, index_of

_DTYPES = {
    "BFloat16": torch.bfloat16,
    "Bool": torch.bool,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "ComplexDouble": torch.complex128,
    "ComplexFloat": torch.complex64,
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Short": torch.int16,
}


class TensorKind(type):
    """Metaclass of ``torch.sdaa.FloatTensor`` etc., which stand for all tensors of a dtype on this device.

    Called like ``torch.FloatTensor``: with sizes, a sequence, an array, or a tensor or storage of this dtype and
    device; ``device`` selects the device, default: the current one.
    """

    dtype: torch.dtype
    layout = torch.strided
    is_sdaa = True

    def __call__(cls, *args: Any, device: Device = None) -> torch.Tensor:
        """Return a new tensor, or the given one."""
        if len(args) == 1 and isinstance(args[0], torch.Tensor):
            if not cls.__instancecheck__(args[0]):
                raise TypeError(
                    f"{cls.__name__} expects a tensor of its type, got {args[0].type()}: use x.type({cls.__name__})"
                )
            device = args[0].device
        return torch.empty(0, dtype=cls.dtype, device=torch.device("sdaa", index_of(device))).new(*args)

    def __instancecheck__(cls, instance: Any) -> bool:
        if not isinstance(instance, torch.Tensor):
            return False
        return (instance.device.type, instance.dtype, instance.layout) == ("sdaa", cls.dtype, torch.strided)

    def __repr__(cls) -> str:
        return f"<class {cls.__name__!r}>"


def _tensor_kind(name: str, dtype: torch.dtype) -> TensorKind:
    # Tensor.type(kind) reads __name__, which must be the full name.
    names = {"__module__": "torch.sdaa", "__qualname__": f"{name}Tensor", "dtype": dtype}
    return TensorKind(f"torch.sdaa.{name}Tensor", (), {**names, "__doc__": f"All tensors of {dtype} on this device."})


def _no_such_storage(cls: type, *_args: Any, **_kwargs: Any) -> Any:
    raise RuntimeError(f"{cls.__name__} of sdaa cannot use host memory: create one of the CPU, then call .sdaa()")


def _storage_kind(name: str, dtype: torch.dtype) -> type:
    refused: Any = classmethod(_no_such_storage)
    names = {"from_buffer": refused, "_new_with_weak_ptr": refused, "_new_shared_filename": refused}
    # torch takes the device from the last part of the module's name.
    described = {"__module__": "torch.sdaa", "__doc__": f"All typed storages of {dtype} on this device."}
    return type(f"{name}Storage", (_LegacyStorage,), {**names, **described, "dtype": dtype, "_dtype": dtype})


TENSORS = {f"{name}Tensor": _tensor_kind(name, dtype) for name, dtype in _DTYPES.items() if "Complex" not in name}
"""Typed tensors by name, like in ``torch.cuda``."""

STORAGES = {f"{name}Storage": _storage_kind(name, dtype) for name, dtype in _DTYPES.items()}
"""Typed storages by name."""


def let_be_default(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return ``torch.set_default_tensor_type`` that also accepts typed tensors of this device."""

    def set_default_tensor_type(t: Any, /) -> None:
        kind = TENSORS.get(t.removeprefix("torch.sdaa.")) if isinstance(t, str) else t
        if not isinstance(kind, TensorKind):
            original(t)
            if torch.get_default_device().type == "sdaa":
                torch.set_default_device(None)
            return
        if not kind.dtype.is_floating_point:
            raise TypeError(f"only floating-point types can be the default type, not {kind.__name__}")
        torch.set_default_dtype(kind.dtype)
        torch.set_default_device("sdaa")

    set_default_tensor_type.__doc__ = original.__doc__
    return set_default_tensor_type
