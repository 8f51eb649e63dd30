"""State of an optimizer under amp: float32 copies, gradients and skipped steps."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from torch_sdaa.apex.casting import DEVICE, follow, make_master, mark_equal
from torch_sdaa.apex.flat import Flat, joined
from torch_sdaa.apex.kernels import copy
from torch_sdaa.apex.scaler import LossScaler

Say = Callable[[str], None]


class Held:
    """State that amp keeps for an optimizer.

    Attributes:
        pairs: parameters with float32 copies, and the copies. plain: parameters updated directly.
        params_have_scaled_gradients: whether gradients of a loss were left scaled.
        skip: message to print instead of the next step; "" to take the step.
    """

    def __init__(self, combine: bool) -> None:
        self.pairs: list[tuple[Parameter, Parameter]] = []
        self.plain: list[Parameter] = []
        self.params_have_scaled_gradients = False
        self.skip = ""
        self.combine = combine
        self.flats: list[Flat] = []
        self._before: dict[Parameter, Tensor] = {}
        self._unscaled_once = False

    def take(self, group: dict[str, Any], masters: bool, singles: dict[Parameter, Tensor]) -> None:
        """Replace the float16 parameters of a group by float32 copies."""
        for k, param in enumerate(group["params"]):
            if masters and param.requires_grad and param.dtype is torch.float16:
                master = make_master(param, singles.get(param))
                self.pairs.append((param, master))
                group["params"][k] = master
            else:
                self.plain.append(param)

    @property
    def stepped(self) -> Iterator[Parameter]:
        """The parameters that the optimizer updates."""
        yield from (master for _, master in self.pairs)
        yield from self.plain

    def prepare(self) -> None:
        """Set gradients of earlier losses aside, so that only those of this loss are unscaled."""
        for param, _ in self.pairs:
            follow(param)
            param.grad = None
        for param in self.plain:
            if param.grad is not None:
                self._before[param], param.grad = param.grad, None
        for _, master in self.pairs:
            if master.grad is not None:
                self._before[master], master.grad = master.grad, None

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def unscale(self, scaler: LossScaler) -> None:
        """Set the unscaled gradients of the updated parameters, in their dtype."""
        params, grads = [], []
        for param, master in self.pairs:
            if param.grad is not None:
                params.append(master)
                grads.append(param.grad)
        for param in self.plain:
            if param.grad is not None:
                params.append(param)
                grads.append(param.grad)
        before, self._before = self._before, {}
        if self.combine:
            self.flats, params, grads = joined(params, grads, scaler, self.flats, before)
        else:
            grads = _in_dtype_of(params, grads)
            scaler.unscale(grads)
        _add(self.flats, params, grads, before)
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad
        for param, grad in before.items():
            param.grad = grad
        self._unscaled_once = True

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def publish(self) -> None:
        """Copy the float32 copies to the model after a step."""
        copy([param for param, _ in self.pairs], [master for _, master in self.pairs])
        for param, master in self.pairs:
            mark_equal(param)
            master.grad = None

    def check_step(self, closure: Any) -> None:
        """Check the gradients before a step.

        Raises:
            RuntimeError: they are missing or still scaled; the message has the correct call.
        """
        if closure is not None and self.pairs:
            raise RuntimeError(
                "optimizer.step(closure) cannot be used with amp's master weights: compute the loss before, under "
                "amp.scale_loss, and call optimizer.step()"
            )
        if self.params_have_scaled_gradients:
            raise RuntimeError(
                "optimizer.step() with gradients that are still scaled: the last amp.scale_loss before a step must "
                "not have delay_unscale=True"
            )
        if self.pairs and not self._unscaled_once and any(param.grad is not None for param, _ in self.pairs):
            raise RuntimeError(
                "optimizer.step() without amp.scale_loss, so the master weights have no gradients: write 'with "
                "amp.scale_loss(loss, optimizer) as scaled_loss: scaled_loss.backward()'"
            )


def _in_dtype_of(params: list[Parameter], grads: list[Tensor]) -> list[Tensor]:
    """Return gradients in the dtypes of their parameters; dense ones are cast in one launch."""
    out = list(grads)
    others = [k for k, (param, grad) in enumerate(zip(params, grads, strict=True)) if grad.dtype is not param.dtype]
    for k in others:
        sparse = grads[k].is_sparse
        out[k] = (
            grads[k].coalesce().to(params[k].dtype) if sparse else torch.empty_like(grads[k], dtype=params[k].dtype)
        )
    dense = [k for k in others if not grads[k].is_sparse]
    copy([out[k] for k in dense], [grads[k] for k in dense])
    return out


def _add(flats: list[Flat], params: list[Parameter], grads: list[Tensor], before: dict[Parameter, Tensor]) -> None:
    """Add the gradients of earlier losses, and remove those from ``before``."""
    for flat in flats:
        flat.add_earlier(before)
    both = [(k, before.pop(param)) for k, param in enumerate(params) if param in before]
    sparse = [(k, old) for k, old in both if old.is_sparse or grads[k].is_sparse]
    dense = [(k, old) for k, old in both if not (old.is_sparse or grads[k].is_sparse)]
    for k, old in sparse:
        grads[k] = old + grads[k]
    if dense:
        torch._foreach_add_([grads[k] for k, _ in dense], [old for _, old in dense])


def hold(optimizer: Optimizer, masters: bool, singles: dict[Parameter, Tensor], combine: bool, say: Say) -> None:
    """Wrap an optimizer: parameters, ``step``, ``zero_grad`` and ``add_param_group``."""
    held = Held(combine)
    kind: Any = optimizer
    kind._amp_stash = held
    for group in optimizer.param_groups:
        held.take(group, masters, singles)
    for param, master in held.pairs:
        if param in optimizer.state:
            optimizer.state[master] = optimizer.state.pop(param)
    step, zero_grad, add_param_group = optimizer.step, optimizer.zero_grad, optimizer.add_param_group

    def new_step(self: Any, closure: Any = None) -> Any:
        held.check_step(closure)
        if held.skip:
            text, held.skip = held.skip, ""
            for _, master in held.pairs:
                master.grad = None
            say(text)
            return None
        with torch.autocast(DEVICE, enabled=False):
            result = step() if closure is None else step(closure)
        held.publish()
        return result

    def new_zero_grad(self: Any, set_to_none: bool = True) -> None:
        zero_grad(set_to_none=set_to_none)
        for param, master in held.pairs:
            master.grad = None
            if set_to_none or param.grad is None:
                param.grad = None
            else:
                param.grad.detach_().zero_()

    def new_group(self: Any, group: dict[str, Any]) -> None:
        given = group["params"]
        own = group | {"params": [given] if isinstance(given, Tensor) else list(given)}
        held.take(own, masters, {})
        add_param_group(own)

    if hasattr(step, "_wrapped_by_lr_sched"):  # a scheduler created before counts the inner steps
        new_step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    # bound methods, as expected by schedulers and other wrappers of a step
    kind.step = types.MethodType(new_step, optimizer)
    kind.zero_grad = types.MethodType(new_zero_grad, optimizer)
    kind.add_param_group = types.MethodType(new_group, optimizer)
