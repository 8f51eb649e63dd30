"""Recorder of every operator call below autograd: inputs, outputs and origin."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from engine.training import SCRATCH, KeptTensor, OpCall, Recorded, as_numbers
from tecoinfer_modelzoo.text import one_line
from torch_sdaa.dump.places import Place, Places
from torch_sdaa.dump.scales import loss_scale, of_apex, scaled
from torch_sdaa.dump.values import can_be_kept, encoded, kept, rng_state

Keep = Callable[[Recorded], None]
Feed = Callable[[OpCall, list[torch.Tensor]], "dict[int, torch.Tensor]"]

_EMPTY = ("aten.empty", "aten.new_empty", "aten.resize_", "aten.set_", "aten._efficientzerotensor")
_LEFT = ("profiler", "prim", "c10d", "_c10d_functional", "debugprims", "streams")
"""Libraries whose operators compute nothing."""

_SCRATCH = {"aten.mkldnn_rnn_layer.default": 3, "aten.mkldnn_rnn_layer_backward.default": -1}
"""Operators with scratch memory for their backward, parts of which are uninitialized and cannot be compared: index of
the forward's result, or -1 for the last input of the backward.
"""

_STATISTICS = ("aten.native_batch_norm.default", "aten.miopen_batch_norm.default", "aten.cudnn_batch_norm.default")
"""Operators that update running_mean and running_var in training, which their schemas do not declare."""


class Recorder(TorchDispatchMode):
    """Passes each call to ``keep`` after it returned; a context manager.

    Args:
        keep: receives the call with its arrays. places: provides the origin of calls.
        feed: may replace inputs of a call, by index.
    """

    def __init__(self, keep: Keep, places: Places, feed: Feed | None = None) -> None:
        super().__init__()
        self._keep, self._places, self._feed = keep, places, feed
        self._counts: dict[str, int] = {}
        self._index = 0
        self._scaled, self._unscaled = scaled(), False
        self._lock = threading.RLock()  # each device's backward runs in its own thread

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run and record the operator."""
        given = kwargs or {}
        if func.namespace in _LEFT:
            return func(*args, **given)
        with self._lock:
            with _unrecorded():
                recorded, args, given, tensors = self._before(func, args, given)
            try:
                result = func(*args, **given)
            except Exception as error:
                recorded.call = replace(recorded.call, failed=one_line(error))
                self._keep(recorded)  # with the inputs that made it fail
                raise
            with _unrecorded():
                self._keep(_with_outputs(recorded, outputs_of(func, args, given, result), tensors))
            return result

    def _before(
        self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Recorded, Sequence[Any], dict[str, Any], list[torch.Tensor]]:
        """Return the record before a call, its arguments, and their tensors."""
        tensors: list[torch.Tensor] = []
        encoded_args = encoded(list(args), tensors), encoded(kwargs, tensors)["dict"]
        device = _device(tensors, args, kwargs)
        call = self._call(func, self._places.of_call(), device, encoded_args)
        if self._feed is not None and not call.view:
            args, kwargs, tensors = _replaced(
                args, kwargs, tensors, self._feed(call, tensors), _written_arguments(func)
            )
        found = [kept(one) for one in tensors]
        if found and _SCRATCH.get(call.op) == -1:
            one, array = found[-1]
            found[-1] = (replace(one, digest=f"{SCRATCH}{call.where}"), array)
        state = rng_state(device, _generator(args, kwargs)).numpy().copy() if call.draws else None
        call = replace(call, inputs=tuple(one for one, _ in found))
        return Recorded(call, [array for _, array in found], [], state), args, kwargs, tensors

    def _call(self, func: Any, place: Place, device: torch.device, encoded_args: tuple[Any, Any]) -> OpCall:
        op = str(func)
        number = self._counts.get(op, 0)
        self._counts[op], index = number + 1, self._index
        self._index += 1
        draws = torch.Tag.nondeterministic_seeded in func.tags and not _is_off(func, encoded_args[0])
        return OpCall(
            op=op,
            number=number,
            index=index,
            step=self._places.step,
            phase=place.phase,
            module=place.module,
            source=place.source,
            device=str(device),
            loss_scale=self._loss_scale(place.phase),
            args=encoded_args[0],
            kwargs=encoded_args[1],
            view=func.is_view or op in ("aten.lift_fresh.default", "aten._unsafe_view.default"),
            draws=draws,
            empty=op.startswith(_EMPTY),
        )

    def _loss_scale(self, phase: str) -> float | None:
        """Return the loss scale; a scaler not used since the start until a backward belongs to another training."""
        unused = scaled() == self._scaled
        self._unscaled = unused and (self._unscaled or phase == "backward")
        return None if self._unscaled and not of_apex() else loss_scale()


def _unrecorded() -> AbstractContextManager[None]:
    """Return a context without outer recorders, for operators that read values."""
    return _disable_current_modes() if torch._C._len_torch_dispatch_stack() else nullcontext()


def _is_off(func: Any, args: Sequence[Any]) -> bool:
    """Return whether a random operator is disabled by an argument."""
    return func._schema.name == "aten::native_dropout" and len(args) > 2 and args[2] is False


def _device(tensors: Sequence[torch.Tensor], args: Sequence[Any], kwargs: dict[str, Any]) -> torch.device:
    """Return the device of a call: that of its first tensor with dimensions, or its device argument."""
    asked = kwargs.get("device")
    if isinstance(asked, torch.device):
        return asked if asked.index is not None or asked.type == "cpu" else torch.device(asked.type, 0)
    wide = [one for one in tensors if one.dim()] or tensors
    return wide[0].device if wide else torch.device("cpu")


def _generator(args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Generator | None:
    return next((one for one in (*args, *kwargs.values()) if isinstance(one, torch.Generator)), None)


def _written_arguments(func: Any) -> set[str]:
    """Return the names of the arguments that an operator writes."""
    return {a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write}


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for one in value for tensor in _flat(one)]
    return []


def outputs_of(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> list[torch.Tensor]:
    """Return the results of a call and the tensors that it wrote, each once."""
    written = _written_arguments(func)
    names = [argument.name for argument in func._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    if str(func) in _STATISTICS and given.get("training"):
        written = {"running_mean", "running_var"}
    scratch = _SCRATCH.get(str(func), -1)
    results = _flat([one for k, one in enumerate(result) if k != scratch] if scratch >= 0 else result)
    found: list[torch.Tensor] = []
    for tensor in (*results, *(t for name in names if name in written for t in _flat(given.get(name)))):
        if can_be_kept(tensor) and not any(tensor is known for known in found):
            found.append(tensor)
    return found


def _with_outputs(recorded: Recorded, outputs: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> Recorded:
    found = [kept(one) for one in outputs]
    written = tuple(next((k for k, t in enumerate(tensors) if t is one), -1) for one in outputs)
    if recorded.call.view:
        written = tuple(-1 for _ in outputs)
    call = replace(recorded.call, outputs=tuple(one for one, _ in found), written=written)
    arrays = [array for _, array in found]
    whole = Recorded(call, recorded.inputs, arrays, recorded.state)
    whole.call = replace(call, overflow=overflows(whole))
    return whole


def overflows(recorded: Recorded) -> bool:
    """Return whether a call made NaN or infinity of finite inputs, unless its arguments request it, such as a mask."""
    call = recorded.call
    if call.view or call.empty or _requests_infinity([*call.args, *call.kwargs.values()]) or _is_meant(call):
        return False
    made = any(not _finite(one, array) for one, array in zip(call.outputs, recorded.outputs, strict=True))
    return made and all(_finite(one, array) for one, array in zip(call.inputs, recorded.inputs, strict=True))


def _is_meant(call: OpCall) -> bool:
    """Return whether an optimizer divides by the number 0: RAdam in lists does, and takes the reciprocal of the
    result.
    """
    if call.phase != "optimizer" or not call.op.startswith(("aten.div", "aten._foreach_div")):
        return False
    numbers = [one for arg in call.args for one in (arg if isinstance(arg, list) else [arg])]
    return any(isinstance(one, float) and one == 0.0 for one in numbers)


def _finite(one: KeptTensor, array: np.ndarray[Any, Any]) -> bool:
    if one.dtype.startswith("float8") or array.dtype.kind not in "fcu":
        return True
    if array.dtype.kind == "u" and one.dtype != "bfloat16":
        return True
    return bool(np.isfinite(as_numbers(array, one.dtype)).all())


def _requests_infinity(values: Sequence[Any]) -> bool:
    return any(
        (isinstance(one, dict) and "float" in one) or (isinstance(one, list) and _requests_infinity(one))
        for one in values
    )


def _replaced(
    args: Sequence[Any],
    kwargs: dict[str, Any],
    tensors: list[torch.Tensor],
    fed: dict[int, torch.Tensor],
    written: set[str],
) -> tuple[Sequence[Any], dict[str, Any], list[torch.Tensor]]:
    """Return arguments with replaced tensors; if the call writes its arguments, values are copied into them instead."""
    if not fed:
        return args, kwargs, tensors
    swap: dict[int, torch.Tensor] = {}
    for k, new in fed.items():
        old = tensors[k]
        if written:
            if not _overlaps(old):
                old.copy_(new)
        else:
            swap[id(old)] = new

    def changed(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return swap.get(id(value), value)
        if isinstance(value, (list, tuple)):
            return type(value)(changed(one) for one in value)
        return value

    new_tensors = [swap.get(id(one), one) for one in tensors]
    return [changed(one) for one in args], {name: changed(one) for name, one in kwargs.items()}, new_tensors


def _overlaps(tensor: torch.Tensor) -> bool:
    return any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True))
