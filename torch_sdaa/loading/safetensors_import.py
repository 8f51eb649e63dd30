"""Let ``safetensors`` load tensors to the device: ``load_file(path, device="sdaa:0")``, ``safe_open``.

Its reader, written in Rust, has a fixed list of device names. A file for the device is opened for the CPU, and each
tensor, or part of one, is moved when it is read. Under the redirection of CUDA's names, ``"cuda:0"`` is ``"sdaa:0"``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch

from torch_sdaa.loading import late_imports

_PACKAGE = "safetensors"


def serve_when_imported() -> None:
    """Change ``safe_open``, now or when the package is imported."""
    late_imports.when_imported(_PACKAGE, _change)


def _change() -> None:
    original = sys.modules[_PACKAGE].safe_open
    opening = _opening(original)
    for name, module in list(sys.modules.items()):  # modules that imported it by name before
        if getattr(module, "__dict__", {}).get("safe_open") is original and name != f"{_PACKAGE}._safetensors_rust":
            module.safe_open = opening  # type: ignore[attr-defined]


def _opening(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original, updated=())
    def safe_open(filename: Any, framework: str, device: Any = "cpu", **more: Any) -> Any:
        found = torch.device(device) if isinstance(device, (str, torch.device)) else None
        if found is None or found.type != "sdaa":
            return original(filename, framework, device, **more)
        return _OnDevice(original(filename, framework, "cpu", **more), found)

    return safe_open


class _OnDevice:
    """An open file whose tensors are moved to a device when they are read."""

    def __init__(self, opened: Any, device: torch.device) -> None:
        self._opened, self._device = opened, device

    def __enter__(self) -> _OnDevice:
        self._opened.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.__exit__(kind, error, trace)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)  # keys, offset_keys, metadata

    def get_tensor(self, name: str) -> torch.Tensor:
        """Return a tensor on the device."""
        found: torch.Tensor = self._opened.get_tensor(name)
        return found.to(self._device)

    def get_tensors(self) -> dict[str, torch.Tensor]:
        """Return all tensors by name, on the device."""
        return {name: tensor.to(self._device) for name, tensor in self._opened.get_tensors().items()}

    def get_slice(self, name: str) -> _Slice:
        """Return a view of a tensor, of which indexing reads a part to the device."""
        return _Slice(self._opened.get_slice(name), self._device)


class _Slice:
    """Part of a file that indexing reads; shape and dtype are those of the file."""

    def __init__(self, part: Any, device: torch.device) -> None:
        self._part, self._device = part, device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)  # get_shape, get_dtype

    def __getitem__(self, key: Any) -> torch.Tensor:
        found: torch.Tensor = self._part[key]
        return found.to(self._device)
