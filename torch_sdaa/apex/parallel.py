"""``apex.parallel``: apex's names for functions of ``torch``."""

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
"""Arguments that affect values, with the only supported setting: the behaviour of ``torch``."""

_BYTES = 4


class DistributedDataParallel(torch.nn.parallel.DistributedDataParallel):
    """``torch.nn.parallel.DistributedDataParallel`` with apex's arguments, on the device of the module.

    Args:
        module: on its device. message_size: minimum elements of a reduction. delay_allreduce: accepted; torch reduces
            during backward, with the same result. others: of apex, with their default values.
    """

    def __init__(
        self, module: Any, message_size: int = 10_000_000, delay_allreduce: bool = False, **others: Any
    ) -> None:
        for name, value in others.items():
            if name in _SAME and value != _SAME[name]:
                raise ValueError(
                    f"{name}={value!r} of apex is not supported by torch's DistributedDataParallel: omit it"
                )
        kept = {name: value for name, value in others.items() if name not in (*_SAME, *_SPEED)}
        super().__init__(module, bucket_cap_mb=max(1, message_size * _BYTES // 2**20), **kept)


_SPEED = ("retain_allreduce_buffers", "num_allreduce_streams", "allreduce_communicators", "prof")


def convert_syncbn_model(module: Any, process_group: Any = None, channel_last: bool = False) -> Any:
    """Return a model whose batch norms compute statistics over all processes; for any memory layout."""
    return SyncBatchNorm.convert_sync_batchnorm(module, process_group)
