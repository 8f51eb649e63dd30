"""What a process that runs contributed code may use."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_MIB, _GIB = 2**20, 2**30
_MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def default_memory() -> int:
    """Return the bytes a step may hold by default: 8 GiB, or three quarters of a smaller machine."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in _MEMORY_LIMITS:
        with suppress(OSError, ValueError):  # not there, or "max"
            sizes.append(int(Path(name).read_text(encoding="ascii")))
    return min(8 * _GIB, min(sizes) * 3 // 4)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a step may use before it is killed.

    Attributes:
        timeout: seconds of wall time.
        memory: bytes that the step and all it starts hold together.
        processes: of the step at once, itself included.
        output: bytes on standard output, and as many on standard error.
        grace: seconds in which what a step started must end after it.
    """

    timeout: float = 600.0
    memory: int = field(default_factory=default_memory)
    processes: int = 200
    output: int = 10 * _MIB
    grace: float = 1.0
