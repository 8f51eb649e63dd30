"""``combine_grad=True``: all gradients of a dtype are in one buffer, so that an operation on all is one launch."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor
from torch.nn import Parameter

from torch_sdaa.apex.scaler import LossScaler


class Flat:
    """The gradients of some parameters in one buffer.

    Attributes:
        params: the parameters. values: all gradients. earlier: those of earlier losses, if they have the same layout.
    """

    def __init__(self, params: list[Parameter], values: Tensor) -> None:
        self.params, self.values = params, values
        self.earlier: Tensor | None = None

    def views(self) -> list[Tensor]:
        """Return each parameter's gradient as a view of the buffer."""
        parts = self.values.split([param.numel() for param in self.params])
        return [part.view(param.shape) for part, param in zip(parts, self.params, strict=True)]

    def add_earlier(self, before: dict[Parameter, Tensor]) -> None:
        """Add the earlier gradients of all parameters, and remove them from ``before``."""
        if self.earlier is not None:
            self.values.add_(self.earlier)
            for param in self.params:
                before.pop(param, None)
        self.earlier = None


def joined(
    params: list[Parameter], grads: list[Tensor], scaler: LossScaler, last: list[Flat], before: dict[Parameter, Tensor]
) -> tuple[list[Flat], list[Parameter], list[Tensor]]:
    """Return the buffers, the parameters, and their unscaled gradients.

    Args:
        params, grads: parameters and gradients, which may have a lower dtype. scaler: unscales them.
        last: the previous buffers. before: gradients of earlier losses, to be added.
    """
    groups: dict[tuple[torch.device, torch.dtype], list[tuple[Parameter, Tensor]]] = defaultdict(list)
    out_params: list[Parameter] = []
    out_grads: list[Tensor] = []
    for param, grad in zip(params, grads, strict=True):
        if grad.is_sparse:
            out_params.append(param)
            out_grads.append(grad.coalesce().to(param.dtype))
            scaler.unscale(out_grads[-1:])
        else:
            groups[grad.device, param.dtype].append((param, grad))
    flats = []
    for (_, dtype), part in groups.items():
        flat = Flat([param for param, _ in part], scaler.gather([grad for _, grad in part], dtype))
        flat.earlier = _earlier(flat, last, before)
        flats.append(flat)
        out_params += flat.params
        out_grads += flat.views()
    return flats, out_params, out_grads


def _earlier(flat: Flat, last: list[Flat], before: dict[Parameter, Tensor]) -> Tensor | None:
    """Return the previous buffer if it holds all earlier gradients in the order of this one, else ``None``."""
    for old in last:
        start = old.values.untyped_storage().data_ptr()
        if len(old.params) == len(flat.params) and all(
            a is b and a in before and before[a].untyped_storage().data_ptr() == start
            for a, b in zip(old.params, flat.params, strict=True)
        ):
            return old.values
    return None
