"""Divide the cores of a machine among the processes of a run."""

from __future__ import annotations

import os
from collections.abc import Sequence

from engine import usable_cores


def take_cores(index: int, of: int) -> None:
    """Limit this process, and threads it starts from now on, to its share (``index`` from 0, ``of`` processes) of the
    cores.

    No effect on systems without affinity (macOS, Windows).
    """
    if of > 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, share_of(sorted(os.sched_getaffinity(0)), usable_cores(), index, of))


def share_of(cores: Sequence[int], usable: int, index: int, of: int) -> list[int]:
    """Return the cores of share ``index`` of ``of`` equal shares of at least one core.

    Args:
        cores: numbers of the cores the processes may run on, at least one.
        usable: how many of them the processes may use together; fewer than ``cores`` under a CPU quota.
    """
    each = max(1, usable // of)
    # Adjacent cores share caches, and on most machines a NUMA node.
    return [cores[(index * each + i) % len(cores)] for i in range(each)]
