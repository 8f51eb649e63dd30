"""Communication hooks of ``DistributedDataParallel`` in bfloat16, which PyTorch accepts for NCCL's versions only."""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

_CHECKED = ("bf16_compress_hook", "bf16_compress_wrapper_hook")
"""Names for which PyTorch asks for a version of NCCL."""


def accept_bfloat16() -> None:
    """Accept the hooks for a model on ``tccl``, which reduces bfloat16."""
    original = DistributedDataParallel._check_comm_hook

    @functools.wraps(original)
    def check(self: Any, hook: Any) -> None:
        if getattr(hook, "__name__", "") in _CHECKED and _on_tccl(self):
            hook = _under_another_name(hook)
        original(self, hook)

    DistributedDataParallel._check_comm_hook = check


def _on_tccl(wrapper: Any) -> bool:
    return bool(dist.distributed_c10d.get_backend(wrapper.process_group) == "tccl" and wrapper.device_type == "sdaa")


def _under_another_name(hook: Any) -> Any:
    """Return a hook with the same signature, whose other properties PyTorch checks."""

    @functools.wraps(hook)
    def same(*args: Any) -> Any:
        return hook(*args)

    same.__name__ = "hook"
    return same
