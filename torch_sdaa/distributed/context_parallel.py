"""Context parallelism is an error of one line: the card has none of the attention kernels that PyTorch splits."""

from __future__ import annotations

import functools
from typing import Any

from torch_sdaa.loading import late_imports

_ATTENTION = "torch.distributed.tensor.experimental._context_parallel._attention"

LINE = (
    "context_parallel does not run on sdaa, which lacks the attention kernels that it splits over the sequence: use "
    "tensor parallelism (SequenceParallel in torch.distributed.tensor.parallel) or fully_shard, or a shorter sequence"
)


def refuse() -> None:
    """Refuse it on a mesh of this device, now or when it is imported."""
    late_imports.when_imported(_ATTENTION, _change)


def _change() -> None:
    from torch.distributed.tensor.experimental._context_parallel import _attention

    original = _attention._enable_context_parallel_dispatcher_impl

    @functools.wraps(original)
    def enable(seq_dim: int, mesh: Any) -> None:
        if mesh.device_type == "sdaa":
            raise RuntimeError(LINE)
        original(seq_dim, mesh)

    _attention._enable_context_parallel_dispatcher_impl = enable
