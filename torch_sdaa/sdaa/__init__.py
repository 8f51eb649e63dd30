"""``torch.sdaa``: the equivalent of ``torch.cuda`` for the simulated card.

Missing names of ``torch.cuda`` are in :data:`torch_sdaa.sdaa.absent.ABSENT`, with replacements.
"""

from typing import Any as _Any

from torch import AcceleratorError, OutOfMemoryError

from torch_sdaa.dump.kernel_dump import finalize_dump, init_dump, set_dump
from torch_sdaa.options.settings import options as get_options, set_option
from torch_sdaa.options.strict import is_strict, set_strict
from torch_sdaa.profiling.context import profile
from torch_sdaa.profiling.options import profileConfig
from torch_sdaa.reports.summaries import time_summary
from torch_sdaa.sdaa import amp
from torch_sdaa.sdaa.absent import refusal as _refusal
from torch_sdaa.sdaa.devices import (
    _exchange_device as _exchange_device,
    _is_in_bad_fork as _is_in_bad_fork,
    _lazy_call as _lazy_call,
    _lazy_init as _lazy_init,
    _maybe_exchange_device as _maybe_exchange_device,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_amp_supported_dtype,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    ipc_collect,
    is_available,
    is_bf16_supported,
    is_initialized,
    is_tf32_supported,
    set_device,
    synchronize,
)
from torch_sdaa.sdaa.memory import (
    empty_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from torch_sdaa.sdaa.random import (
    default_generators,
    get_offset,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_offset,
    set_rng_state,
    set_rng_state_all,
)
from torch_sdaa.sdaa.streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    is_current_stream_capturing,
    set_stream,
    stream,
)
from torch_sdaa.sdaa.tensors import STORAGES as _STORAGES, TENSORS as _TENSORS

_initialized = True
"""Read by ``torch.utils.checkpoint``: without it, a recomputed part would draw other random numbers."""

__all__ = [
    "AcceleratorError",
    "Event",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "amp",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "finalize_dump",
    "get_allocator_backend",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_offset",
    "get_options",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "has_half",
    "has_magma",
    "init",
    "init_dump",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "is_strict",
    "is_tf32_supported",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "profile",
    "profileConfig",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_dump",
    "set_offset",
    "set_option",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "set_strict",
    "stream",
    "synchronize",
    "time_summary",
]

globals().update(_TENSORS | _STORAGES)
__all__ += [*_TENSORS, *_STORAGES]

has_half = True
has_magma = False


def __getattr__(name: str) -> _Any:
    raise AttributeError(_refusal(name, globals()))
