"""``apex.amp``: mixed precision by ``initialize`` and ``scale_loss``.

``O0`` is float32. ``O1`` keeps weights in float32 and casts operators by autocast's lists, from ``initialize`` on,
including those of losses. ``O2`` has float16 weights, with batch norm and the optimizer's copies in float32. ``O3`` is
float16.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.optim import Optimizer

from torch_sdaa.apex import casting
from torch_sdaa.apex.checks import as_list, check_models, check_number, check_optimizers
from torch_sdaa.apex.held import Held, hold
from torch_sdaa.apex.kernels import clip
from torch_sdaa.apex.levels import Options, chosen
from torch_sdaa.apex.scaler import LossScaler

__all__ = [
    "clip_grad_norm_",
    "disable_casts",
    "float_function",
    "half_function",
    "initialize",
    "load_state_dict",
    "master_params",
    "promote_function",
    "register_float_function",
    "register_half_function",
    "register_promote_function",
    "scale_loss",
    "state_dict",
]


class _State:
    """Settings of the last ``initialize`` of this process."""

    def __init__(self) -> None:
        self.options: Options | None = None
        self.enabled = True
        self.scalers: list[LossScaler] = []
        self.verbosity = 1
        self.everywhere = False

    def switch_off(self) -> None:
        """Make ``scale_loss`` return its argument."""
        self.enabled, self.options, self.scalers = False, None, []
        self.cast_everywhere(False)

    def casts(self) -> bool:
        """Return whether operators are cast."""
        return self.enabled and self.options is not None and self.options.patch_torch_functions

    def cast_everywhere(self, on: bool) -> None:
        """Switch autocast on outside of blocks, or off if it was switched on here."""
        if on != self.everywhere:
            casting.autocast_everywhere(on)
        self.everywhere = on


_state = _State()


def _say(text: str) -> None:
    if _state.verbosity > 0 and sys.stdout is not None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def _first_rank() -> bool:
    distributed = torch.distributed
    return not (distributed.is_available() and distributed.is_initialized()) or distributed.get_rank() == 0


def initialize(
    models: Any,
    optimizers: Any = None,
    enabled: bool = True,
    opt_level: str = "O1",
    cast_model_type: torch.dtype | None = None,
    patch_torch_functions: bool | None = None,
    keep_batchnorm_fp32: bool | str | None = None,
    master_weights: bool | None = None,
    loss_scale: float | str | None = None,
    cast_model_outputs: torch.dtype | None = None,
    num_losses: int = 1,
    verbosity: int = 1,
    min_loss_scale: float | None = None,
    max_loss_scale: float = 2.0**24,
    combine_grad: bool | None = None,
) -> Any:
    """Cast models and wrap their optimizers; return both in the given form: one, or a list.

    Call it once, with all of them, after ``.to("sdaa")`` and before DDP; compute backwards under :func:`scale_loss`.

    Args:
        models, optimizers: one, or a list. enabled: ``False`` changes nothing.
        opt_level: ``O0`` to ``O3``; each argument up to ``loss_scale`` changes one property of it.
        loss_scale: a number, or ``"dynamic"`` (also -1). cast_model_outputs: dtype of the models' outputs.
        num_losses: number of losses with their own scale (``loss_id``). verbosity: 0 prints nothing.
        min_loss_scale, max_loss_scale: limits of a dynamic scale. combine_grad: store gradients in one buffer.

    Raises:
        ValueError, RuntimeError, TypeError: invalid arguments; nothing was changed.
    """
    _state.verbosity = verbosity
    if not enabled:
        _state.switch_off()
        return models if optimizers is None else (models, optimizers)
    changes = {
        "cast_model_type": cast_model_type,
        "patch_torch_functions": patch_torch_functions,
        "keep_batchnorm_fp32": keep_batchnorm_fp32,
        "master_weights": master_weights,
        "loss_scale": loss_scale,
    }
    options = chosen(opt_level, changes)
    check_number(num_losses)
    all_models = as_list("models", models, Module, "torch.nn.Module")
    all_optimizers = as_list("optimizers", [] if optimizers is None else optimizers, Optimizer, "torch.optim.Optimizer")
    check_models(all_models)
    check_optimizers(all_optimizers, all_models)
    _take_over(all_models, all_optimizers, options, cast_model_outputs, bool(combine_grad))
    _state.enabled, _state.options = True, options
    _state.scalers = [LossScaler(options.loss_scale, min_loss_scale, max_loss_scale) for _ in range(num_losses)]
    _state.cast_everywhere(options.patch_torch_functions)
    if _first_rank():
        _say(f"apex.amp of torch_sdaa, {options}")
    return models if optimizers is None else (models, optimizers)


def _take_over(
    models: list[Module], optimizers: list[Optimizer], options: Options, outputs: torch.dtype | None, combine: bool
) -> None:
    singles = {p: p.data for model in models for p in model.parameters() if p.dtype is torch.float32}
    for model in models:
        _lower(model, options, outputs)
    for optimizer in optimizers:
        hold(optimizer, bool(options.master_weights), singles, combine, _say)


def _lower(model: Module, options: Options, outputs: torch.dtype | None) -> None:
    """Cast a model, its inputs and its outputs."""
    model.__dict__["_amp_initialized"] = True
    low = options.cast_model_type
    if low is not None:
        casting.convert(model, low, bool(options.keep_batchnorm_fp32))
        model.register_forward_pre_hook(casting.CastInputs(low), prepend=True, with_kwargs=True)
        outputs = outputs or torch.float32
    if options.patch_torch_functions:
        model.register_forward_pre_hook(casting.EnterAutocast(), prepend=True)
        model.register_forward_hook(casting.LeaveAutocast(), always_call=True)
    if outputs is not None:
        model.register_forward_hook(casting.CastOutputs(outputs))
    if low is torch.float16:
        model.register_state_dict_post_hook(casting.save_single)
        model.register_load_state_dict_pre_hook(casting.load_single)
        model.register_load_state_dict_post_hook(casting.loaded)


@contextmanager
def scale_loss(
    loss: Any,
    optimizers: Any,
    loss_id: int = 0,
    model: Any = None,
    delay_unscale: bool = False,
    delay_overflow_check: bool = False,
) -> Iterator[Any]:
    """Yield the scaled loss to call ``backward`` on; unscale gradients at the end of the block.

    If a gradient is infinite or NaN, the next step of these optimizers is skipped, and the scale is reduced.

    Args:
        loss: a tensor. optimizers: those of its parameters, one or a list. loss_id: index of its scale.
        model: accepted and unused. delay_unscale: leave gradients scaled, because another loss follows before the step.
        delay_overflow_check: unscale, and leave the check to the next call.

    Raises:
        RuntimeError, IndexError: the message has the correct call.
    """
    if _state.options is None:
        if not _state.enabled:
            yield loss
            return
        raise RuntimeError(
            "amp.scale_loss before amp.initialize: call model, optimizer = amp.initialize(model, optimizer)"
        )
    if not 0 <= loss_id < len(_state.scalers):
        raise IndexError(f"loss_id={loss_id} must be below {len(_state.scalers)}, the num_losses of amp.initialize")
    managed = [_managed(each) for each in as_list("optimizers", optimizers, Optimizer, "torch.optim.Optimizer")]
    scaler = _state.scalers[loss_id]
    with disable_casts():  # a backward uses the dtypes of its forward
        if (
            not _state.options.master_weights
            and not scaler.dynamic
            and scaler.scale == 1.0
            and not any(held.combine for held in managed)
        ):
            yield loss.float()
            return
        for held in managed:
            if not held.params_have_scaled_gradients:
                held.prepare()
        yield loss.float() * scaler.scale
        for held in managed:
            held.params_have_scaled_gradients = delay_unscale
        if delay_unscale:
            return
        for held in managed:
            held.unscale(scaler)
        if not delay_overflow_check and scaler.update():
            for held in managed:
                # the message of apex, which scripts search for
                held.skip = (
                    f"Gradient overflow.  Skipping step, loss scaler {loss_id} reducing loss scale to {scaler.scale}"
                )


def _managed(optimizer: Any) -> Held:
    held = getattr(optimizer, "_amp_stash", None)
    if not isinstance(held, Held):
        raise RuntimeError(
            f"this {type(optimizer).__name__} was not passed to amp.initialize: model, optimizer = "
            "amp.initialize(model, optimizer)"
        )
    return held


def master_params(optimizer: Any) -> Iterator[Parameter]:
    """Yield the parameters that an optimizer updates: float32 copies if there are any. Clip these."""
    for group in optimizer.param_groups:
        yield from group["params"]


def clip_grad_norm_(optimizer: Any, max_norm: float, norm_type: float = 2.0) -> Tensor:
    """Clip all gradients of an optimizer by their common norm; return the norm. One launch per device and dtype.

    Raises:
        RuntimeError: the optimizer was not passed to :func:`initialize`.
    """
    held = _managed(optimizer)
    if held.combine:
        grads = [flat.values for flat in held.flats]
        buffers = {flat.values.untyped_storage().data_ptr() for flat in held.flats}
        mine = [p.grad for p in held.stepped if p.grad is not None]
        if grads and all(not g.is_sparse and g.untyped_storage().data_ptr() in buffers for g in mine):
            return clip(grads, max_norm, norm_type)
    return clip([p.grad for p in held.stepped if p.grad is not None], max_norm, norm_type)


def state_dict(destination: Any = None) -> Any:
    """Return scale and number of successful steps of every loss, for a checkpoint."""
    found = OrderedDict() if destination is None else destination
    for k, scaler in enumerate(_scalers()):
        found[f"loss_scaler{k}"] = {"loss_scale": scaler.scale, "unskipped": scaler.unskipped}
    return found


def load_state_dict(state: Any) -> None:
    """Set scale and number of successful steps of every loss; warn if the number of losses differs.

    Raises:
        RuntimeError: the argument is not a state of amp.
    """
    scalers = _scalers()
    known = {f"loss_scaler{k}" for k in range(max(len(scalers), len(state)))}
    wrong = [key for key in state if key not in known or not {"loss_scale", "unskipped"} <= set(state[key])]
    if wrong:
        raise RuntimeError(
            f"{wrong[0]!r} is not a key of a state of amp, which has loss_scaler0, ...: pass checkpoint['amp']"
        )
    if len(state) != len(scalers):
        warnings.warn(
            f"the checkpoint has {len(state)} loss scales, amp.initialize created {len(scalers)}", stacklevel=2
        )
    for k, scaler in enumerate(scalers):
        entry = state.get(f"loss_scaler{k}")
        if entry is not None:
            scaler.scale, scaler.unskipped = float(entry["loss_scale"]), int(entry["unskipped"])


def _scalers() -> list[LossScaler]:
    if _state.options is None and _state.enabled:
        raise RuntimeError("state of amp before amp.initialize: call amp.initialize first")
    return _state.scalers


# --------------------------------------------------------------------------------------------- custom functions


def disable_casts() -> AbstractContextManager[Any]:
    """Return a context in which operators are not cast."""
    return torch.autocast(casting.DEVICE, enabled=False)


def _casting(function: Any, choose: Callable[[list[Tensor]], torch.dtype | None]) -> Any:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        given = [each for each in (*args, *kwargs.values()) if isinstance(each, Tensor) and each.is_floating_point()]
        dtype = choose(given) if _state.casts() else None
        if dtype is None:
            return function(*args, **kwargs)
        with disable_casts():
            return function(*casting.cast(args, dtype), **casting.cast(kwargs, dtype))

    return called


def half_function(function: Any) -> Any:
    """Decorate a function: under ``O1`` its tensors are cast to float16."""
    return _casting(function, lambda given: torch.float16)


def float_function(function: Any) -> Any:
    """Decorate a function: under ``O1`` its tensors are cast to float32."""
    return _casting(function, lambda given: torch.float32)


def promote_function(function: Any) -> Any:
    """Decorate a function: under ``O1`` its tensors are cast to the widest dtype among them."""
    return _casting(function, _widest)


def _widest(given: list[Tensor]) -> torch.dtype | None:
    return functools.reduce(torch.promote_types, [each.dtype for each in given]) if given else None


def register_half_function(module: Any, name: str) -> None:
    """Replace a function of a module by its :func:`half_function`."""
    setattr(module, name, half_function(getattr(module, name)))


def register_float_function(module: Any, name: str) -> None:
    """Replace a function of a module by its :func:`float_function`."""
    setattr(module, name, float_function(getattr(module, name)))


def register_promote_function(module: Any, name: str) -> None:
    """Replace a function of a module by its :func:`promote_function`."""
    setattr(module, name, promote_function(getattr(module, name)))
