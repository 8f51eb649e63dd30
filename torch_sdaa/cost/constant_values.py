"""Values of small tensors that follow from constants, computed while a step is traced on fake tensors.

Values read by the host decide the course of a step: the length of a loop, whether a mask is full. A value that follows
from constants alone is computed on the CPU during the trace.
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
"""Maximum number of elements of a tensor whose values are computed."""

_RESHAPING = ("aten::set_", "aten::resize_", "aten::resize_as_")
_LIFTED = ("aten::lift", "aten::lift_fresh")
_EMPTY = "aten::empty"


class _UnknownError(Exception):
    """A value does not follow from constants."""


class ConstantValues:
    """Known values of fake tensors, by storage, so that views and writes through them are covered."""

    def __init__(self) -> None:
        # A reference to the fake storage is kept, so that its number is not reused.
        self._of: dict[int, tuple[Any, Any]] = {}

    def value(self, tensor: Tensor) -> Tensor | None:
        """Return the values of a tensor on the CPU, sharing memory; ``None`` if they are unknown."""
        if not isinstance(tensor, FakeTensor):
            return tensor
        found = self._of.get(_number(tensor))
        if found is None or tensor.numel() > LARGEST:
            return None
        with _disable_current_modes():
            made = torch.empty(0, dtype=tensor.dtype)
            try:
                return made.set_(found[1], tensor.storage_offset(), tensor.size(), tensor.stride())
            except RuntimeError:  # its storage was enlarged since
                return None

    def learn(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
        """Compute an operator that ran on fake tensors; return its real result, ``None`` if it is unknown.

        Args:
            func, args, kwargs: the operator and its arguments. out: its result; ``None`` if its shapes were unknown.
        """
        name = str(func._schema.name)
        if name in _LIFTED and isinstance(out, FakeTensor) and not isinstance(args[0], FakeTensor):
            self.keep(out, args[0])  # a tensor created from numbers
            out.constant = None  # PyTorch would compute with it, on the device too
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
        """Return a tensor with the shape of the result for an unknown first operand; ``None`` if others are unknown."""
        try:
            others = tree_map(self._argument, args[1:])
        except _UnknownError:
            return None
        with _disable_current_modes():
            found: Tensor = func(torch.zeros((), dtype=args[0].dtype).expand(args[0].shape), *others)
        return found

    def keep(self, fake: Tensor, value: Tensor) -> None:
        """Record the values of a new tensor."""
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
                # uninitialized values are arbitrary, and not read
                return (
                    tree_map(lambda one: torch.zeros_like(one) if isinstance(one, Tensor) else one, real)
                    if name.startswith(_EMPTY)
                    else real
                )
            except (RuntimeError, NotImplementedError, IndexError, ValueError) as error:
                raise _UnknownError from error

    def _argument(self, one: Any) -> Any:
        """Return an argument for the CPU."""
        if isinstance(one, Tensor):
            value = self.value(one)
            if value is None or value.numel() > LARGEST:
                raise _UnknownError
            return value
        if isinstance(one, torch.Generator):
            raise _UnknownError
        return torch.device("cpu") if isinstance(one, torch.device) else one


def _number(tensor: Tensor) -> int:
    """Return the number of a tensor's storage; 0 if it has none."""
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
