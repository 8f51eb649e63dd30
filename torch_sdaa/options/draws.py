"""Random generators of the devices: their own, as on CUDA, or the CPU's.

Each device has a generator (``torch_sdaa/sdaa/random.py``). A script that draws alternately on the CPU and on a device
(order on the CPU, dropout on the device) then draws other numbers than on the CPU alone, where all are one sequence.
With ``TORCH_SDAA_RANDOM=cpu`` the devices' default generators are the CPU's, and results are bit-identical.
"""

from __future__ import annotations

import os

from engine import ConfigError
from torch_sdaa.loading.core import C

VARIABLE = "TORCH_SDAA_RANDOM"


def start() -> None:
    """Apply ``TORCH_SDAA_RANDOM``.

    Raises:
        ConfigError: it is neither ``device`` nor ``cpu``.
    """
    text = os.environ.get(VARIABLE) or "device"
    if text not in ("device", "cpu"):
        choices = "device (a generator for each device, as on CUDA) or cpu (all draw from the CPU's)"
        raise ConfigError(f"environment variable {VARIABLE}={text!r} must be {choices}")
    if text == "cpu":
        C.share_generator()
