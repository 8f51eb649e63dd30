"""Repeat dumped calls of operators on any device."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from engine import DataError
from engine.training import Recorded, as_numbers
from torch_sdaa.dump.recorder import outputs_of
from torch_sdaa.dump.values import as_array, as_tensor, decoded, dtype_name, set_rng_state

_DEFINED_IN = {
    "sdaa": ("torch_sdaa.apex.kernels", "torch_sdaa.contrib.optimized_lib.kernels"),
    "torchvision": ("torchvision",),
}
"""Modules that define the operators of a library, imported before a replay."""


def overload(name: str) -> Any:
    """Return the operator of a name such as ``aten.addmm.default``.

    Raises:
        DataError: the operator does not exist in this process.
    """
    space, _, rest = name.partition(".")
    for module in _DEFINED_IN.get(space, ()):
        if find_spec(module.partition(".")[0]) is not None:
            import_module(module)
    packet, _, form = rest.rpartition(".")
    try:
        return getattr(getattr(getattr(torch.ops, space), packet), form)
    except (AttributeError, RuntimeError) as error:
        raise DataError(
            f"this PyTorch ({torch.__version__}) has no operator {name}; import the module that defines it"
        ) from error


def called(recorded: Recorded, device: torch.device | str = "cpu") -> list[torch.Tensor]:
    """Return the results of a repeated call, and the tensors that it wrote.

    Raises:
        DataError: the dump lacks an input, or the operator does not exist. Errors of the operator are raised unchanged.
    """
    call, place = recorded.call, torch.device(device)
    if len(recorded.inputs) < _tensors([*call.args, *call.kwargs.values()]):
        raise DataError(f"{call.where} was dumped without its inputs; dump again with dump_mode all")
    tensors = [as_tensor(one, array, place) for one, array in zip(call.inputs, recorded.inputs, strict=True)]
    args = decoded(list(call.args), tensors, place)
    kwargs = {name: decoded(one, tensors, place) for name, one in call.kwargs.items()}
    if recorded.state is not None:
        set_rng_state(place, torch.from_numpy(recorded.state.copy()))
    function = overload(call.op)
    with torch.no_grad(), torch._C._DisableAutocast():  # calls are recorded below autocast
        return outputs_of(function, args, kwargs, function(*args, **kwargs))


def replayed(recorded: Recorded, device: torch.device | str = "cpu") -> list[np.ndarray[Any, Any]]:
    """Return the outputs of a repeated call, one numeric array each.

    Raises:
        DataError: the dump lacks an input, or the operator does not exist. Errors of the operator are raised unchanged.
    """
    call, made = recorded.call, called(recorded, device)
    if [(tuple(t.shape), dtype_name(t.dtype)) for t in made] != [(one.shape, one.dtype) for one in call.outputs]:
        raise DataError(f"{call.where}, repeated, gives results of another number, shape or dtype")
    return [as_numbers(as_array(tensor), dtype_name(tensor.dtype)) for tensor in made]


def _tensors(value: Any) -> int:
    """Return the number of tensors that arguments refer to."""
    if isinstance(value, dict):
        if "tensor" in value:
            return int(value["tensor"]) + 1
        return max((_tensors(one) for one in value.values()), default=0)
    return max((_tensors(one) for one in value), default=0) if isinstance(value, list) else 0
