"""``apex.optimizers``: optimizers of ``torch.optim`` with one launch per step, device and dtype.

Values are bit-identical to the plain ones, and checkpoints are compatible. The names ``NpuFusedSGD`` etc., used in
guides for such cards, are aliases.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim.sgd import sgd

from torch_sdaa.apex.kernels import changed
from torch_sdaa.apex.lamb import Lamb

__all__ = [
    "Lamb",
    "NpuFusedAdadelta",
    "NpuFusedAdam",
    "NpuFusedLamb",
    "NpuFusedSGD",
    "SdaaFusedAdadelta",
    "SdaaFusedAdam",
    "SdaaFusedLamb",
    "SdaaFusedSGD",
]

Lists = tuple[list[Any], ...]


def _together(params: list[Tensor], *others: list[Any]) -> Iterator[Lists]:
    """Yield the lists in parts for one launch each: of one device and dtype."""
    places: dict[Any, list[int]] = {}
    for k, param in enumerate(params):
        places.setdefault((param.device, param.dtype), []).append(k)
    for part in places.values():
        yield tuple([each[k] for k in part] for each in (params, *others))


def _rate_in_tensor(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether a learning rate is a tensor: the plain optimizer then computes in its dtype."""
    return any(isinstance(group["lr"], Tensor) for group in optimizer.param_groups)


def _closed(closure: Any) -> Any:
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


class SdaaFusedAdam(torch.optim.Adam):
    """``torch.optim.Adam`` in one launch."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, foreach=False, maximize=maximize)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Any = None) -> Any:
        """Take a step; return the result of ``closure``."""
        if _rate_in_tensor(self):
            return super().step(closure)
        loss = _closed(closure)
        for group in self.param_groups:
            lists: Lists = tuple([] for _ in range(6))  # parameters, gradients, averages, squares, largest, steps
            self._init_group(group, *lists)
            beta1, beta2 = group["betas"]
            numbers = beta1, beta2, float(group["lr"]), group["weight_decay"], group["eps"], group["maximize"]
            amsgrad, decoupled = group["amsgrad"], group["decoupled_weight_decay"]
            largest = lists[4] or lists[0]
            for *tensors, most, steps in _together(*lists[:4], largest, lists[5]):
                given = [*tensors, most] if amsgrad else tensors
                counted = [float(step) for step in steps]
                op = torch.ops.sdaa.fused_adam_.amsgrad if amsgrad else torch.ops.sdaa.fused_adam_.default
                op(*given, counted, amsgrad, decoupled, *numbers)
            changed(lists[0])
            for step in lists[5]:
                step += 1
        return loss


class SdaaFusedAdadelta(torch.optim.Adadelta):
    """``torch.optim.Adadelta`` in one launch."""

    def __init__(
        self,
        params: Any,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, rho, eps, weight_decay, foreach=False, maximize=maximize)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Any = None) -> Any:
        """Take a step; return the result of ``closure``."""
        if _rate_in_tensor(self):
            return super().step(closure)
        loss = _closed(closure)
        for group in self.param_groups:
            lists: Lists = tuple([] for _ in range(5))  # parameters, gradients, squares, deltas, steps
            self._init_group(group, *lists)
            numbers = float(group["lr"]), group["rho"], group["eps"], group["weight_decay"], group["maximize"]
            for tensors in _together(*lists[:4]):
                torch.ops.sdaa.fused_adadelta_(*tensors, *numbers)
            changed(lists[0])
            for step in lists[4]:
                step += 1
        return loss


def _first_momentum(param: Tensor, grad: Tensor, decayed: bool) -> Tensor:
    """Return memory for a momentum with the layout of the plain one's, which affects rounding."""
    if not decayed or grad.stride() == param.stride():
        return torch.empty_like(grad)
    laid = torch.empty_like(grad, device="meta") + torch.empty_like(param, device="meta")
    return torch.empty_like(laid, device=grad.device)


class SdaaFusedSGD(torch.optim.SGD):
    """``torch.optim.SGD`` in one launch; for sparse gradients the plain step is used."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, lr, momentum, dampening, weight_decay, nesterov, maximize=maximize, foreach=False, fused=False
        )

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Any = None) -> Any:
        """Take a step; return the result of ``closure``."""
        if _rate_in_tensor(self):
            return super().step(closure)
        loss = _closed(closure)
        for group in self.param_groups:
            lists: Lists = [], [], []
            sparse = self._init_group(group, *lists)
            params, grads, buffers = lists
            names = ("weight_decay", "momentum", "dampening", "nesterov", "maximize")
            decay, momentum, dampening, nesterov, maximize = (group[name] for name in names)
            lr = float(group["lr"])
            if sparse:
                own = {name: group[name] for name in names}
                sgd(params, grads, buffers, has_sparse_grad=True, foreach=False, fused=False, lr=lr, **own)
            elif momentum:
                fresh = [buffer is None for buffer in buffers]
                held = zip(params, grads, buffers, strict=True)
                buffers = [_first_momentum(p, g, bool(decay)) if b is None else b for p, g, b in held]
                for tensors in _together(params, grads, buffers, fresh):
                    rest = lr, decay, momentum, dampening, nesterov, maximize
                    torch.ops.sdaa.fused_sgd_.momentum(*tensors, *rest)
            else:
                for tensors in _together(params, grads):
                    torch.ops.sdaa.fused_sgd_.default(*tensors, lr, decay, maximize)
            changed(params)
            if momentum:
                for param, buffer in zip(params, buffers, strict=True):
                    self.state[param]["momentum_buffer"] = buffer
        return loss


class SdaaFusedLamb(Lamb):
    """:class:`Lamb` in one launch."""

    def _apply(self, params: list[Tensor], averages: list[Tensor], squares: list[Tensor], rest: Any) -> None:
        for tensors in _together(params, [param.grad for param in params], averages, squares):
            torch.ops.sdaa.fused_lamb_(*tensors, *rest)
        changed(params)


NpuFusedAdadelta = SdaaFusedAdadelta
NpuFusedAdam = SdaaFusedAdam
NpuFusedLamb = SdaaFusedLamb
NpuFusedSGD = SdaaFusedSGD

_OTHERS = {
    "FusedAdam": "SdaaFusedAdam, or torch.optim.AdamW for the default adam_w_mode=True",
    "FusedSGD": "SdaaFusedSGD",
    "FusedLAMB": "SdaaFusedLamb",
    "FusedAdagrad": "torch.optim.Adagrad(..., fused=True)",
    "FusedNovoGrad": "torch.optim.NAdam or SdaaFusedLamb",
    "FusedMixedPrecisionLamb": "SdaaFusedLamb with amp.initialize(..., opt_level='O2')",
}
"""Optimizers of NVIDIA's apex that are CUDA kernels, and their replacements."""


def __getattr__(name: str) -> Any:
    if name in _OTHERS:
        # not AttributeError: from ... import would hide the reason
        raise ImportError(f"the apex of torch_sdaa has no optimizers.{name}, a CUDA kernel: use {_OTHERS[name]}")
    raise AttributeError(f"the apex of torch_sdaa has no optimizers.{name}; it has {', '.join(__all__)}")
