"""``nn.DataParallel``: over one device it passes through, over several it is an error with the ways out.

One process drives one device. Scripts, and the Trainer of transformers, wrap their model over all devices they see.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.utils import _to_kwargs
from torch.nn import DataParallel, Module

from torch_sdaa.sdaa.devices import device_count, index_of, is_available

SEVERAL = (
    "DataParallel over {count} devices does not run on sdaa, where one process drives one device: make one device "
    "visible (SDAA_VISIBLE_DEVICES=0), pass device_ids=[0], or use torch.nn.parallel.DistributedDataParallel, one "
    "process for each device (torchrun --nproc_per_node={count} script.py)"
)


def change() -> None:
    """Replace the wrapper and its function where this process sees a device."""
    DataParallel.__init__ = _begin(DataParallel.__init__)
    DataParallel.forward = _forward(DataParallel.forward)
    for module in (torch.nn.parallel, torch.nn.parallel.data_parallel):
        if callable(getattr(module, "data_parallel", None)):
            module.data_parallel = _function(module.data_parallel)


def _single(device_ids: Sequence[Any] | None) -> torch.device:
    """Return the device of a wrapper.

    Args:
        device_ids: indices or devices; ``None`` or empty: all that this process sees.

    Raises:
        RuntimeError: there are several; one line with the ways out.
    """
    chosen = list(device_ids or range(device_count()))
    if len(chosen) > 1:
        raise RuntimeError(SEVERAL.format(count=len(chosen)))
    return torch.device("sdaa", index_of(chosen[0]))


def _begin(original: Any) -> Any:
    @functools.wraps(original)
    def __init__(  # noqa: N807
        self: Any, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        if not is_available():
            original(self, module, device_ids, output_device, dim)
            return
        device = _single(device_ids)
        Module.__init__(self)
        self.dim, self.module = dim, module
        self.device_ids, self.src_device_obj = [device.index], device
        self.output_device = device.index if output_device is None else index_of(output_device)
        module.to(device)

    return __init__


def _forward(original: Any) -> Any:
    @functools.wraps(original)
    def forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
        if getattr(self, "src_device_obj", None) is None or self.src_device_obj.type != "sdaa":
            return original(self, *inputs, **kwargs)
        return _called(self.module, inputs, kwargs, self.src_device_obj, self.output_device)

    return forward


def _function(original: Any) -> Any:
    @functools.wraps(original)
    def data_parallel(
        module: Any,
        inputs: Any,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        module_kwargs: Any = None,
    ) -> Any:
        if not is_available():
            return original(module, inputs, device_ids, output_device, dim, module_kwargs)
        device = _single(device_ids)
        given = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
        result = device.index if output_device is None else index_of(output_device)
        return _called(module, given, module_kwargs or {}, device, result)

    return data_parallel


def _called(module: Any, inputs: Any, kwargs: Any, device: torch.device, result: int) -> Any:
    """Call a module with tensors moved to its device; move the outputs if another device was given for them."""
    args, words = _to_kwargs(inputs, kwargs, device, False)
    found = module(*args[0], **words[0])
    if result == device.index:
        return found
    (moved,), _ = _to_kwargs((found,), {}, torch.device("sdaa", result), False)
    return moved[0]
