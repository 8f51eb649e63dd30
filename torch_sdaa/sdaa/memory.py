"""Device memory in bytes; simulated with the size in the card's description."""

from __future__ import annotations

from typing import Any

import torch
from typing_extensions import deprecated

from torch_sdaa.loading.core import C
from torch_sdaa.sdaa.devices import Device, index_of


def memory_allocated(device: Device = None) -> int:
    """Return the bytes of tensors, in blocks of 512."""
    return int(C.memory_allocated(index_of(device)))


def max_memory_allocated(device: Device = None) -> int:
    """Return the peak bytes of tensors since the last :func:`reset_peak_memory_stats`."""
    return int(C.max_memory_allocated(index_of(device)))


def memory_reserved(device: Device = None) -> int:
    """Return the bytes reserved on the device, in segments of 2 MiB; :func:`empty_cache` releases free ones."""
    return int(C.memory_reserved(index_of(device)))


def max_memory_reserved(device: Device = None) -> int:
    """Return the peak bytes reserved since the last :func:`reset_peak_memory_stats`."""
    return int(C.max_memory_reserved(index_of(device)))


def empty_cache() -> None:
    """Release free segments of all devices."""
    C.empty_cache()


def reset_peak_memory_stats(device: Device = None) -> None:
    """Reset the peaks to the current values."""
    C.reset_peak(index_of(device))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Reset the totals of :func:`memory_stats` to 0."""
    C.reset_accumulated(index_of(device))


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Return the free and the total bytes of a device."""
    index, total = index_of(device), int(C.memory_limit())
    return total - memory_allocated(index), total


def memory_stats(device: Device = None) -> dict[str, Any]:
    """Return the figures above and block counts, with the names of ``torch.cuda.memory_stats``.

    Names for small and large pools, and for requested in contrast to allocated bytes, are omitted, because memory is
    not divided in this way.
    """
    stats = torch.accelerator.memory_stats(index_of(device))
    return {name: value for name, value in stats.items() if _counted(name)}


def _counted(name: str) -> bool:
    kinds = ("active.", "active_bytes.", "allocated_bytes.", "allocation.", "reserved_bytes.")
    return name.startswith("num_") or (name.startswith(kinds) and ".all." in name)


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """Return :func:`memory_stats` as nested dicts, split at the dots of the names."""
    nested: dict[str, Any] = {}
    for name, value in memory_stats(device).items():
        *folders, last = name.split(".")
        inner = nested
        for folder in folders:
            inner = inner.setdefault(folder, {})
        inner[last] = value
    return nested


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """Return the figures of a device as a table in MiB; ``abbreviated`` omits the totals."""
    index = index_of(device)
    stats, (free, total) = memory_stats(index), mem_get_info(index)
    rows = {
        "allocated": stats["allocated_bytes.all.current"],
        "most allocated": stats["allocated_bytes.all.peak"],
        "reserved": stats["reserved_bytes.all.current"],
        "most reserved": stats["reserved_bytes.all.peak"],
        "free": free,
        "device": total,
    }
    if not abbreviated:
        rows["allocated in all"] = stats["allocated_bytes.all.allocated"]
        rows["freed in all"] = stats["allocated_bytes.all.freed"]
    lines = [f"sdaa:{index}, simulated memory; out of memory {stats['num_ooms']} times"]
    return "\n".join(lines + [f"{name:<18}{value / 2**20:>14.2f} MiB" for name, value in rows.items()])


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Limit this process to a fraction of a device's memory, 0 to 1; beyond it is out of memory.

    Raises:
        TypeError: the fraction is not a ``float``.
        ValueError: it is below 0 or above 1.
    """
    if not isinstance(fraction, float):
        raise TypeError(f"the fraction of memory must be a float such as 0.5, got {fraction!r}")
    if not 0 <= fraction <= 1:
        raise ValueError(f"the fraction of memory must be from 0 to 1, got {fraction}")
    index = index_of(device)
    C.set_allowed(index, int(fraction * C.memory_limit()) if fraction < 1 else 2**63 - 1)


def get_per_process_memory_fraction(device: Device = None) -> float:
    """Return the fraction of a device's memory that this process may use, 0 to 1."""
    return float(C.allowed(index_of(device)) / C.memory_limit())


def get_allocator_backend() -> str:
    """Return ``"native"``, the only one."""
    return "native"


@deprecated("torch.sdaa.memory_cached is torch.sdaa.memory_reserved", category=FutureWarning)
def memory_cached(device: Device = None) -> int:
    """Return :func:`memory_reserved` (deprecated name)."""
    return memory_reserved(device)


@deprecated("torch.sdaa.max_memory_cached is torch.sdaa.max_memory_reserved", category=FutureWarning)
def max_memory_cached(device: Device = None) -> int:
    """Return :func:`max_memory_reserved` (deprecated name)."""
    return max_memory_reserved(device)


@deprecated(
    "torch.sdaa.reset_max_memory_allocated is reset_peak_memory_stats, which resets all", category=FutureWarning
)
def reset_max_memory_allocated(device: Device = None) -> None:
    """Call :func:`reset_peak_memory_stats` (deprecated name)."""
    reset_peak_memory_stats(device)


@deprecated("torch.sdaa.reset_max_memory_cached is reset_peak_memory_stats, which resets all", category=FutureWarning)
def reset_max_memory_cached(device: Device = None) -> None:
    """Call :func:`reset_peak_memory_stats` (deprecated name)."""
    reset_peak_memory_stats(device)
