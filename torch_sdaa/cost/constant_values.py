"""Values of small tensors that follow from constants, while a step is traced on tensors without values.

What the host reads decides how a step goes on: how long a loop is, whether a mask is full. Where such a number follows
from constants alone, it is computed for real, on the CPU, beside the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map

from torch_sdaa.cost import prices

LARGEST = 4096
"""Elements of a tensor whose values are followed."""

_RESHAPING = ("aten::set_", "aten::resize_", "aten::resize_as_")
_LIFTED = ("aten::lift", "aten::lift_fresh")
_EMPTY = "aten::empty"


class _UnknownError(Exception):
    """A value does not follow from constants."""


class ConstantValues:
    """Which fake tensors have known values: by storage, so that views and what is written through one are, too."""

    def __init__(self) -> None:
        # The fake storage is held, so that no other one gets its number.
        self._of: dict[int, tuple[Any, Any]] = {}

    def value(self, tensor: Tensor) -> Tensor | None:
        """Return the values of a tensor, on the CPU; None: they are not known. What is written there is kept."""
        if not isinstance(tensor, FakeTensor):
            return tensor
        found = self._of.get(_number(tensor))
        if found is None or tensor.numel() > LARGEST:
            return None
        with _disable_current_modes():
            made = torch.empty(0, dtype=tensor.dtype)
            try:
                return made.set_(found[1], tensor.storage_offset(), tensor.size(), tensor.stride())
            except RuntimeError:  # it became larger meanwhile
                return None

    def learn(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
        """Follow an operator that ran on fake tensors; return what it gives for real, None where it is not known.

        Args:
            func, args, kwargs: the operator and its arguments. out: what it returned; None: nothing could be told.
        """
        name = str(func._schema.name)
        if name in _LIFTED and isinstance(out, FakeTensor) and not isinstance(args[0], FakeTensor):
            self.keep(out, args[0])  # a tensor that the script made of numbers
            out.constant = None  # with which PyTorch would compute for real, on the device too
            return None
        if prices.is_view(name):
            return None
        outputs, written = _tensors(out), _written(func, args, kwargs)
        before = {_number(each) for each in _tensors((args, kwargs))}
        fresh = [i for i, each in enumerate(outputs) if _number(each) not in before]
        try:
            real = self._computed(func, args, kwargs, [*written, *outputs])
        except _UnknownError:
            for each in [*written, *(outputs[i] for i in fresh)]:
                self._of.pop(_number(each), None)
            return None
        values = _tensors(real)
        for i in fresh if len(values) == len(outputs) else ():
            self.keep(outputs[i], values[i])
        return real

    def like(self, func: Any, args: tuple[Any, ...]) -> Tensor | None:
        """Return a tensor of the shape that an operator gives whose first operand is unknown; None: all is unknown."""
        try:
            others = tree_map(self._argument, args[1:])
        except _UnknownError:
            return None
        with _disable_current_modes():
            found: Tensor = func(torch.zeros((), dtype=args[0].dtype).expand(args[0].shape), *others)
        return found

    def keep(self, fake: Tensor, value: Tensor) -> None:
        """Remember the values of a new tensor."""
        if (
            fake.numel() <= LARGEST
            and fake.shape == value.shape
            and not fake.storage_offset()
            and fake.layout == torch.strided
        ):
            with _disable_current_modes():
                kept = torch.empty_strided(fake.size(), fake.stride(), dtype=fake.dtype).copy_(value)
            self._of[_number(fake)] = (fake.untyped_storage(), kept.untyped_storage())

    def _computed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], others: Sequence[Tensor]) -> Any:
        name = str(func._schema.name)
        drawn = torch.Tag.nondeterministic_seeded in func.tags
        if drawn or func.namespace != "aten" or name in _RESHAPING or any(each.numel() > LARGEST for each in others):
            raise _UnknownError
        known = tree_map(self._argument, (args, kwargs))
        with _disable_current_modes(), torch.no_grad():
            try:
                real = func(*known[0], **known[1])
                # what nobody has written is anything; nobody reads it
                return tree_map(_zeroed, real) if name.startswith(_EMPTY) else real
            except (RuntimeError, NotImplementedError, IndexError, ValueError) as error:
                raise _UnknownError from error

    def _argument(self, one: Any) -> Any:
        """Return an argument as the CPU takes it."""
        if isinstance(one, Tensor):
            value = self.value(one)
            if value is None or value.numel() > LARGEST:
                raise _UnknownError
            return value
        if isinstance(one, torch.Generator):
            raise _UnknownError
        return torch.device("cpu") if isinstance(one, torch.device) else one


def _zeroed(one: Any) -> Any:
    return torch.zeros_like(one) if isinstance(one, Tensor) else one


def _number(tensor: Tensor) -> int:
    """Return the number of a tensor's storage; 0: it has none."""
    return int(tensor.untyped_storage()._cdata) if tensor.layout == torch.strided else 0


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, Tensor)]


def _written(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """Return the tensors that an operator writes."""
    out = []
    for i, parameter in enumerate(func._schema.arguments):  # type: ignore[attr-defined]
        if parameter.alias_info is not None and parameter.alias_info.is_write:
            out += _tensors(args[i] if i < len(args) else kwargs.get(parameter.name))
    return out
