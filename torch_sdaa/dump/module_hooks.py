"""Value ranges of every module's outputs and their gradients, recorded by hooks: a quick check before a dump."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_sdaa.dump.scales import loss_scale


@dataclass(frozen=True, slots=True)
class Seen:
    """Statistics of one tensor of one module.

    Attributes:
        module, kind: path and class. phase: ``forward`` (the output) or ``backward`` (the output's gradient).
        call: number of earlier forwards of this module. minimum, maximum, mean: of the finite elements; NaN without
            any.
        nan, infinite: number of such elements. loss_scale: at that time; ``None`` without one.
    """

    module: str
    kind: str
    phase: str
    call: int
    minimum: float
    maximum: float
    mean: float
    nan: int
    infinite: int
    loss_scale: float | None


@dataclass
class Watched:
    """Statistics in order of time."""

    rows: list[Seen] = field(default_factory=list)

    def first_bad(self) -> Seen | None:
        """Return the first tensor with NaN or infinity."""
        return next((row for row in self.rows if row.nan or row.infinite), None)


@contextmanager
def watch_modules(model: torch.nn.Module) -> Iterator[Watched]:
    """Record the range of every module's outputs and of their gradients in the ``with`` block."""
    found = Watched()
    calls: dict[str, int] = {}

    def look(name: str, module: torch.nn.Module, output: Any) -> None:
        count = calls[name] = calls.get(name, -1) + 1
        for tensor in _floating(output):
            found.rows.append(_seen(name, module, "forward", count, tensor))
            if tensor.requires_grad:

                def back(grad: torch.Tensor) -> None:
                    found.rows.append(_seen(name, module, "backward", count, grad))

                tensor.register_hook(back)

    def hook_of(name: str) -> Any:
        def hook(module: torch.nn.Module, _: Any, output: Any) -> None:
            look(name, module, output)

        return hook

    hooks = [module.register_forward_hook(hook_of(name)) for name, module in model.named_modules()]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _floating(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() and value.layout == torch.strided else []
    if isinstance(value, dict):
        value = list(value.values())
    return [t for one in value for t in _floating(one)] if isinstance(value, (list, tuple)) else []


def _seen(name: str, module: torch.nn.Module, phase: str, call: int, tensor: torch.Tensor) -> Seen:
    values = tensor.detach().cpu().double().flatten()
    good = values[values.isfinite()]
    nan = int(values.isnan().sum())
    low, high, mean = (good.min(), good.max(), good.mean()) if good.numel() else (math.nan,) * 3
    bad = values.numel() - good.numel() - nan
    figures = (float(low), float(high), float(mean))
    return Seen(name, type(module).__name__, phase, call, *figures, nan, bad, loss_scale())
