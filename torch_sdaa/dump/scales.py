"""Current loss scale, of a ``GradScaler`` or of ``apex.amp``."""

from __future__ import annotations

import sys
import weakref
from typing import Any

import torch

_scalers: list[weakref.ref[Any]] = []
_read: tuple[Any, int, float] | None = None


def note(scaler: Any) -> None:
    """Register a ``GradScaler``; the last one is used."""
    _scalers[:] = [one for one in _scalers if one() not in (None, scaler)]
    _scalers.append(weakref.ref(scaler))


_scaled = 0


def note_scaled() -> None:
    """Record that a ``GradScaler`` has scaled a loss."""
    global _scaled
    _scaled += 1


def scaled() -> int:
    """Return the number of losses scaled by any ``GradScaler``."""
    return _scaled


def of_apex() -> bool:
    """Return whether ``apex.amp`` scales the losses."""
    apex: Any = sys.modules.get("torch_sdaa.apex.amp")
    return apex is not None and bool(apex._state.enabled and apex._state.scalers)


def loss_scale() -> float | None:
    """Return the loss scale; ``None`` without one."""
    if of_apex():
        return float(sys.modules["torch_sdaa.apex.amp"]._state.scalers[0].loss_scale())
    for one in reversed(_scalers):
        scaler = one()
        if scaler is not None and scaler.is_enabled():
            return _of_torch(scaler)
    return None


def _of_torch(scaler: torch.amp.GradScaler) -> float:
    """Return the scale of a ``GradScaler``; it is on the device, and only read after a change."""
    global _read
    held = scaler._scale
    if held is None:
        return float(scaler._init_scale)
    if _read is None or _read[0]() is not held or _read[1] != held._version:
        _read = (weakref.ref(held), held._version, float(held.item()))
    return _read[2]
