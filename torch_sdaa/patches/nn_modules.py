"""Changes of ``torch.nn`` and ``torch.optim`` for a device that cannot share tensors with the CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy
from torch.optim import asgd, nadam, swa_utils
from torch.utils import _foreach_utils

from torch_sdaa.loading.core import C


def mend() -> None:
    """Keep tied weights tied, lazy modules lazy, and default optimizer steps equal to those of the CPU."""
    if not getattr(Module._apply, "in_place", False):  # once
        Module._apply = _in_place(Module._apply)
    LazyModuleMixin._apply = _apply
    if not isinstance(torch.Tensor.data, property):
        torch.Tensor.data = _data(torch.Tensor.data)
    for module in (asgd, nadam):
        _loop_by_default(module)
    # Averages are computed one by one unless a foreach function is given, which rounds differently.
    swa_utils._get_foreach_kernels_supported_devices = lambda: [
        kind for kind in _foreach_utils._get_foreach_kernels_supported_devices() if kind != "sdaa"
    ]


def _in_place(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``Module._apply`` that keeps parameter objects when moving between CPU and device.

    PyTorch does this between CPU and CUDA; for other devices it creates new parameters: tied weights would separate,
    and an optimizer would keep the old ones. PyTorch's swapping
    (``torch.__future__.set_swap_module_params_on_conversion``) fails while an output is alive.
    """

    @functools.wraps(original)
    def apply(self: Any, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        future = torch.__future__
        if (
            isinstance(fn, _Carried)
            or future.get_swap_module_params_on_conversion()
            or future.get_overwrite_module_params_on_conversion()
        ):
            return original(self, fn, recurse)
        return original(self, _Carried(fn), recurse)

    apply.in_place = True  # type: ignore[attr-defined]
    return apply


def _data(own: Any) -> property:
    """Return ``Tensor.data`` that can be set across CPU and device, as with CUDA (``p.data = p.data.cpu()``).

    PyTorch refuses it for devices other than its own.
    """

    def put(self: Tensor, value: Any) -> None:
        if (
            not torch.overrides.has_torch_function_unary(self)
            and isinstance(value, Tensor)
            and {self.device.type, value.device.type} == {"cpu", "sdaa"}
            and self.dtype == value.dtype
            and C.take_data(self, value)
        ):
            return
        own.__set__(self, value)

    return property(own.__get__, put, doc=own.__doc__)


class _Carried:
    """Function for moving a module: parameters moved between CPU and device take their new data in place."""

    def __init__(self, fn: Callable[[Tensor], Tensor]) -> None:
        self.fn = fn

    def __call__(self, tensor: Tensor) -> Tensor:
        new = self.fn(tensor)
        if (
            {tensor.device.type, new.device.type} == {"cpu", "sdaa"}
            and isinstance(tensor, Parameter)
            and type(new) is Tensor
            and C.take_data(tensor, new)
        ):
            return tensor.data
        return new


def _apply(self: Any, fn: Callable[..., Any], recurse: bool = True) -> Any:
    """Move or convert a lazy module: uninitialized parameters stay so, with the new device and dtype.

    ``Module._apply`` fails: parameters without a shape can be neither swapped nor copied.
    """
    lazy = [
        (held, name, value)
        for held in (self._parameters, self._buffers)
        for name, value in held.items()
        if is_lazy(value)
    ]
    for held, name, _ in lazy:
        held[name] = None
    try:
        super(LazyModuleMixin, self)._apply(fn, recurse)
    finally:
        for held, name, value in lazy:
            held[name] = value
    for held, name, value in lazy:
        new = fn(torch.empty(0, dtype=value.dtype, device=value.device))
        if new.device.type == value.device.type:
            value.data = new  # an optimizer may refer to it
        else:
            kind: Any = type(value)
            held[name] = kind(requires_grad=value.requires_grad, device=new.device, dtype=new.dtype)
    return self


def _loop_by_default(module: ModuleType) -> None:
    """Let an optimizer update parameters one by one on the device by default, as on the CPU.

    PyTorch defaults to ``foreach`` on devices. It rounds differently in these optimizers; in all others both forms are
    bit-identical.
    """
    choose = module._default_to_fused_or_foreach

    def default(params: list[Tensor], differentiable: bool, use_fused: bool = False) -> tuple[bool, bool]:
        fused, foreach = choose(params, differentiable, use_fused)
        return fused, foreach and not any(isinstance(p, Tensor) and p.device.type == "sdaa" for p in params)

    if getattr(choose, "__module__", "") != __name__:  # once
        module._default_to_fused_or_foreach = default  # type: ignore[attr-defined]
