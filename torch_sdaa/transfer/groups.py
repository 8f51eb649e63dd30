"""``torch.distributed`` with nccl redirected to the backend of sdaa, ``tccl``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from torch_sdaa.loading import late_imports
from torch_sdaa.transfer.words import COUNTS, Changes, from_outside, redirected, refuse

_CHECKPOINT = "torch.distributed.checkpoint.filesystem"


def begin(changes: Changes) -> None:
    """Redirect the backend's name in all functions, and the device type of a mesh."""
    if not dist.is_available():
        return
    c10d = dist.distributed_c10d
    for name, at in (("init_process_group", 0), ("new_group", 2)):
        function = _with_backend(getattr(c10d, name), name, at)
        for module in (c10d, dist, dist.device_mesh):
            if hasattr(module, name):
                changes.set(module, name, function)
    changes.set(dist, "is_nccl_available", is_available)  # torch's own code uses another module
    changes.set(dist, "get_backend", _as_nccl(c10d.get_backend))
    mesh = dist.device_mesh
    for module in (mesh, dist):
        if hasattr(module, "init_device_mesh"):
            changes.set(module, "init_device_mesh", _with_type(mesh.init_device_mesh))
    changes.later(late_imports.when_imported(_CHECKPOINT, lambda: _checkpoint(changes)))
    changes.set(mesh.DeviceMesh, "__init__", _with_type(mesh.DeviceMesh.__init__, 1))
    changes.set(mesh.DeviceMesh, "device_type", property(_mesh_type, doc=mesh.DeviceMesh.device_type.__doc__))


def is_available() -> bool:
    """Return whether a replacement for nccl is available."""
    return "tccl" in dist.Backend.backend_list


def backend(given: Any) -> Any:
    """Return the replacement of a CUDA backend (``nccl``, ``cuda:nccl``); others are unchanged.

    Raises:
        NotOnSdaaError: it is not available.
    """
    if not isinstance(given, str) or "nccl" not in given.lower():
        return given
    if not is_available():
        raise refuse("the backend nccl", "backend tccl is not available: use gloo, with CPU tensors")
    COUNTS["torch.distributed nccl"] += 1
    parts = given.lower().replace("nccl", "tccl").split(",")
    return ",".join(f"sdaa{part[4:]}" if part.startswith("cuda:") else part for part in parts)


def _with_backend(original: Callable[..., Any], name: str, at: int) -> Callable[..., Any]:
    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        if len(args) > at:
            args = (*args[:at], backend(args[at]), *args[at + 1 :])
        elif "backend" in kwargs:
            kwargs["backend"] = backend(kwargs["backend"])
        return original(*args, **kwargs)

    return function


def _as_nccl(original: Callable[..., str]) -> Callable[..., str]:
    """Return ``get_backend`` that returns ``nccl`` instead of ``tccl``, because scripts compare it.

    Code of PyTorch gets ``tccl``: it asks for the version of nccl where it finds that backend, such as in
    ``torch.distributed.checkpoint`` and in the profiler.
    """

    @functools.wraps(original)
    def get_backend(group: Any = None) -> str:
        found = original(group)
        return "nccl" if found == "tccl" and from_outside() else found

    return get_backend


def _checkpoint(changes: Changes) -> None:
    """Let a distributed checkpoint copy the tensors of sdaa to the host: it compares their type with a name."""
    from torch.distributed.checkpoint import filesystem

    original = filesystem._get_available_device_type
    changes.set(filesystem, "_get_available_device_type", lambda: redirected(original()))


def _mesh_type(mesh: Any) -> str:
    """Return a mesh's device type; CUDA's to code outside of torch, as ``device.type`` does."""
    kind = str(mesh._device_type)
    return "cuda" if kind == "sdaa" and from_outside() else kind


def _with_type(original: Callable[..., Any], at: int = 0) -> Callable[..., Any]:
    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        args = tuple(redirected(arg) if i == at else arg for i, arg in enumerate(args))
        if "device_type" in kwargs:
            kwargs["device_type"] = redirected(kwargs["device_type"])
        return original(*args, **kwargs)

    return function
