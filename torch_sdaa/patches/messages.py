"""Fixes added to PyTorch's messages for common mistakes on this device."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import Module
from torch.utils.data import get_worker_info
from torch.utils.data._utils import fetch

from torch_sdaa.utils import PREFIX

CUDA_NAMES = (
    "; this process has sdaa: use torch.sdaa instead of torch.cuda (torch.sdaa.current_stream().synchronize(), "
    "torch.sdaa.Event(...)), .sdaa() instead of .cuda(), and 'sdaa' instead of 'cuda'"
)
NOT_SHARED = (
    "The memory of {device} belongs to this process: pass a copy on the CPU (.cpu()) to other processes, and move "
    "it to the device there (.sdaa())"
)

NOT_FROM_A_WORKER = (
    "A worker of a DataLoader made a batch on {device}, whose memory belongs to the worker: return CPU tensors, and "
    "move batches to the device in the parent"
)


def improve() -> None:
    """Add the fixes to the messages."""
    Module.load_state_dict = _with_prefix_fix(Module.load_state_dict)
    for name in ("share_memory_", "_share_fd_cpu_", "_share_filename_cpu_"):
        setattr(torch.UntypedStorage, name, _of_one_process(getattr(torch.UntypedStorage, name)))
    torch.Tensor.share_memory_ = _of_one_process(torch.Tensor.share_memory_)
    for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        kind.fetch = _of_the_host(kind.fetch)
    if not torch.backends.cuda.is_built():
        torch.cuda._lazy_init = _with_cuda_fix(torch.cuda._lazy_init)
        torch.cuda.set_device = _after_cuda_starts(torch.cuda.set_device)
        for kind in (torch.cuda.Stream, torch.cuda.Event):
            kind.__new__ = _with_cuda_fix(kind.__new__)


def _with_cuda_fix(original: Any) -> Any:
    @functools.wraps(original)
    def explaining(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except (AssertionError, RuntimeError) as error:
            raise type(error)(f"{error}{CUDA_NAMES}") from None

    return explaining


def _after_cuda_starts(original: Any) -> Any:
    @functools.wraps(original)
    def starting(*args: Any, **kwargs: Any) -> Any:
        torch.cuda._lazy_init()  # which raises a clear error; the function itself would fail on a missing name
        return original(*args, **kwargs)

    return starting


def _of_one_process(original: Any) -> Any:
    @functools.wraps(original)
    def refusing(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.device.type == "sdaa":
            raise RuntimeError(NOT_SHARED.format(device=self.device))
        return original(self, *args, **kwargs)

    return refusing


def _of_the_host(original: Any) -> Any:
    """Raise an error in a worker that returns a batch on the device: in the queue, the parent would wait forever."""

    @functools.wraps(original)
    def fetch(self: Any, *args: Any, **kwargs: Any) -> Any:
        batch = original(self, *args, **kwargs)
        if get_worker_info() is not None and (device := _device_in(batch)) is not None:
            raise RuntimeError(NOT_FROM_A_WORKER.format(device=device))
        return batch

    return fetch


def _device_in(batch: Any) -> torch.device | None:
    """Return the device of the first sdaa tensor in a batch of tuples, lists and dicts."""
    if isinstance(batch, torch.Tensor):
        return batch.device if batch.device.type == "sdaa" else None
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (tuple, list)) else ()
    return next(filter(None, map(_device_in, parts)), None)


def _with_prefix_fix(original: Any) -> Any:
    @functools.wraps(original)
    def load_state_dict(self: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, state_dict, *args, **kwargs)
        except RuntimeError as error:
            fix = _names_fix(set(self.state_dict()), state_dict) if "loading state_dict" in str(error) else None
            if fix is None:
                raise
            raise RuntimeError(f"{error}\n\t{fix}") from None

    return load_state_dict


def _names_fix(expected: set[str], given: Mapping[str, Any]) -> str | None:
    """Return the fix for names of a wrapper, or weights nested in a checkpoint; else ``None``."""
    for name, inner in given.items():
        if isinstance(inner, Mapping) and name not in expected and inner and all(isinstance(one, str) for one in inner):
            weights = f"the weights are nested under {name!r}: load checkpoint[{name!r}]"
            if expected & set(inner):
                return weights
            if (fix := _prefix_fix(expected, set(inner))) is not None:
                return f"{weights}. {fix}"
    return _prefix_fix(expected, set(given))


def _prefix_fix(expected: set[str], given: set[str]) -> str | None:
    """Return the fix for names that differ by the prefix of a parallel wrapper; else ``None``."""
    if any(_bare(name) in expected for name in given - expected if name.startswith(PREFIX)):
        return (
            "The names begin with 'module.', as a model wrapped for parallel training saves them: load "
            "torch_sdaa.utils.strip_module_prefix(state_dict)"
        )
    if any(PREFIX + name in expected for name in given - expected):
        return "This model is wrapped for parallel training, the checkpoint is not: load it into model.module"
    return None


def _bare(name: str) -> str:
    """Return a name without prefixes: a model may have been wrapped twice."""
    while name.startswith(PREFIX):
        name = name.removeprefix(PREFIX)
    return name
