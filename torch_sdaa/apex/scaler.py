"""Loss scale, which keeps gradients in the range of float16."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from torch_sdaa.apex.levels import DYNAMIC

FIRST, FACTOR, WINDOW = 2.0**16, 2.0, 2000
"""Initial value of a dynamic scale, factor by which it changes, and successful steps before it grows."""


class LossScaler:
    """Scale of one loss.

    Attributes:
        dynamic: whether overflows change it. scale: the factor. unskipped: successful steps since the last change.
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
        """Divide gradients in place and record infinities and NaN: one launch per device and dtype."""
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
        """Return gradients of one device unscaled in one buffer, and record infinities and NaN: one launch."""
        return torch.ops.sdaa.gather_grads(grads, self._flag(grads[0].device), 1.0 / self.scale, dtype)

    def _flag(self, device: torch.device) -> Tensor:
        """Return the tensor that records an overflow on a device until the next update."""
        if device not in self._found:
            self._found[device] = torch.zeros((), dtype=torch.float32, device=device)
        return self._found[device]

    def update(self) -> bool:
        """Update the scale; return whether this step must be skipped. A static scale never skips."""
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
