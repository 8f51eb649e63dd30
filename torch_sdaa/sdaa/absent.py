"""Names of ``torch.cuda`` that ``torch.sdaa`` lacks, and replacements."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_GRAPHS = "the card does not capture graphs; use torch.compile for fewer launches"
_ALLOCATOR = "the card's memory has one allocator; see torch.sdaa.memory_stats"
_VENDOR = "it is specific to CUDA"
_SMI = "the command teco-smi shows it"

ABSENT = {
    "CUDAGraph": _GRAPHS,
    "CUDAPluggableAllocator": _ALLOCATOR,
    "CudaError": "errors are RuntimeError, torch.OutOfMemoryError and torch.AcceleratorError",
    "DeferredCudaCallError": "errors are RuntimeError, torch.OutOfMemoryError and torch.AcceleratorError",
    "ExternalStream": "streams are made by torch.sdaa.Stream only",
    "GreenContext": _VENDOR,
    "MemPool": _ALLOCATOR,
    "caching_allocator_alloc": _ALLOCATOR,
    "caching_allocator_delete": _ALLOCATOR,
    "caching_allocator_disabled": _ALLOCATOR,
    "caching_allocator_enable": _ALLOCATOR,
    "change_current_allocator": _ALLOCATOR,
    "check_error": _VENDOR,
    "clock_rate": _SMI + ", if the card reports it",
    "comm": "one process drives one device: use torch.distributed, a process for each device",
    "cudaStatus": _VENDOR,
    "cudart": _VENDOR,
    "current_blas_handle": _VENDOR,
    "current_solver_handle": _VENDOR,
    "device_memory_used": _SMI + "; torch.sdaa.mem_get_info has that of this process",
    "gds": _VENDOR,
    "get_arch_list": _VENDOR + "; see torch.sdaa.get_device_capability",
    "get_gencode_flags": _VENDOR,
    "get_stream_from_external": "streams are made by torch.sdaa.Stream only",
    "get_sync_debug_mode": "torch.profiler shows where the host waits",
    "graph": _GRAPHS,
    "graph_pool_handle": _GRAPHS,
    "graphs": _GRAPHS,
    "green_contexts": _VENDOR,
    "host_memory_stats": "pinned memory belongs to the host, and is not counted",
    "host_memory_stats_as_nested_dict": "pinned memory belongs to the host, and is not counted",
    "jiterator": "write the function with torch operators, or a custom operator with torch.library",
    "list_gpu_processes": _SMI,
    "make_graphed_callables": _GRAPHS,
    "memory_snapshot": "torch.profiler with profile_memory=True shows what takes memory",
    "memory_usage": _SMI,
    "nccl": "use the collectives of torch.distributed",
    "nvtx": "mark ranges with torch.profiler.record_function",
    "power_draw": _SMI,
    "profiler": "use torch.profiler, or torch.sdaa.profile",
    "reset_accumulated_host_memory_stats": "pinned memory belongs to the host, and is not counted",
    "reset_peak_host_memory_stats": "pinned memory belongs to the host, and is not counted",
    "set_sync_debug_mode": "torch.profiler shows where the host waits",
    "sparse": "create sparse tensors with torch.sparse_coo_tensor(..., device='sdaa')",
    "temperature": _SMI,
    "tunable": _VENDOR,
    "use_mem_pool": _ALLOCATOR,
    "utilization": _SMI,
}
"""Reason or replacement for each name."""


def refusal(name: str, names: Iterable[str]) -> str:
    """Return the message of an ``AttributeError``: the replacement of a name, or the nearest name."""
    if name in ABSENT:
        return f"torch.sdaa has no {name!r}, which torch.cuda has: {ABSENT[name]}"
    near = difflib.get_close_matches(name, [each for each in names if not each.startswith("_")], 1)
    return f"torch.sdaa has no {name!r}" + (
        f"; did you mean {near[0]!r}?" if near else "; dir(torch.sdaa) lists what it has"
    )
