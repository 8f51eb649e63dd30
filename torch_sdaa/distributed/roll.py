"""Members of a group: every rank writes its data to the group's store and reads the others'."""

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
"""Seconds between checks of the ranks that have joined."""

_PARTING = 5.0
"""Maximum seconds that rank 0 waits for the others to read the final data."""


_seen: dict[int, Member] = {}
"""Members of all groups so far, by global rank."""


class Member(NamedTuple):
    """One rank.

    Attributes:
        number: global rank. host: host name. place: identifies the host (or container).
        pid, began: its process, and the start time. devices: visible devices, as numbered by the host.
        size: world size that it was started with.
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
        """Whether its process has ended, as far as visible from this host."""
        return self.place == _place() and bool(self.began) and C.began(self.pid) != self.began


def myself(number: int, size: int) -> Member:
    """Return this process as global rank ``number``, in a group of ``size``."""
    pid = os.getpid()
    return Member(number, socket.gethostname(), _place(), pid, C.began(pid), tuple(all_visible_devices()), size)


def _place() -> str:
    """Return an identifier shared by processes with the same boot and PID namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    try:
        return f"{boot.read_text(encoding='ascii').strip()[:8]}-{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:  # unavailable: every process gets its own
        return f"{socket.gethostname()}-{os.getpid()}"


def forget() -> None:
    """Forget all members."""
    _seen.clear()


def lost(patience: float = 0.0) -> list[Member]:
    """Return the members of all groups so far whose processes have ended.

    Args:
        patience: seconds to wait for a process to end: its connections close slightly before.
    """
    until = time.monotonic() + patience
    while True:
        found = [one for _, one in sorted(_seen.items()) if one.has_ended]
        if found or time.monotonic() >= until:
            return found
        time.sleep(0.05)


def call(store: Any, rank: int, numbers: Sequence[int], timeout: timedelta) -> list[Member]:
    """Register this rank in the group's store, wait for the others, and return all, in order of rank.

    Args:
        numbers: global ranks of the group.

    Raises:
        DistBackendError: a rank ended before all had joined, or did not join in time.
        ValueError: ranks were started with different world sizes.
    """
    number, size = numbers[rank], len(numbers)
    store.set(f"tccl/rank/{rank}", json.dumps(myself(number, size)._asdict()))
    keys = [f"tccl/rank/{other}" for other in range(size)]
    earlier = [_seen[other] for other in numbers if other in _seen]
    wait_for(
        store,
        keys,
        timeout,
        lambda missing: _missing_line(missing, size, number, timeout),
        lambda: [*_joined(store, keys), *earlier],
    )
    found = _joined(store, keys)
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
    """Record that this rank has read the final data; rank 0, which may hold the store, waits briefly for all others.

    Args:
        number: global rank of this process. mine: its key. keys: the keys of all ranks.
    """
    until = time.monotonic() + _PARTING
    try:
        store.set(mine, "")
        while number == 0 and not store.check(list(keys)) and time.monotonic() < until:
            time.sleep(0.002)
    except DistError:  # the process with the store has ended; the data already read is still valid
        return


def members(store: Any, size: int) -> list[Member]:
    """Return the ranks of a group (``store``: of its backend)."""
    return _joined(store, [f"tccl/rank/{rank}" for rank in range(size)])


def _joined(store: Any, keys: Sequence[str]) -> list[Member]:
    found = [json.loads(store.get(key)) for key in keys if store.check([key])]
    return [Member(**{**one, "devices": tuple(one["devices"])}) for one in found]


def _missing_line(missing: Sequence[int], size: int, number: int, timeout: timedelta) -> str:
    names = ", ".join(map(str, missing))
    return (
        f"tccl: rank {number} waited {timeout.total_seconds():g} s for rank {names} of a group of {size}; start all "
        "ranks with the same MASTER_ADDR and MASTER_PORT, and see the output of the missing ones"
    )


def refuse_ended(members: Sequence[Member], before: str) -> None:
    """Check that no process of the members has ended; raise DistBackendError if one has."""
    for one in members:
        if one.has_ended:
            raise DistBackendError(
                f"tccl: rank {one.number} (process {one.pid}) ended before {before}; see its last output, and start "
                "all ranks again"
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
        store, keys, timeout: what to wait for, and how long. missing_line: returns the message for missing ranks.
        known: returns the joined ranks, whose processes are checked meanwhile.

    Raises:
        DistBackendError: the process of a member has ended, or the time is up.
    """
    until, look, pause = time.monotonic() + timeout.total_seconds(), time.monotonic() + LOOK, 0.001
    while not store.check(list(keys)):
        now = time.monotonic()
        if now > look:
            look = now + LOOK
            if not store.check(list(keys)):
                refuse_ended(known(), "all ranks had joined")
        if now > until:
            raise DistBackendError(missing_line([rank for rank, key in enumerate(keys) if not store.check([key])]))
        time.sleep(pause)
        pause = min(0.05, 2 * pause)
