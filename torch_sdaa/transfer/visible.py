"""``CUDA_VISIBLE_DEVICES`` while CUDA is redirected: selects devices of sdaa."""

from __future__ import annotations

import os
import sys

from engine.sdaa import all_visible_devices
from torch_sdaa.loading.vendor import first_process
from torch_sdaa.startup import simulated

CUDA, SDAA = "CUDA_VISIBLE_DEVICES", "SDAA_VISIBLE_DEVICES"

_followed: str | None = None


def follow() -> None:
    """Apply a new value of ``CUDA_VISIBLE_DEVICES``, unless ``SDAA_VISIBLE_DEVICES`` is set.

    Like on CUDA, it has an effect until a device is first used; later, a line is printed instead.
    """
    global _followed
    wanted = os.environ.get(CUDA)
    if wanted is None or wanted == _followed:
        return
    if SDAA in os.environ and _followed is None:
        return  # SDAA_VISIBLE_DEVICES takes precedence
    before, _followed = os.environ.pop(SDAA, None), wanted
    there = all_visible_devices()
    numbers = _numbers(wanted)
    if numbers is None or not set(numbers) <= set(there) or len(set(numbers)) < len(numbers):
        _say(f"{CUDA}={wanted!r} does not list devices from 0 to {there[-1]}, each once; it is ignored")
    elif not simulated.choose_devices(numbers):
        _say(f"{CUDA}={wanted!r} was set after the first use of a device and has no effect; set it before")
    else:
        before = ",".join(map(str, numbers)) or None
    if before is not None:
        os.environ[SDAA] = before  # for child processes


def forget() -> None:
    """Reset the state."""
    global _followed
    _followed = None


def _numbers(text: str) -> list[int] | None:
    """Return the devices in a value: [] for ``""`` and ``"-1"``, ``None`` if they are not numbers."""
    parts = [part.strip() for part in text.split(",")]
    if parts[0] in ("", "-1"):
        return []
    return [int(part) for part in parts] if all(part.isdecimal() for part in parts) else None


def _say(text: str) -> None:
    if first_process() and sys.stderr is not None:
        sys.stderr.write(f"torch_sdaa: {text}\n")
