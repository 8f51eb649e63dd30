"""Operator arguments as JSON and arrays, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from engine import DataError
from engine.training import KeptTensor, kept_tensor

_BITS = {torch.bfloat16: torch.uint16}
_BITS |= {kind: torch.uint8 for name in dir(torch) if name.startswith("float8_") and (kind := getattr(torch, name))}
"""Dtypes that NumPy lacks, and those of the same size in which they are stored."""


def dtype_name(dtype: torch.dtype) -> str:
    """Return a dtype's name without ``torch.``."""
    return str(dtype).removeprefix("torch.")


def can_be_kept(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has plain strided values."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested or tensor.device.type == "meta":
        return False
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and not tensor._is_zerotensor()


def as_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return a copy of a tensor's current values."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.dtype in _BITS:
        plain = plain.contiguous().view(_BITS[plain.dtype])
    array: np.ndarray[Any, Any] = plain.cpu().numpy()
    return array.copy() if tensor.device.type == "cpu" else array


def kept(tensor: torch.Tensor) -> tuple[KeptTensor, np.ndarray[Any, Any]]:
    """Return a tensor's metadata and values."""
    array = as_array(tensor)
    return kept_tensor(array, dtype_name(tensor.dtype), tensor.stride()), array


def as_tensor(one: KeptTensor, array: np.ndarray[Any, Any], device: torch.device | str = "cpu") -> torch.Tensor:
    """Return a tensor of a file with its recorded strides, or expanded; contiguous if it overlapped itself otherwise.

    Raises:
        DataError: this PyTorch lacks its dtype.
    """
    dtype = getattr(torch, one.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise DataError(f"this PyTorch ({torch.__version__}) has no dtype {one.dtype}, used by a tensor of the dump")
    plain = torch.from_numpy(np.array(array))
    if dtype in _BITS:
        plain = plain.view(dtype)
    if tuple(plain.stride()) == one.stride:
        return plain.to(device)
    repeated = [step == 0 and size > 1 for step, size in zip(one.stride, one.shape, strict=True)]
    single = plain[tuple(slice(0, 1) if again else slice(None) for again in repeated)]
    if _overlaps(single.shape, one.stride):
        return plain.to(device)
    laid = torch.empty_strided(single.shape, one.stride, dtype=dtype, device=device)
    return laid.copy_(single).expand(one.shape)


def _overlaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether elements of a tensor may share memory other than by expansion."""
    end = 1
    for step, size in sorted(zip(strides, shape, strict=True)):
        if size > 1:
            if step < end:
                return True
            end = step * (size - 1) + end
    return False


def encoded(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Return an argument as JSON; its tensors are appended to the list and replaced by their index."""
    if isinstance(value, torch.Tensor):
        return _encoded_tensor(value, tensors)
    if isinstance(value, (list, tuple)):
        return [encoded(one, tensors) for one in value]
    if isinstance(value, Mapping):
        return {"dict": {str(name): encoded(one, tensors) for name, one in value.items()}}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    for kind, name in _KINDS.items():
        if isinstance(value, kind):
            return {name: str(value).removeprefix("torch.")}
    return {"opaque": type(value).__name__}


_KINDS: dict[Any, str] = {
    torch.dtype: "dtype",
    torch.device: "device",
    torch.layout: "layout",
    torch.memory_format: "memory_format",
    torch.Generator: "generator",
}


def _encoded_tensor(value: torch.Tensor, tensors: list[torch.Tensor]) -> Any:
    if not can_be_kept(value):
        kind = f"{value.layout}".removeprefix("torch.") if value.layout != torch.strided else type(value).__name__
        return {"opaque": f"{kind} tensor"}
    for k, known in enumerate(tensors):
        if known is value:
            return {"tensor": k}
    tensors.append(value)
    return {"tensor": len(tensors) - 1}


def decoded(value: Any, tensors: Sequence[torch.Tensor], device: torch.device) -> Any:
    """Return an argument from its JSON form; devices become the given one.

    Raises:
        DataError: its type was not recorded.
    """
    if isinstance(value, list):
        return [decoded(one, tensors, device) for one in value]
    if not isinstance(value, Mapping):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {name: decoded(one, tensors, device) for name, one in content.items()}
    if kind == "float":
        return float(content)
    if kind == "complex":
        return complex(*content)
    if kind == "device":
        return device
    if kind == "generator":
        return _generator(device)
    if kind in ("dtype", "layout", "memory_format"):
        return getattr(torch, content)
    raise DataError(f"the call cannot be repeated: it takes a {content}, which dumps do not store")


def _generator(device: torch.device) -> torch.Generator:
    if device.type == "cpu":
        return torch.default_generator
    return torch.get_device_module(device.type).default_generators[device.index or 0]


def rng_state(device: torch.device, generator: torch.Generator | None) -> torch.Tensor:
    """Return the generator state of a call on a device."""
    return (generator or _generator(device)).get_state()


def set_rng_state(device: torch.device, state: torch.Tensor) -> None:
    """Set the generator state for the next call on a device."""
    _generator(device).set_state(state)
