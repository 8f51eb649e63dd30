"""Availability of mixed precision."""

from __future__ import annotations

from torch_sdaa.sdaa.devices import is_available


def amp_definitely_not_available() -> bool:
    """Return whether this process sees no device."""
    return not is_available()
