"""``apex.parallel``: apex's names of what ``torch`` has itself."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import SyncBatchNorm

__all__ = ["DistributedDataParallel", "SyncBatchNorm", "convert_syncbn_model"]

_SAME = {
    "allreduce_always_fp32": False,
    "gradient_average": True,
    "gradient_predivide_factor": 1.0,
    "shared_param": None,
    "allreduce_trigger_params": None,
}
"""What would change the values, and can only be what ``torch`` does."""

_BYTES = 4


class DistributedDataParallel(torch.nn.parallel.DistributedDataParallel):
    """``torch.nn.parallel.DistributedDataParallel`` with apex's arguments; the device is the module's own.

    Args:
        module: on its device. message_size: elements of one reduction at least. delay_allreduce: taken; torch
            reduces while backward runs, with the same result. others: of apex, where they are its defaults.
    """

    def __init__(
        self, module: Any, message_size: int = 10_000_000, delay_allreduce: bool = False, **others: Any
    ) -> None:
        for name, value in others.items():
            if name in _SAME and value != _SAME[name]:
                raise ValueError(
                    f"{name}={value!r} is apex's own; torch's DistributedDataParallel has no such thing: leave it out"
                )
        kept = {name: value for name, value in others.items() if name not in (*_SAME, *_SPEED)}
        super().__init__(module, bucket_cap_mb=max(1, message_size * _BYTES // 2**20), **kept)


_SPEED = ("retain_allreduce_buffers", "num_allreduce_streams", "allreduce_communicators", "prof")


def convert_syncbn_model(module: Any, process_group: Any = None, channel_last: bool = False) -> Any:
    """Return a model whose batch norms take their statistics over all processes; any memory layout will do."""
    return SyncBatchNorm.convert_sync_batchnorm(module, process_group)
