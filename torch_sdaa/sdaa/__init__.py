"""``torch.sdaa``: what ``torch.cuda`` is for CUDA, for the simulated card."""

from torch_sdaa.sdaa.devices import (
    current_device,
    device,
    device_count,
    device_of,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_initialized,
    set_device,
    synchronize,
)
from torch_sdaa.sdaa.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)
from torch_sdaa.sdaa.random import (
    default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_sdaa.sdaa.streams import Event, Stream, current_stream, default_stream, set_stream, stream
from torch_sdaa.sdaa.for_torch import (
    _exchange_device,
    _is_in_bad_fork,
    _lazy_init,
    _maybe_exchange_device,
    get_amp_supported_dtype,
    is_bf16_supported,
)
from torch_sdaa.strict import is_strict, set_strict
from torch_sdaa.summaries import time_summary
