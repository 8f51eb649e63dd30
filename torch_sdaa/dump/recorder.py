"""Records every call of an operator below autograd: what it read, what came of it, and where it comes from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from engine import SCRATCH, KeptTensor, OpCall, Recorded, as_numbers
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
"""Operators with memory for their backward, of which parts were never written: the forward's result of this number, the
backward's last input. It cannot be compared."""

_STATISTICS = ("aten.native_batch_norm.default", "aten.miopen_batch_norm.default", "aten.cudnn_batch_norm.default")
"""Operators that write into running_mean and running_var where they train, which their schemas do not say."""


class Recorder(TorchDispatchMode):
    """Gives each call to ``keep`` when it has returned; a context manager.

    Args:
        keep: is given the call with its arrays. places: says where calls come from.
        feed: may put other tensors in the place of a call's inputs, by their numbers.
    """

    def __init__(self, keep: Keep, places: Places, feed: Feed | None = None) -> None:
        super().__init__()
        self._keep, self._places, self._feed = keep, places, feed
        self._counts: dict[str, int] = {}
        self._index = 0
        self._scaled, self._unscaled = scaled(), False
        self._lock = threading.RLock()  # each device's backward has a thread of its own

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator, and record it."""
        given = kwargs or {}
        if func.namespace in _LEFT:
            return func(*args, **given)
        with self._lock:
            with _unseen():
                recorded, args, given, tensors = self._before(func, args, given)
            try:
                result = func(*args, **given)
            except Exception as error:
                recorded.call = replace(recorded.call, failed=one_line(error))
                self._keep(recorded)  # what it failed on
                raise
            with _unseen():
                self._keep(_with_outputs(recorded, outputs_of(func, args, given, result), tensors))
            return result

    def _before(
        self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Recorded, Sequence[Any], dict[str, Any], list[torch.Tensor]]:
        """Return what is known before a call, what it is called with, and the tensors in that."""
        tensors: list[torch.Tensor] = []
        told = encoded(list(args), tensors), encoded(kwargs, tensors)["dict"]
        device = _device(tensors, args, kwargs)
        call = self._call(func, self._places.of_call(), device, told)
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

    def _call(self, func: Any, place: Place, device: torch.device, told: tuple[Any, Any]) -> OpCall:
        op = str(func)
        number = self._counts.get(op, 0)
        self._counts[op], index = number + 1, self._index
        self._index += 1
        draws = torch.Tag.nondeterministic_seeded in func.tags and not _is_off(func, told[0])
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
            args=told[0],
            kwargs=told[1],
            view=func.is_view or op in ("aten.lift_fresh.default", "aten._unsafe_view.default"),
            draws=draws,
            empty=op.startswith(_EMPTY),
        )

    def _loss_scale(self, phase: str) -> float | None:
        """Return the loss's factor; a scaler that has scaled nothing before a backward is of another training."""
        asleep = scaled() == self._scaled
        self._unscaled = asleep and (self._unscaled or phase == "backward")
        return None if self._unscaled and not of_apex() else loss_scale()


def _unseen() -> AbstractContextManager[None]:
    """Return a context in which a recorder around this one sees no operators: those that read values."""
    return _disable_current_modes() if torch._C._len_torch_dispatch_stack() else nullcontext()


def _is_off(func: Any, args: Sequence[Any]) -> bool:
    """Say whether a random operator is told not to draw."""
    return func._schema.name == "aten::native_dropout" and len(args) > 2 and args[2] is False


def _device(tensors: Sequence[torch.Tensor], args: Sequence[Any], kwargs: dict[str, Any]) -> torch.device:
    """Return the device a call runs on: that of its first tensor that is no number, or the one it is given."""
    asked = kwargs.get("device")
    if isinstance(asked, torch.device):
        return asked if asked.index is not None or asked.type == "cpu" else torch.device(asked.type, 0)
    wide = [one for one in tensors if one.dim()] or tensors
    return wide[0].device if wide else torch.device("cpu")


def _generator(args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Generator | None:
    return next((one for one in (*args, *kwargs.values()) if isinstance(one, torch.Generator)), None)


def _written_arguments(func: Any) -> set[str]:
    """Return the names of the arguments that an operator writes into."""
    return {a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write}


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for one in value for tensor in _flat(one)]
    return []


def outputs_of(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> list[torch.Tensor]:
    """Return what came of a call: its results, and the tensors it wrote into; each once."""
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
    """Say whether a call made NaN or infinity of finite numbers; one that was asked for it, such as a mask, did not."""
    call = recorded.call
    if call.view or call.empty or _asked_for([*call.args, *call.kwargs.values()]) or _is_meant(call):
        return False
    made = any(not _finite(one, array) for one, array in zip(call.outputs, recorded.outputs, strict=True))
    return made and all(_finite(one, array) for one, array in zip(call.inputs, recorded.inputs, strict=True))


def _is_meant(call: OpCall) -> bool:
    """Say whether an optimizer divides by the number 0: RAdam in lists does, and takes the reciprocal of that."""
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


def _asked_for(values: Sequence[Any]) -> bool:
    return any(
        (isinstance(one, dict) and "float" in one) or (isinstance(one, list) and _asked_for(one)) for one in values
    )


def _replaced(
    args: Sequence[Any],
    kwargs: dict[str, Any],
    tensors: list[torch.Tensor],
    fed: dict[int, torch.Tensor],
    written: set[str],
) -> tuple[Sequence[Any], dict[str, Any], list[torch.Tensor]]:
    """Return arguments with other tensors in the place of some; what the call writes into gets the values instead."""
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
