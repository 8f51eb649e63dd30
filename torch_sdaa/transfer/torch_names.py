"""Other names of CUDA in torch's Python code: tensor methods, mixed precision, checkpoints, profiles, extensions."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.amp import autocast_mode
from torch.nn.utils.rnn import PackedSequence

from tecoinfer_modelzoo.distribution import with_page_paths
from torch_sdaa import sdaa
from torch_sdaa.loading import late_imports
from torch_sdaa.transfer.words import COUNTS, Changes, from_outside, redirected, refuse


def begin(changes: Changes) -> None:
    """Redirect all of them."""
    _tensors(changes)
    _mixed_precision(changes)
    _checkpoints(changes)
    _profiles(changes)
    changes.set(torch.backends.cuda, "is_built", _built(torch.backends.cuda.is_built))
    changes.set(torch, "set_default_tensor_type", _default_type(torch.set_default_tensor_type))
    changes.later(late_imports.when_imported("torch.utils.cpp_extension", lambda: _extensions(changes)))


def _first(original: Callable[..., Any], name: str, shown: str, at: int) -> Callable[..., Any]:
    """Return a function with one argument redirected, given by name and position."""

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        given = args[at] if len(args) > at else kwargs.get(name)
        other = redirected(given)
        if other is not given:
            if not torch.compiler.is_compiling():
                COUNTS[shown] += 1
            if len(args) > at:
                args = (*args[:at], other, *args[at + 1 :])
            else:
                kwargs[name] = other
        return original(*args, **kwargs)

    return function


# ------------------------------------------------------------------------------------------------------------- tensors


def _tensors(changes: Changes) -> None:
    changes.set(torch.Tensor, "cuda", _cuda_of("torch.Tensor.cuda", torch.Tensor.sdaa))
    changes.set(PackedSequence, "cuda", _cuda_of("PackedSequence.cuda", PackedSequence.sdaa))
    changes.set(PackedSequence, "is_cuda", property(lambda self: self.data.device.type == "sdaa"))
    for kind in (torch.UntypedStorage, torch.TypedStorage):
        changes.set(kind, "is_cuda", property(lambda self: bool(self.device.type == "sdaa") and from_outside()))


def _cuda_of(shown: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def cuda(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            COUNTS[shown] += 1
        return method(self, *map(redirected, args), **{name: redirected(value) for name, value in kwargs.items()})

    return cuda


def _built(original: Callable[[], bool]) -> Callable[[], bool]:
    @functools.wraps(original)
    def is_built() -> bool:
        return from_outside() or original()

    return is_built


def _default_type(original: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(original)
    def set_default_tensor_type(t: Any, /) -> None:
        if isinstance(t, str) and t.startswith("torch.cuda."):
            COUNTS["torch.set_default_tensor_type"] += 1
            t = t.replace("cuda", "sdaa", 1)
        original(t)

    return set_default_tensor_type


# ----------------------------------------------------------------------------------------------------- mixed precision


def _mixed_precision(changes: Changes) -> None:
    changes.set(torch.autocast, "__init__", _first(torch.autocast.__init__, "device_type", "torch.autocast", 1))
    scaler = torch.amp.GradScaler
    changes.set(scaler, "__init__", _scaling(scaler.__init__))
    for name in ("custom_fwd", "custom_bwd"):
        function = _first(getattr(autocast_mode, name), "device_type", f"torch.amp.{name}", 1)
        for module in (autocast_mode, torch.amp):
            changes.set(module, name, function)
    for name in ("get_autocast_gpu_dtype", "set_autocast_gpu_dtype"):
        changes.set(torch, name, functools.partial(getattr(torch, name.replace("_gpu", "")), "sdaa"))


def _scaling(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if redirected(device) != device:
            COUNTS["torch.amp.GradScaler"] += 1
        original(self, redirected(device), *args, **kwargs)

    return __init__


# --------------------------------------------------------------------------------------------------------- checkpoints


def _checkpoints(changes: Changes) -> None:
    registry = torch.serialization._package_registry
    entry = (19, lambda storage: None, _from_cuda)  # before CUDA's entry, which is 20
    registry.append(entry)
    registry.sort(key=lambda each: each[0])
    changes.later(lambda: registry.remove(entry))
    torch.serialization.add_safe_globals([str])  # DeviceText is saved as str
    for module in (torch, torch.serialization):
        changes.set(module, "load", _loading(module.load))


def _from_cuda(storage: Any, location: str) -> Any:
    """Move data saved on CUDA, or mapped there, to the device of the same index."""
    if not re.fullmatch(r"cuda(:\d+)?", location) or not sdaa.is_available():
        return None
    COUNTS["torch.load"] += 1
    device = torch.device(redirected(location))
    if device.index is not None and device.index >= sdaa.device_count():
        raise RuntimeError(
            f"the checkpoint has tensors of {location}, but this process sees {sdaa.device_count()} sdaa devices: call "
            "torch.load with map_location='cuda:0', or 'cpu'"
        )
    return storage.to(device=torch.device("sdaa", sdaa.current_device()) if device.index is None else device)


def _loading(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        return original(f, _mapped(map_location), *args, **kwargs)

    return load


def _mapped(location: Any) -> Any:
    """Return a map that treats data saved on ``sdaa:1`` like ``cuda:1``."""
    if isinstance(location, Mapping):
        mine = {redirected(old): new for old, new in location.items() if redirected(old) != old}
        return {**mine, **location}
    if callable(location) and not isinstance(location, torch.device):

        @functools.wraps(location)
        def mapped(storage: Any, tag: str) -> Any:
            return location(storage, re.sub("^sdaa", "cuda", tag))

        return mapped
    return location


# --------------------------------------------------------------------------------------------- profiles and extensions


def _profiles(changes: Changes) -> None:
    kind, own = torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.PrivateUse1
    for profile in (torch.profiler._KinetoProfile, torch.profiler.profile):
        changes.set(profile, "__init__", _profiling(profile.__init__, kind, own))
    legacy = torch.autograd.profiler.profile
    changes.set(legacy, "__init__", _legacy_profiling(legacy.__init__))


def _profiling(original: Callable[..., None], cuda: Any, own: Any) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, *, activities: Any = None, **kwargs: Any) -> None:  # noqa: N807
        if activities is not None:
            given = list(activities)
            activities = [own if activity == cuda else activity for activity in given]
            COUNTS["torch.profiler"] += given != activities
        if kwargs.pop("use_cuda", False):
            both = {torch.profiler.ProfilerActivity.CPU, own}
            activities = list({*activities, own} if activities is not None else both)
            COUNTS["torch.profiler"] += 1
        original(self, activities=activities, **kwargs)

    return __init__


def _legacy_profiling(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, enabled: bool = True, **kwargs: Any) -> None:  # noqa: N807
        if kwargs.pop("use_cuda", False) or kwargs.get("use_device") == "cuda":
            kwargs["use_device"] = "sdaa"
            COUNTS["torch.autograd.profiler"] += 1
        original(self, enabled, **kwargs)

    return __init__


_KERNELS = (
    "sdaa does not run CUDA kernels: omit the extension if the script works without it, or write the operator with "
    "torch.library (docs/how-to/training.md, section 5)"
)


def _extensions(changes: Changes) -> None:
    from torch.utils import cpp_extension

    def refusing(original: Callable[..., Any], shown: str, sources: tuple[str, ...]) -> Callable[..., Any]:
        @functools.wraps(original)
        def build(*args: Any, **kwargs: Any) -> Any:
            given = [*args, *(kwargs.get(name) for name in sources)]
            names = [name for each in given for name in ([each] if isinstance(each, str) else each or ())]
            if (
                shown == "CUDAExtension"
                or any(str(name).endswith((".cu", ".cuh")) for name in names)
                or kwargs.get("cuda_sources")
                or kwargs.get("with_cuda")
            ):
                raise refuse(f"torch.utils.cpp_extension.{shown}", with_page_paths(_KERNELS))
            return original(*args, **kwargs)

        return build

    for name in ("load", "load_inline", "CUDAExtension"):
        found = getattr(cpp_extension, name)
        changes.set(cpp_extension, name, refusing(found, name, ("sources",) if name == "load" else ()))
