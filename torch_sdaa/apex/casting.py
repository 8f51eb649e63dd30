"""Cast a model: weights, inputs, outputs, and the state dict."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.rnn import RNNBase

DEVICE = "sdaa"


def cast(value: Any, dtype: torch.dtype) -> Any:
    """Return a value with its floating-point tensors cast, including those in lists, tuples and dicts."""
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, Mapping):
        items = {key: cast(each, dtype) for key, each in value.items()}
        return items if type(value) is dict else type(value)(items)  # type: ignore[call-arg]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(cast(each, dtype) for each in value))
    if isinstance(value, (list, tuple)):
        return type(value)(cast(each, dtype) for each in value)
    return value


def convert(model: Module, dtype: torch.dtype, keep_batchnorm: bool) -> None:
    """Cast a model's weights and buffers in place: parameters remain the same objects."""
    for module in model.modules():
        if keep_batchnorm and isinstance(module, _BatchNorm):
            continue
        for param in module._parameters.values():
            if param is not None and param.is_floating_point():
                param.data = param.data.to(dtype)
                if param.grad is not None:
                    param.grad = param.grad.to(dtype)
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_floating_point():
                module._buffers[name] = buffer.to(dtype)
        if isinstance(module, RNNBase):
            module.flatten_parameters()


class CastInputs:
    """Forward pre-hook that casts the inputs of a model."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def __call__(self, module: Module, args: Any, kwargs: Any) -> Any:
        """Return the cast inputs."""
        return cast(args, self.dtype), cast(kwargs, self.dtype)


class CastOutputs:
    """Forward hook that casts the outputs of a model."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def __call__(self, module: Module, args: Any, output: Any) -> Any:
        """Return the cast output."""
        return cast(output, self.dtype)


class _Entered(threading.local):
    """The autocast blocks that a thread has entered, nested ones included."""

    def __init__(self) -> None:
        self.blocks: list[tuple[int, Any]] = []


_entered = _Entered()


class EnterAutocast:
    """Enters autocast before a model's forward, in any thread, with a cache of cast weights."""

    def __call__(self, module: Module, args: Any) -> None:
        """Enter the block; a compiled model uses the autocast outside of blocks."""
        if torch.compiler.is_compiling():
            return
        block = torch.autocast(DEVICE, dtype=torch.float16, cache_enabled=True)
        block.__enter__()
        _entered.blocks.append((id(module), block))


class LeaveAutocast:
    """Leaves the block of :class:`EnterAutocast`, also after an error."""

    def __call__(self, module: Module, args: Any, output: Any) -> None:
        """Leave the block."""
        if torch.compiler.is_compiling():
            return
        if _entered.blocks and _entered.blocks[-1][0] == id(module):
            _entered.blocks.pop()[1].__exit__(None, None, None)


def autocast_everywhere(on: bool) -> None:
    """Switch autocast on or off in this thread outside of blocks, so that losses are cast too.

    Nothing is cached: a cache is cleared at the end of a block, and here is none.
    """
    torch.set_autocast_enabled(DEVICE, on)
    torch.set_autocast_dtype(DEVICE, torch.float16)
    torch.set_autocast_cache_enabled(not on)


# ----------------------------------------------------------------------------------------------------- master weights


def make_master(param: Parameter, single: Tensor | None = None) -> Parameter:
    """Return the float32 copy that an optimizer updates instead of a parameter."""
    value = single if single is not None and single.dtype is torch.float32 else param.detach().float()
    master = Parameter(value.detach(), requires_grad=True)
    param._amp_master = master
    mark_equal(param)
    return master


def master_of(param: Tensor) -> Parameter | None:
    """Return the float32 copy of a parameter; ``None`` if it has none."""
    return getattr(param, "_amp_master", None)


def mark_equal(param: Tensor) -> None:
    """Record that a parameter and its copy are equal."""
    param._amp_version = param._version


@torch.no_grad()  # type: ignore[untyped-decorator]
def follow(param: Tensor) -> None:
    """Update a copy if its parameter was changed since, by loading or initialization."""
    master = master_of(param)
    if master is not None and param._version != param._amp_version:
        master.copy_(param)
        mark_equal(param)


def save_single(module: Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    """Write float32 values to a state dict: the copies of parameters, so that saving and loading is lossless."""
    params = {f"{prefix}{name}": param for name, param in module.named_parameters(remove_duplicate=False)}
    for key, value in state.items():
        if not (key.startswith(prefix) and isinstance(value, Tensor) and value.dtype is torch.float16):
            continue
        master = master_of(params[key]) if key in params else None
        if master is None:
            state[key] = value.float()
        else:
            follow(params[key])
            state[key] = master.detach()


@torch.no_grad()  # type: ignore[untyped-decorator]
def load_single(module: Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Set the copies from a state dict, before it is rounded to the parameters' dtype."""
    for name, param in module.named_parameters(remove_duplicate=False):
        master, value = master_of(param), state.get(f"{prefix}{name}")
        if master is not None and isinstance(value, Tensor) and value.shape == master.shape:
            master.copy_(value)


def loaded(module: Module, _: Any) -> None:
    """Record that copies and parameters are equal after loading."""
    for param in module.parameters():
        if master_of(param) is not None:
            mark_equal(param)
