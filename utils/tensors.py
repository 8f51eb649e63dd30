"""Tensors of PyTorch beside numpy's arrays: what comes as one goes back as one. PyTorch itself is never imported."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from engine import Array


def is_tensor(value: object) -> bool:
    """Say whether a value is a tensor of PyTorch; where nobody imported it, there are none."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def array_of(value: Any) -> Array:
    """Return an array, a tensor of PyTorch on any device, or nested numbers, as an array."""
    return np.asarray(value.detach().cpu().numpy() if is_tensor(value) else value)


def tensor_of(array: Array) -> Any:
    """Return an array as a tensor of PyTorch where the script has imported that, else as it is."""
    torch = sys.modules.get("torch")
    return array if torch is None else torch.from_numpy(np.array(array, order="C"))


def like(array: Array, given: object) -> Any:
    """Return an array as what was given is: a tensor on the same device, or an array."""
    return tensor_of(array).to(given.device) if is_tensor(given) else array  # type: ignore[attr-defined]
