"""``torch.distributed`` on the device: backend ``tccl``, carried out by gloo and timed by the card's clock.

Registered when ``torch_sdaa`` is imported, at no cost: importing torch imports ``torch.distributed``.
"""

from __future__ import annotations

import torch


def register() -> None:
    """Register ``tccl``, and make it the device's default backend; do nothing without ``torch.distributed``."""
    if not torch.distributed.is_available():
        return
    from torch_sdaa.distributed import (
        backend,
        barriers,
        comm_hooks,
        context_parallel,
        joining,
        same_model,
        sharded_random,
    )

    backend.register()
    joining.explain()
    same_model.verify_first()
    sharded_random.offer()
    barriers.accept_device_ids()
    comm_hooks.accept_bfloat16()
    context_parallel.refuse()
