"""Let accelerate load a model on one rank and send it to the others, with the first version of FSDP.

Accelerate supports sdaa, but its settings of FSDP select the device of the other ranks' parameters from a fixed list.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch

from torch_sdaa.loading import late_imports

_MODULE, _NAME = "accelerate.utils.dataclasses", "FullyShardedDataParallelPlugin"
_NO_DEVICE = "no available devices found"


def serve_when_imported() -> None:
    """Change the settings of FSDP, now or when their module is imported."""
    late_imports.when_imported(_MODULE, _change)


def _change() -> None:
    settings = getattr(sys.modules[_MODULE], _NAME, None)
    original = vars(settings).get("__post_init__") if settings else None
    if original is None:
        return  # another version's, which checks in another way

    @functools.wraps(original)
    def post_init(self: Any) -> None:
        try:
            original(self)
        except RuntimeError as error:
            if _NO_DEVICE not in str(error) or not torch.get_device_module("sdaa").is_available():
                raise
            self.param_init_fn = _empty

    settings.__post_init__ = post_init  # type: ignore[union-attr]


def _empty(module: torch.nn.Module) -> torch.nn.Module:
    """Return a module of another rank with memory of accelerate's device, which the first rank's values overwrite."""
    return module.to_empty(device=sys.modules["accelerate"].PartialState().device, recurse=False)
