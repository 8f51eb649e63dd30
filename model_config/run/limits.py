"""Resource limits of a process that runs contributed code."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_MIB, _GIB = 2**20, 2**30
_MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def default_memory() -> int:
    """Return the default memory limit in bytes: 8 GiB, or three quarters of a smaller machine."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in _MEMORY_LIMITS:
        with suppress(OSError, ValueError):  # missing file, or "max"
            sizes.append(int(Path(name).read_text(encoding="ascii")))
    return min(8 * _GIB, min(sizes) * 3 // 4)


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of a step; a step that exceeds one is killed.

    Attributes:
        timeout: wall time in seconds.
        memory: bytes of the step and its descendants together.
        processes: maximum number of processes at once, including the step itself.
        output: maximum bytes on standard output, and the same on standard error.
        grace: seconds in which child processes must end after the step.
    """

    timeout: float = 600.0
    memory: int = field(default_factory=default_memory)
    processes: int = 200
    output: int = 10 * _MIB
    grace: float = 1.0
