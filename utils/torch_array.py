"""PyTorch tensors in historical scripts, without importing torch.

The zoo computes in NumPy. A function of a historical face takes tensors or arrays. It returns tensors if one of its
arguments is a tensor, else a :class:`TorchArray`: an array with the few tensor methods that historical scripts call,
which torch's functions accept as a tensor. If there is a tensor, torch is already imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array, InputError
from tecoinfer_modelzoo.text import one_line


class TorchArray(np.ndarray[Any, np.dtype[Any]]):
    """A NumPy array that torch's functions accept as a tensor, with some of a tensor's methods.

    Indexing, arithmetic and in-place changes are NumPy's. An operation with a tensor, or a function of torch such as
    ``torch.cat``, returns tensors, which share its memory where possible. Other methods are torch's, if the script has
    imported torch.
    """

    def numpy(self) -> Array:
        """Return a plain array that shares the memory."""
        return self.view(np.ndarray)

    def clone(self) -> TorchArray:
        """Return a copy."""
        return self.copy()

    def cpu(self) -> TorchArray:
        """Return the array itself, which is in host memory."""
        return self

    def detach(self) -> TorchArray:
        """Return the array itself, which has no gradients."""
        return self

    def float(self) -> TorchArray:
        """Return the array as float32."""
        return self.astype(np.float32, copy=False).view(TorchArray)

    def __getattr__(self, name: str) -> Any:
        """Return this attribute of a tensor of the same memory."""
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
    """Return a tensor of an array's memory; of a copy if the array is read-only or has negative strides."""
    plain = array.view(np.ndarray)
    ok = plain.flags.writeable and all(stride >= 0 for stride in plain.strides)
    return torch.from_numpy(plain if ok else plain.copy())


def is_tensor(value: object) -> bool:
    """Return whether a value is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def as_array(value: Any, what: str) -> Array:
    """Return a tensor, an array or numbers as a plain array of numbers; memory is shared where possible.

    Raises:
        InputError: the value does not consist of numbers in rows of equal length.
    """
    if is_tensor(value):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value  # NumPy has no bfloat16
    try:
        array: Array = np.asarray(value).view(np.ndarray)
    except (ValueError, TypeError) as error:
        raise InputError(f"{what}: {one_line(error)}; pass an array or a tensor of numbers") from error
    if array.dtype.kind not in "buif":
        raise InputError(f"{what} has dtype {array.dtype}; pass an array or a tensor of numbers")
    return array


def like(result: Array, *given: object) -> Any:
    """Return a result as a tensor on the device of the first given tensor; without one as a :class:`TorchArray`.

    The memory is shared, except on another device. Lists of given values are searched.
    """
    tensor = first_tensor(given)
    if tensor is None:
        return result.view(TorchArray)
    return _shared(sys.modules["torch"], result).to(tensor.device)


def first_tensor(value: object) -> Any:
    """Return a tensor itself, or the first tensor in a list or tuple; ``None``: there is none."""
    if isinstance(value, (list, tuple)):
        return next((found for found in map(first_tensor, value) if found is not None), None)
    return value if is_tensor(value) else None


def of_the_script(result: Array) -> Any:
    """Return an array read from files: as a tensor if the script has imported torch, else as a :class:`TorchArray`."""
    torch = sys.modules.get("torch")
    return result.view(TorchArray) if torch is None else _shared(torch, result)
