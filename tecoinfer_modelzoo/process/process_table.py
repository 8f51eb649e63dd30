"""Descendants of a process and their private memory (Linux only; empty elsewhere)."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as in typing, which takes some milliseconds
if TYPE_CHECKING:
    from collections.abc import Sequence


def descendants(top: int) -> list[int]:
    """Return the ids of all living descendants of a process, parents before children."""
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if not name.isdigit():
            continue
        stat = _read(f"/proc/{name}/stat")
        fields = stat[stat.rfind(b")") + 2 :].split(None, 2)  # the name in parentheses may contain any character
        if len(fields) > 1 and fields[0] != b"Z":
            below.setdefault(int(fields[1]), []).append(int(name))
    found, waiting = list[int](), [top]
    while waiting:
        children = below.pop(waiting.pop(0), [])
        found += children
        waiting += children
    return found


def private_memory(pids: Sequence[int], limit: float) -> int:
    """Return the bytes of memory of processes without file mappings, which the system can reclaim.

    Pages shared by forks are counted once if counting them per process would exceed the limit.
    """
    page = os.sysconf("SC_PAGE_SIZE")
    sizes = {pid: (_read(f"/proc/{pid}/statm").split() + [b"0"] * 3)[1:3] for pid in pids}
    held = {pid: (int(resident) - int(shared)) * page for pid, (resident, shared) in sizes.items()}
    total = sum(held.values())
    if total <= limit or len(held) == 1:
        return total
    return sum(min(size, _proportional(pid, size)) for pid, size in held.items())


def _proportional(pid: int, otherwise: int) -> int:
    """Return a process's proportional share of anonymous pages; ``otherwise`` if the kernel does not report it."""
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss_Anon:"):
            return int(line.split()[1]) * 1024
    return otherwise


def _read(path: str) -> bytes:
    """Return a file of ``/proc``; empty if the process has ended."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
