"""Device memory, in bytes; simulated: a device has what the card's description says."""

from __future__ import annotations

from typing import Any

from torch_sdaa.core import C
from torch_sdaa.sdaa.devices import Device, index_of
from torch_sdaa.summaries import memory_text


def memory_allocated(device: Device = None) -> int:
    """Return the bytes that tensors take, in blocks of 512."""
    return int(C.memory_allocated(index_of(device)))


def max_memory_allocated(device: Device = None) -> int:
    """Return the most that tensors took since the last :func:`reset_peak_memory_stats`."""
    return int(C.max_memory_allocated(index_of(device)))


def memory_reserved(device: Device = None) -> int:
    """Return the bytes taken from the device, in segments of 2 MiB; :func:`empty_cache` gives back what is free."""
    return int(C.memory_reserved(index_of(device)))


def max_memory_reserved(device: Device = None) -> int:
    """Return the most that was taken from the device since the last :func:`reset_peak_memory_stats`."""
    return int(C.max_memory_reserved(index_of(device)))


def empty_cache() -> None:
    """Give free segments back to all devices."""
    C.empty_cache()


def reset_peak_memory_stats(device: Device = None) -> None:
    """Let the peaks begin at what is taken now."""
    C.reset_peak(index_of(device))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Let the sums of :func:`memory_stats` begin at 0."""
    C.reset_accumulated(index_of(device))


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Return the free bytes and all bytes of a device."""
    total = int(C.memory_limit())
    return total - memory_allocated(device), total


def memory_stats(device: Device = None) -> dict[str, Any]:
    """Return the figures above under the names ``torch.cuda.memory_stats`` gives them."""
    index = index_of(device)
    counts = C.memory_counts(index)
    return {
        "allocated_bytes.all.current": memory_allocated(index),
        "allocated_bytes.all.peak": max_memory_allocated(index),
        "allocated_bytes.all.allocated": counts["allocated_bytes"],
        "allocated_bytes.all.freed": counts["freed_bytes"],
        "reserved_bytes.all.current": memory_reserved(index),
        "reserved_bytes.all.peak": max_memory_reserved(index),
        "num_ooms": counts["ooms"],
    }


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """Return the figures above as text; ``abbreviated`` changes nothing, there is nothing to leave out."""
    return memory_text(index_of(device))
