"""Run one check, and verify that it leaves nothing behind."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass

import torch

from tests.torch_sdaa.hard.check import Check, state


@dataclass(frozen=True)
class Outcome:
    """Outcome of a check.

    Attributes:
        why: why it failed; empty where it did not. memory: bytes a device, afterwards.
    """

    why: str
    memory: list[int]


def run(check: Check, patience: float = 5.0) -> Outcome:
    """Run a check: it must not raise, and must not change memory, device, streams, threads and modes.

    An autograd thread drops what its last backward held when it gets round to it: it has ``patience`` seconds for that.
    """
    torch.manual_seed(0)
    before = state()
    why = ""
    try:
        check.function()
    except Exception as error:  # noqa: BLE001 - a check may fail in any way, and the next one is run
        place = traceback.extract_tb(error.__traceback__)
        where = next((f"{f.name}:{f.lineno}" for f in reversed(place) if "/hard/" in f.filename), "")
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:300]} ({where})"
    after = state()
    until = time.monotonic() + patience
    while after["memory"] != before["memory"] and time.monotonic() < until:
        time.sleep(0.01)
        after = state()
    left = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    if not why and left:
        why = "left behind: " + "; ".join(f"{name} {was} became {now}" for name, (was, now) in left.items())
    return Outcome(why, after["memory"])
