"""LAMB, which ``torch.optim`` lacks: Adam's step for each tensor, scaled by the norm of the tensor (You et al.,
2019).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

LONGEST = 10.0
"""Upper limit of the norm of the weights."""


def lamb(
    params: list[Tensor], grads: list[Tensor], averages: list[Tensor], squares: list[Tensor], beta1: float,
    beta2: float, lr: float, weight_decay: float, eps: float, adam: bool,
) -> None:  # fmt: skip
    """Update parameters in place; with ``adam`` the step is not scaled."""
    for param, grad, average, square in zip(params, grads, averages, squares, strict=True):
        average.mul_(beta1).add_(grad, alpha=1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        update = average / square.sqrt().add_(eps)
        if weight_decay:
            update.add_(param, alpha=weight_decay)
        if not adam:
            length, stride = param.norm().clamp_(max=LONGEST), update.norm()
            update.mul_(torch.where((length > 0) & (stride > 0), length / stride, torch.ones_like(length)))
        param.add_(update, alpha=-lr)


class Lamb(Optimizer):
    """LAMB, one parameter at a time; :class:`torch_sdaa.apex.optimizers.SdaaFusedLamb` updates all in one launch."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        adam: bool = False,
    ) -> None:
        for name, value in {"lr": lr, "eps": eps, "weight_decay": weight_decay}.items():
            if not value >= 0:
                raise ValueError(f"{name}={value!r} must be 0 or more")
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas={betas!r} must lie in [0, 1)")
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "adam": adam}
        super().__init__(params, defaults)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Any = None) -> Any:
        """Take a step; return the result of ``closure``."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params, averages, squares = self._gather(group)
            if params:
                beta1, beta2 = group["betas"]
                rest = beta1, beta2, float(group["lr"]), group["weight_decay"], group["eps"], group["adam"]
                self._apply(params, averages, squares, rest)
        return loss

    def _apply(self, params: list[Tensor], averages: list[Tensor], squares: list[Tensor], rest: Any) -> None:
        lamb(params, [param.grad for param in params if param.grad is not None], averages, squares, *rest)

    def _gather(self, group: dict[str, Any]) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Return the parameters with gradients, and their state."""
        params = [param for param in group["params"] if param.grad is not None]
        for param in params:
            if param.grad.is_sparse:
                raise RuntimeError("Lamb does not take sparse gradients; use torch.optim.SparseAdam")
            state = self.state[param]
            if not state:
                state["step"] = torch.zeros(())
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(param), torch.zeros_like(param)
            state["step"] += 1
        return params, [self.state[p]["exp_avg"] for p in params], [self.state[p]["exp_avg_sq"] for p in params]
