"""Wrong use of ``amp.initialize``, each a line that says what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import Module
from torch.optim import Optimizer

from torch_sdaa.apex.casting import DEVICE

ONCE = "was given to amp.initialize before; call it once, with all models and all optimizers as lists"


def as_list(what: str, given: Any, kind: type, name: str) -> list[Any]:
    """Return one object, or a list of them, as a list.

    Raises:
        TypeError: something else was given.
    """
    out = list(given) if isinstance(given, (list, tuple)) else [given]
    for each in out:
        if not isinstance(each, kind):
            raise TypeError(f"{what} must be one {name} or a list of them, not {type(each).__name__}")
    return out


def check_number(num_losses: Any) -> None:
    """Refuse a number of losses that is none.

    Raises:
        ValueError: the line says what it must be.
    """
    if not isinstance(num_losses, int) or num_losses < 1:
        raise ValueError(f"num_losses={num_losses!r} must be a whole number from 1 on")


def check_models(models: Sequence[Module]) -> None:
    """Refuse models that cannot be lowered.

    Raises:
        RuntimeError: the line names the model.
    """
    for model in models:
        name = type(model).__name__
        if "_amp_initialized" in model.__dict__:
            raise RuntimeError(f"this {name} {ONCE}")
        if isinstance(model, (torch.nn.parallel.DistributedDataParallel, torch.nn.parallel.DataParallel)):
            raise RuntimeError(f"{name} before amp.initialize: give it the model inside, and wrap what it returns")
        for key, tensor in (*model.named_parameters(), *model.named_buffers()):
            if not tensor.is_floating_point():
                continue
            if tensor.device.type != DEVICE:
                raise RuntimeError(
                    f"{key} of {name} is on {tensor.device}: call model.to('sdaa') before amp.initialize"
                )
            if tensor.dtype is torch.float16 and isinstance(tensor, torch.nn.Parameter):
                raise RuntimeError(
                    f"{key} of {name} is float16 already: give amp.initialize the float32 model, which it casts"
                )


def check_optimizers(optimizers: Sequence[Optimizer], models: Sequence[Module]) -> None:
    """Refuse optimizers that do not step the models' parameters.

    Raises:
        RuntimeError: the line names the optimizer.
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
                f"{name} steps a parameter on {elsewhere.device}: call model.to('sdaa') first, and make the optimizer "
                "of the model's parameters after that"
            )
        if params and models and not any(param in known for param in params):
            raise RuntimeError(
                f"{name} steps no parameter of these models: make it of model.parameters() after model.to('sdaa')"
            )
