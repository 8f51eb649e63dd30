"""The factor a loss is multiplied by, so that float16 holds its gradients."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from torch_sdaa.apex.levels import DYNAMIC

FIRST, FACTOR, WINDOW = 2.0**16, 2.0, 2000
"""A dynamic scale's first value, what it grows and falls by, and after how many good steps it grows."""


class LossScaler:
    """One loss's scale.

    Attributes:
        dynamic: whether it follows what overflows. scale: the factor. unskipped: good steps since it last changed.
    """

    def __init__(self, loss_scale: float | str, lowest: float | None, highest: float) -> None:
        self.dynamic = loss_scale == DYNAMIC
        self.scale = min(highest, FIRST) if self.dynamic else float(loss_scale)
        self.unskipped = 0
        self._lowest, self._highest = lowest, highest
        self._found: dict[torch.device, Tensor] = {}

    def loss_scale(self) -> float:
        """Return the factor."""
        return self.scale

    def unscale(self, grads: Sequence[Tensor]) -> None:
        """Divide gradients in place, and note whether one is infinite or NaN: one launch a device and dtype."""
        if not self.dynamic and self.scale == 1.0:
            return
        groups: dict[tuple[torch.device, torch.dtype], list[Tensor]] = defaultdict(list)
        for grad in grads:
            values = grad._values() if grad.is_sparse else grad
            groups[values.device, values.dtype].append(values)
        for (device, _), group in groups.items():
            inverse = torch.full((), 1.0 / self.scale, dtype=torch.float32, device=device)
            torch._amp_foreach_non_finite_check_and_unscale_(group, self._flag(device), inverse)

    def gather(self, grads: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
        """Return gradients of one device in one buffer, unscaled, and note what is infinite or NaN: one launch."""
        return torch.ops.sdaa.gather_grads(grads, self._flag(grads[0].device), 1.0 / self.scale, dtype)

    def _flag(self, device: torch.device) -> Tensor:
        """Return what notes an overflow on a device, until the next update."""
        if device not in self._found:
            self._found[device] = torch.zeros((), dtype=torch.float32, device=device)
        return self._found[device]

    def update(self) -> bool:
        """Set the next step's scale; return whether this one must be skipped. A static one skips nothing."""
        found, self._found = self._found, {}
        if not self.dynamic:
            self.unskipped += 1
            return False
        if any(each.item() for each in found.values()):
            self.scale = max(self.scale / FACTOR, self._lowest or 0.0)
            self.unskipped = 0
            return True
        self.unskipped += 1
        if self.unskipped == WINDOW:
            self.scale = min(self.scale * FACTOR, self._highest)
            self.unskipped = 0
        return False
