"""Who takes part in a group: every rank writes its name into the group's store and reads the others'."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from torch.distributed import DistBackendError, DistError

from engine.sdaa import all_visible_devices
from torch_sdaa.loading.core import C

LOOK = 1.0
"""Seconds between two looks whether those that have come are still there."""

_PARTING = 5.0
"""Seconds that rank 0 waits at most for the others to have read what it ends with."""


_seen: dict[int, Member] = {}
"""By number in the world: those of all groups so far."""


class Member(NamedTuple):
    """One rank.

    Attributes:
        number: in the world. host: as people call it. place: tells hosts (and containers) apart.
        pid, began: its process, and when that began. devices: that it sees, as the host numbers them.
        size: how many ranks it was told that there are.
    """

    number: int
    host: str
    place: str
    pid: int
    began: str
    devices: tuple[int, ...]
    size: int

    @property
    def has_ended(self) -> bool:
        """Whether its process is gone, as far as can be seen from here."""
        return self.place == _place() and bool(self.began) and C.began(self.pid) != self.began


def myself(number: int, size: int) -> Member:
    """Return this process as rank ``number`` of the world, in a group of ``size``."""
    pid = os.getpid()
    return Member(number, socket.gethostname(), _place(), pid, C.began(pid), tuple(all_visible_devices()), size)


def _place() -> str:
    """Return what only processes that see one another's numbers have in common."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    try:
        return f"{boot.read_text(encoding='ascii').strip()[:8]}-{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:  # a system without them: each process is by itself
        return f"{socket.gethostname()}-{os.getpid()}"


def forget() -> None:
    """Begin a world anew."""
    _seen.clear()


def lost(patience: float = 0.0) -> list[Member]:
    """Return those of all groups so far whose processes have ended.

    Args:
        patience: seconds that one may take to end: its connections close a little before.
    """
    until = time.monotonic() + patience
    while True:
        found = [one for _, one in sorted(_seen.items()) if one.has_ended]
        if found or time.monotonic() >= until:
            return found
        time.sleep(0.05)


def call(store: Any, rank: int, numbers: Sequence[int], timeout: timedelta) -> list[Member]:
    """Say in the group's store who this rank is, wait for the others, and return all, in order of rank.

    Args:
        numbers: of the group's ranks in the world.

    Raises:
        DistBackendError: one ended before all had come, or some did not come in time.
        ValueError: ranks were told other numbers of ranks.
    """
    number, size = numbers[rank], len(numbers)
    store.set(f"tccl/rank/{rank}", json.dumps(myself(number, size)._asdict()))
    keys = [f"tccl/rank/{other}" for other in range(size)]
    earlier = [_seen[other] for other in numbers if other in _seen]
    wait_for(
        store,
        keys,
        timeout,
        lambda missing: _not_come(missing, size, number, timeout),
        lambda: [*_come(store, keys), *earlier],
    )
    found = _come(store, keys)
    part(store, number, f"tccl/read/{rank}", [f"tccl/read/{other}" for other in range(max(one.size for one in found))])
    for one in found:
        if one.size != size:
            raise ValueError(
                f"rank {number} was started with WORLD_SIZE {size}, and rank {one.number} with {one.size}: start all "
                "ranks with the same, the number of all processes"
            )
    _seen.update({one.number: one for one in found})
    return found


def part(store: Any, number: int, mine: str, keys: Sequence[str]) -> None:
    """Say that this rank has read what it may end with; rank 0 waits a while until all have, as it may hold the store.

    Args:
        number: this rank's in the world. mine: the key that says it of this rank. keys: those of all ranks.
    """
    until = time.monotonic() + _PARTING
    try:
        store.set(mine, "")
        while number == 0 and not store.check(list(keys)) and time.monotonic() < until:
            time.sleep(0.002)
    except DistError:  # who held it has ended: what this rank has read, and says next, stays true
        return


def members(store: Any, size: int) -> list[Member]:
    """Return the ranks of a group.

    Args:
        store: that of its backend.
    """
    return _come(store, [f"tccl/rank/{rank}" for rank in range(size)])


def _come(store: Any, keys: Sequence[str]) -> list[Member]:
    found = [json.loads(store.get(key)) for key in keys if store.check([key])]
    return [Member(**{**one, "devices": tuple(one["devices"])}) for one in found]


def _not_come(missing: Sequence[int], size: int, number: int, timeout: timedelta) -> str:
    names = ", ".join(map(str, missing))
    return (
        f"tccl: rank {number} waited {timeout.total_seconds():g} s for rank {names} of a group of {size}; start all of "
        "them, with the same MASTER_ADDR and MASTER_PORT, and look what those that are missing printed"
    )


def refuse_ended(members: Sequence[Member], before: str) -> None:
    """Refuse to go on without a rank whose process has ended.

    Raises:
        DistBackendError: one has.
    """
    for one in members:
        if one.has_ended:
            raise DistBackendError(
                f"tccl: rank {one.number} (process {one.pid}) ended before {before}; see what it printed last, and "
                "start all ranks again"
            )


def wait_for(
    store: Any,
    keys: Sequence[str],
    timeout: timedelta,
    missing_line: Callable[[Sequence[int]], str],
    known: Callable[[], Sequence[Member]],
) -> None:
    """Wait until the store has all keys, one for each rank in order.

    Args:
        store, keys, timeout: what to wait for, and how long. missing_line: what to say of ranks that did not come.
        known: those that have come; each is looked after while the others are waited for.

    Raises:
        DistBackendError: a member's process has ended, or the time is over.
    """
    until, look, pause = time.monotonic() + timeout.total_seconds(), time.monotonic() + LOOK, 0.001
    while not store.check(list(keys)):
        now = time.monotonic()
        if now > look:
            look = now + LOOK
            if not store.check(list(keys)):
                refuse_ended(known(), "all ranks had come")
        if now > until:
            raise DistBackendError(missing_line([rank for rank, key in enumerate(keys) if not store.check([key])]))
        time.sleep(pause)
        pause = min(0.05, 2 * pause)
