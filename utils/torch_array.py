"""PyTorch's tensors beside numpy's arrays, without importing torch: what historical scripts hand over and expect back.

The zoo computes in numpy. A function of a historical face takes either, and gives back what it was given: tensors where
one of its arguments is a tensor, else an array, a :class:`TorchArray`. Scripts that a torch function got its results
from used to find tensors there, whatever they had put in; so such an array has the few methods that they call, and goes
into torch's functions as a tensor. torch is in the process where a tensor is, so nothing here imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array, InputError
from tecoinfer_modelzoo.text import one_line


class TorchArray(np.ndarray[Any, np.dtype[Any]]):
    """A numpy array that torch's functions take for a tensor, and that has the methods which scripts call on one.

    To numpy it is an array like any other: indexing, arithmetic and in-place changes are numpy's. An operation with a
    tensor, or a function of torch such as ``torch.cat``, gives tensors, which share its memory where they can. Of a
    tensor's methods it has its own below; the others it takes from torch where the script has imported that.
    """

    def numpy(self) -> Array:
        """Return a plain array that shares the memory."""
        return self.view(np.ndarray)

    def clone(self) -> TorchArray:
        """Return a copy."""
        return self.copy()

    def cpu(self) -> TorchArray:
        """Return the array itself: it is in the host's memory."""
        return self

    def detach(self) -> TorchArray:
        """Return the array itself: there are no gradients."""
        return self

    def float(self) -> TorchArray:
        """Return the array as float32."""
        return self.astype(np.float32, copy=False).view(TorchArray)

    def __getattr__(self, name: str) -> Any:
        """Return what a tensor of the same memory has by this name."""
        torch = sys.modules.get("torch")
        if torch is None or name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(_shared(torch, self), name)

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch with tensors in place of such arrays (pytorch.org, "Extending PyTorch")."""
        torch = sys.modules["torch"]
        made = {key: _replaced(torch, value) for key, value in (kwargs or {}).items()}
        return function(*(_replaced(torch, value) for value in args), **made)


def _replaced(torch: Any, value: Any) -> Any:
    """Return an argument with tensors in place of arrays, also within lists and tuples."""
    if isinstance(value, TorchArray):
        return _shared(torch, value)
    if isinstance(value, (list, tuple)):
        return type(value)([_replaced(torch, item) for item in value])
    return value


def _shared(torch: Any, array: Array) -> Any:
    """Return a tensor of an array's memory; a copy of one that cannot be written, or lies backwards."""
    plain = array.view(np.ndarray)
    ok = plain.flags.writeable and all(stride >= 0 for stride in plain.strides)
    return torch.from_numpy(plain if ok else plain.copy())


def is_tensor(value: object) -> bool:
    """Say whether a value is one of torch's tensors."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def as_array(value: Any, what: str) -> Array:
    """Return a tensor, an array or numbers as a plain array of numbers; memory is shared where it can be.

    Raises:
        InputError: these are no numbers in rows of equal lengths.
    """
    if is_tensor(value):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value  # numpy has no such numbers
    try:
        array: Array = np.asarray(value).view(np.ndarray)
    except (ValueError, TypeError) as error:
        raise InputError(f"{what}: {one_line(error)}; pass an array or a tensor of numbers") from error
    if array.dtype.kind not in "buif":
        raise InputError(f"{what} has dtype {array.dtype}; pass an array or a tensor of numbers")
    return array


def like(result: Array, *given: object) -> Any:
    """Return a result as a tensor, on the device of the first tensor that was given; without one a :class:`TorchArray`.

    The memory is the result's own, except on another device. Lists of what was given count with their items.
    """
    tensor = first_tensor(given)
    if tensor is None:
        return result.view(TorchArray)
    return _shared(sys.modules["torch"], result).to(tensor.device)


def first_tensor(value: object) -> Any:
    """Return a tensor of torch itself, of a list or tuple the first one; ``None`` without one."""
    if isinstance(value, (list, tuple)):
        return next((found for found in map(first_tensor, value) if found is not None), None)
    return value if is_tensor(value) else None


def of_the_script(result: Array) -> Any:
    """Return what is made from files: a tensor where the script has imported torch, else a :class:`TorchArray`."""
    torch = sys.modules.get("torch")
    return result.view(TorchArray) if torch is None else _shared(torch, result)
