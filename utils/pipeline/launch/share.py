"""The cores of one machine, shared out among the processes of a run on it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from engine import usable_cores


def take_cores(index: int, of: int) -> None:
    """Keep to this process's share of the cores it may use: what it starts from now on (threads, engines) follows.

    Where the system has no affinity (macOS, Windows) nothing changes.

    Args:
        index: which share, from 0.
        of: processes that share these cores.
    """
    if of > 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, share_of(sorted(os.sched_getaffinity(0)), usable_cores(), index, of))


def share_of(cores: Sequence[int], usable: int, index: int, of: int) -> list[int]:
    """Return the cores of share ``index`` of ``of``: equally many each, at least one.

    Args:
        cores: numbers of the cores the processes may run on, at least one.
        usable: how many of them they may keep busy together: fewer than ``cores`` under a CPU quota.
    """
    each = max(1, usable // of)
    # Neighbours: they share caches, and on most machines a NUMA node.
    return [cores[(index * each + i) % len(cores)] for i in range(each)]
