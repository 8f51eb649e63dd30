"""Whole optimizer steps as one operator, so one launch, like the fused kernels of such cards.

A fused optimizer calls the function of the plain one in ``torch.optim`` on the host's view of the same memory, so that
values are bit-identical. The caller counts the steps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.adadelta import adadelta
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from torch_sdaa.apex.lamb import lamb

_library = torch.library.Library("sdaa", "FRAGMENT")

_ADAM = (
    "float[] steps, bool amsgrad, bool decoupled, float beta1, float beta2, float lr, float weight_decay, float eps, "
    "bool maximize) -> ()"
)
_SCHEMAS = (
    f"fused_adam_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] averages, Tensor(c!)[] squares, {_ADAM}",
    "fused_adam_.amsgrad(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] averages, Tensor(c!)[] squares, "
    f"Tensor(d!)[] largest, {_ADAM}",
    "fused_adadelta_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] squares, Tensor(c!)[] deltas, float lr, "
    "float rho, float eps, float weight_decay, bool maximize) -> ()",
    "fused_sgd_(Tensor(a!)[] params, Tensor[] grads, float lr, float weight_decay, bool maximize) -> ()",
    "fused_sgd_.momentum(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] momenta, bool[] fresh, float lr, "
    "float weight_decay, float momentum, float dampening, bool nesterov, bool maximize) -> ()",
    "fused_lamb_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] averages, Tensor(c!)[] squares, float beta1, "
    "float beta2, float lr, float weight_decay, float eps, bool adam) -> ()",
    "copy_lists_(Tensor(a!)[] to, Tensor[] given) -> ()",
    "gather_grads(Tensor[] grads, Tensor(a!) found_inf, float inverse, ScalarType dtype) -> Tensor",
    "clip_grad_norm_(Tensor(a!)[] grads, float max_norm, float norm_type) -> Tensor",
)


def _adam_amsgrad(
    params: list[Tensor], grads: list[Tensor], averages: list[Tensor], squares: list[Tensor], largest: list[Tensor],
    steps: list[float], amsgrad: bool, decoupled: bool, beta1: float, beta2: float, lr: float, weight_decay: float,
    eps: float, maximize: bool,
) -> None:  # fmt: skip
    counts = [torch.tensor(step, dtype=torch.float32) for step in steps]
    adam(
        params, grads, averages, squares, largest, counts, foreach=False, fused=False, has_complex=True,
        decoupled_weight_decay=decoupled, amsgrad=amsgrad, beta1=beta1, beta2=beta2, lr=lr, weight_decay=weight_decay,
        eps=eps, maximize=maximize,
    )  # fmt: skip


def _adam(
    params: list[Tensor], grads: list[Tensor], averages: list[Tensor], squares: list[Tensor], *others: Any
) -> None:  # fmt: skip
    _adam_amsgrad(params, grads, averages, squares, [], *others)


def _adadelta(
    params: list[Tensor], grads: list[Tensor], squares: list[Tensor], deltas: list[Tensor], lr: float, rho: float,
    eps: float, weight_decay: float, maximize: bool,
) -> None:  # fmt: skip
    counts = [torch.zeros(()) for _ in params]  # unused by the formulas
    adadelta(
        params, grads, squares, deltas, counts, foreach=False, has_complex=True, lr=lr, rho=rho, eps=eps,
        weight_decay=weight_decay, maximize=maximize,
    )  # fmt: skip


def _sgd_momentum(
    params: list[Tensor], grads: list[Tensor], momenta: list[Tensor], fresh: list[bool], lr: float,
    weight_decay: float, momentum: float, dampening: float, nesterov: bool, maximize: bool,
) -> None:  # fmt: skip
    buffers: list[Tensor | None] = [None if new else held for new, held in zip(fresh, momenta, strict=True)]
    sgd(
        params, grads, buffers, foreach=False, fused=False, weight_decay=weight_decay, momentum=momentum, lr=lr,
        dampening=dampening, nesterov=nesterov, maximize=maximize,
    )  # fmt: skip
    for new, held, made in zip(fresh, momenta, buffers, strict=True):
        if new and made is not None:
            held.copy_(made)


def _sgd(params: list[Tensor], grads: list[Tensor], lr: float, weight_decay: float, maximize: bool) -> None:
    sgd(
        params, grads, [None] * len(params), foreach=False, fused=False, weight_decay=weight_decay, momentum=0.0, lr=lr,
        dampening=0.0, nesterov=False, maximize=maximize,
    )  # fmt: skip


def _copy(to: list[Tensor], given: list[Tensor]) -> None:
    for a, b in zip(to, given, strict=True):
        a.copy_(b)


def _gather(grads: list[Tensor], found_inf: Tensor, inverse: float, dtype: torch.dtype) -> Tensor:
    values = torch.cat([grad.reshape(-1).to(dtype) for grad in grads])
    torch._amp_foreach_non_finite_check_and_unscale_([values], found_inf, torch.tensor(inverse, dtype=torch.float32))
    return values


def _clip(grads: list[Tensor], max_norm: float, norm_type: float) -> Tensor:
    norm = torch.nn.utils.get_total_norm(grads, norm_type, foreach=False)
    torch.nn.utils.clip_grads_with_norm_(_with_grads(grads), max_norm, norm, foreach=False)
    return norm


def _with_grads(grads: list[Tensor]) -> list[Tensor]:
    """Return tensors with these gradients, as PyTorch's function requires."""
    out = []
    for grad in grads:
        holder = torch.empty_like(grad, requires_grad=True)
        holder.grad = grad
        out.append(holder)
    return out


def clip(grads: list[Tensor], max_norm: float, norm_type: float) -> Tensor:
    """Clip gradients in place by their common norm and return it: one launch if they are on one device."""
    if not grads:
        return torch.zeros(())
    if len({grad.device for grad in grads}) > 1 or any(grad.is_sparse for grad in grads):
        return _clip(grads, max_norm, norm_type)
    norm = torch.ops.sdaa.clip_grad_norm_(grads, float(max_norm), float(norm_type))
    changed(grads)
    return norm


def changed(tensors: list[Tensor]) -> None:
    """Increment the version counters of tensors that an operator wrote, as autograd does for its own operators."""
    torch.autograd.graph.increment_version(tensors)


def copy(to: list[Tensor], given: list[Tensor]) -> None:
    """Copy tensors to others, possibly of another dtype: one launch per device."""
    places: dict[torch.device, list[int]] = {}
    for k, each in enumerate(to):
        places.setdefault(each.device, []).append(k)
    for part in places.values():
        torch.ops.sdaa.copy_lists_([to[k] for k in part], [given[k] for k in part])
    changed(to)


def _fake(name: str) -> Any:
    """Return the fake kernel of an operator, which returns results without values."""
    if name == "gather_grads":
        return lambda grads, found_inf, inverse, dtype: grads[0].new_empty(sum(g.numel() for g in grads), dtype=dtype)
    if name == "clip_grad_norm_":
        return lambda grads, max_norm, norm_type: grads[0].new_empty(())
    return lambda *args: None


for _schema in _SCHEMAS:
    _library.define(_schema)
for _name, _kernel in {
    "fused_adam_": _adam,
    "fused_adam_.amsgrad": _adam_amsgrad,
    "fused_adadelta_": _adadelta,
    "fused_sgd_": _sgd,
    "fused_sgd_.momentum": _sgd_momentum,
    "fused_lamb_": lamb,
    "copy_lists_": _copy,
    "gather_grads": _gather,
    "clip_grad_norm_": _clip,
}.items():
    _library.impl(_name, _kernel, "CPU")
    torch.library.register_fake(f"sdaa::{_name}", _fake(_name), lib=_library)
