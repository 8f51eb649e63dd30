"""``GradScaler`` for this device."""

from __future__ import annotations

import functools
from typing import Any

import torch

from torch_sdaa.dump.scales import note, note_scaled
from torch_sdaa.options.strict import is_strict, set_strict


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler("sdaa", ...)``; with ``dynamic=False`` the scale is constant.

    A constant scale also skips steps that overflow, but neither grows nor backs off.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
        *,
        dynamic: bool = True,
    ) -> None:
        super().__init__("sdaa", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self._dynamic = dynamic

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """Update the scale for the next step; see ``torch.amp.GradScaler.update``."""
        super().update(self._scale if new_scale is None and not self._dynamic and self._enabled else new_scale)


def mend() -> None:
    """Let the scaler run in strict mode, in which PyTorch takes a reciprocal in float64; register scalers for dumps."""
    if not getattr(torch.amp.GradScaler.unscale_, "of_sdaa", False):  # once
        torch.amp.GradScaler.unscale_ = _not_judged(torch.amp.GradScaler.unscale_)
        torch.amp.GradScaler.__init__ = _noted(torch.amp.GradScaler.__init__)
        torch.amp.GradScaler.scale = _counted(torch.amp.GradScaler.scale)


def _noted(original: Any) -> Any:
    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        note(self)  # a dump records the loss scale of each call

    return init


def _counted(original: Any) -> Any:
    @functools.wraps(original)
    def scale(self: Any, outputs: Any) -> Any:
        note_scaled()
        return original(self, outputs)

    return scale


def _not_judged(original: Any) -> Any:
    @functools.wraps(original)
    def unscale_(self: Any, optimizer: Any) -> None:
        strict = is_strict() and self._device == "sdaa"
        if strict:
            set_strict(False)
        try:
            original(self, optimizer)
        finally:
            if strict:
                set_strict(True)

    unscale_.of_sdaa = True  # type: ignore[attr-defined]
    return unscale_
