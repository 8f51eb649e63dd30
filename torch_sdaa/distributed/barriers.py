"""``barrier`` of a group without this device, such as gloo's on the CPU, with ``device_ids``.

PyTorch takes ``device_ids`` as devices of the machine's accelerator, and fails if the group has none of its type;
gloo's groups have CUDA. Accelerate passes them in every process, also with ``cpu=True``.
"""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist


def accept_device_ids() -> None:
    """Ignore ``device_ids`` where the group runs on other devices only."""
    c10d = dist.distributed_c10d
    original = c10d.barrier

    @functools.wraps(original)
    def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None, *args: Any, **kwargs: Any) -> Any:
        if device_ids is not None and not _has_device(group):
            device_ids = None
        return original(group, async_op, device_ids, *args, **kwargs)

    c10d.barrier = dist.barrier = barrier


def _has_device(group: Any) -> bool:
    """Return whether a group runs on this device; true where PyTorch has its own answer or error."""
    if not dist.is_initialized():
        return True
    found = group if group is not None else dist.group.WORLD
    kinds = getattr(found, "_device_types", ())
    return not kinds or any(device.type == "sdaa" for device in kinds)
