"""Checks of the arguments of ``amp.initialize``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import Module
from torch.optim import Optimizer

from torch_sdaa.apex.casting import DEVICE

ONCE = "was already passed to amp.initialize; call it once, with all models and all optimizers as lists"


def as_list(what: str, given: Any, kind: type, name: str) -> list[Any]:
    """Return one object, or a list of them, as a list; raise TypeError if an object has another type."""
    out = list(given) if isinstance(given, (list, tuple)) else [given]
    for each in out:
        if not isinstance(each, kind):
            raise TypeError(f"{what} must be one {name} or a list of them, not {type(each).__name__}")
    return out


def check_number(num_losses: Any) -> None:
    """Check the number of losses; raise ValueError if it is not an integer from 1."""
    if not isinstance(num_losses, int) or num_losses < 1:
        raise ValueError(f"num_losses={num_losses!r} must be a whole number from 1 on")


def check_models(models: Sequence[Module]) -> None:
    """Check that models can be cast; raise RuntimeError if a model cannot be; the message has its name."""
    for model in models:
        name = type(model).__name__
        if "_amp_initialized" in model.__dict__:
            raise RuntimeError(f"this {name} {ONCE}")
        if isinstance(model, (torch.nn.parallel.DistributedDataParallel, torch.nn.parallel.DataParallel)):
            raise RuntimeError(
                f"{name} before amp.initialize: pass it the wrapped model, and wrap the model that it returns"
            )
        for key, tensor in (*model.named_parameters(), *model.named_buffers()):
            if not tensor.is_floating_point():
                continue
            if tensor.device.type != DEVICE:
                raise RuntimeError(
                    f"{key} of {name} is on {tensor.device}: call model.to('sdaa') before amp.initialize"
                )
            if tensor.dtype is torch.float16 and isinstance(tensor, torch.nn.Parameter):
                raise RuntimeError(
                    f"{key} of {name} is float16 already: pass amp.initialize the float32 model, which it casts"
                )


def check_optimizers(optimizers: Sequence[Optimizer], models: Sequence[Module]) -> None:
    """Check that optimizers update the models' parameters.

    Raises:
        RuntimeError: an optimizer does not; the message has its name.
    """
    known = {param for model in models for param in model.parameters()}
    for optimizer in optimizers:
        name = type(optimizer).__name__
        if hasattr(optimizer, "_amp_stash"):
            raise RuntimeError(f"this {name} {ONCE}")
        params = [param for group in optimizer.param_groups for param in group["params"]]
        elsewhere = next((param for param in params if param.device.type != DEVICE), None)
        if elsewhere is not None:
            raise RuntimeError(
                f"{name} has a parameter on {elsewhere.device}: call model.to('sdaa') first, then create the optimizer "
                "from the model's parameters"
            )
        if params and models and not any(param in known for param in params):
            raise RuntimeError(
                f"{name} has no parameter of these models: create it from model.parameters() after model.to('sdaa')"
            )
