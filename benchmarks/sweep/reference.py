"""torch as the reference: a module with suitable random weights, and its outputs in float32, float16 and bfloat16."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from utils.export.networks.torchvision_models import import_torchvision

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import_torchvision()  # timm and transformers need it whole

import torch  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_map_only  # noqa: E402

from sweep.row import Row  # noqa: E402

Array = np.ndarray
SEED = 0
CALIBRATION = 16
"""Samples of a batch that batch norms take their statistics from."""


def module_of(row: Row) -> torch.nn.Module:
    """Return a row's module in eval mode: seeded weights, batch norms with the statistics of random samples."""
    torch.manual_seed(SEED)
    with quiet():
        module = row.build()
        norms = [m for m in module.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
        if norms:
            arrays = row.inputs(np.random.default_rng(SEED + 1), CALIBRATION)
            module.eval()  # no dropout
            for norm in norms:
                norm.momentum = 1.0
                norm.train()
            with torch.no_grad():
                module(*map(torch.from_numpy, arrays))
    return module.eval().requires_grad_(False)


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings of torch, timm and transformers about their own code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def outputs_of(module: torch.nn.Module, arrays: Sequence[Array]) -> list[Array]:
    """Return a module's outputs in float32."""
    with torch.no_grad(), quiet():
        return _arrays(module(*map(torch.from_numpy, arrays)))


def narrow_outputs(module: torch.nn.Module, arrays: Sequence[Array], dtype: str) -> tuple[list[Array], str]:
    """Return a module's outputs in float16 or bfloat16 as float32 arrays, and the method.

    ``"torch"`` is the module converted by torch itself; where torch lacks a kernel of that dtype on the host,
    ``"rounded"`` computes each operator in float32 and rounds its output.
    """
    kind: torch.dtype = getattr(torch, dtype)
    tensors = [torch.from_numpy(array) for array in arrays]
    with torch.no_grad(), quiet():
        try:
            narrow = [t.to(kind) if t.is_floating_point() else t for t in tensors]
            return _arrays(copy.deepcopy(module).to(kind)(*narrow)), "torch"
        except (RuntimeError, TypeError, NotImplementedError):
            own = copy.deepcopy(module)
            for weight in (*own.parameters(), *own.buffers()):
                if weight.is_floating_point():
                    weight.copy_(weight.to(kind).to(weight.dtype))
            with Rounded(kind):
                return _arrays(own(*(t.to(kind).float() if t.is_floating_point() else t for t in tensors))), "rounded"


class Rounded(TorchDispatchMode):
    """Computes in float32 and rounds the outputs of every operator to another dtype."""

    def __init__(self, kind: torch.dtype) -> None:
        super().__init__()
        self.kind = kind

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator."""
        found = func(*args, **(kwargs or {}))
        return found if func.is_view else tree_map_only(torch.Tensor, self._round, found)

    def _round(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.kind).to(tensor.dtype) if tensor.dtype == torch.float32 else tensor


def _arrays(found: Any) -> list[Array]:
    tensors = [found] if isinstance(found, torch.Tensor) else list(found)
    return [t.float().numpy() if t.is_floating_point() else t.numpy() for t in tensors]
