"""Connect the devices of this process to the simulated card: number, memory, prices, faults."""

from __future__ import annotations

import os
from collections.abc import Sequence

from engine import ConfigError
from engine.sdaa import all_visible_devices, load_card
from torch_sdaa.cost import prices
from torch_sdaa.faults import device_faults, operator_faults
from torch_sdaa.loading.core import C
from torch_sdaa.options import settings, strict
from torch_sdaa.reports import launch_lines, publish, summaries
from torch_sdaa.sdaa import random


def start() -> None:
    """Configure the devices by the card's description and the environment.

    All cards of the host are visible: ``TECO_SIM_CARDS`` cards of ``MAX_ENGINE_NUMS`` devices each, or those in
    ``SDAA_VISIBLE_DEVICES``, in its order; empty hides all, like ``CUDA_VISIBLE_DEVICES``.

    Raises:
        ConfigError: a variable or the description is invalid.
    """
    settings.start()
    card, numbers = load_card(), [] if os.environ.get("SDAA_VISIBLE_DEVICES") == "" else all_visible_devices()
    C.set_device_count(len(numbers))
    C.set_memory_limit(card.memory_bytes)
    pricer = prices.Pricer(card)
    C.set_pricer(launch_lines.logged(pricer))
    summaries.set_pricer(pricer)
    device_faults.start(card, len(numbers))
    operator_faults.start(len(numbers))
    publish.prepare(numbers)
    strict.start()
    _choose_generators()


def _choose_generators() -> None:
    """Apply ``TORCH_SDAA_RANDOM``: each device has its own default generator, as on CUDA, or all use the CPU's.

    A script that draws alternately on the CPU and on a device (order on the CPU, dropout on the device) gets other
    numbers with separate generators than on the CPU alone; with ``cpu`` results are bit-identical.
    """
    text = os.environ.get("TORCH_SDAA_RANDOM") or "device"
    if text not in ("device", "cpu"):
        choices = "device (a generator for each device, as on CUDA) or cpu (all draw from the CPU's)"
        raise ConfigError(f"environment variable TORCH_SDAA_RANDOM={text!r} must be {choices}")
    if text == "cpu":
        C.share_generator()


def choose_devices(numbers: Sequence[int]) -> bool:
    """Change the visible devices, by their numbers on the host; return ``False`` if one was already used."""
    if publish.is_on():
        return False
    C.set_device_count(len(numbers))
    publish.prepare(numbers)
    random.forget()
    return True


def stop() -> None:
    """Stop activities before the process ends."""
    publish.stop()
    launch_lines.flush()
    strict.set_strict(False)
    device_faults.stop()
    operator_faults.clear()
