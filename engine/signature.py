"""A model's signature: names, dtypes and shapes of its inputs and outputs, and how a call fits them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from engine.errors import ConfigError

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

Dim: TypeAlias = int | str | None
"""A declared dimension: a number, the symbol of a dynamic one, or ``None`` for one without a symbol."""

NO_TENSOR = "engines take and return arrays: export the model with tensors in and out"
"""What to do where a sequence or an optional goes in or comes out."""

# Names that exporters make up for a dimension the user did not name; two of them differing says nothing.
_MADE_UP = re.compile(r"(unk__|p2o\.DynamicDimension|DynamicDimension|dim_?\d|s\d+$|.*_dynamic_axes_\d)")


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name, dtype and shape of one graph input or output; a dynamic dimension is ``None``.

    ``batched`` says whether the first dimension is the batch, which may then have any size in a call. ``batch_axis`` is
    where the samples lie (``None``: the input is not per sample), ``symbols`` the names of the dynamic dimensions.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]
    batched: bool = True
    batch_axis: int | None = 0
    symbols: tuple[str | None, ...] = ()


def batch_flags(shapes: Sequence[Sequence[Dim]], input_size: Sequence[Sequence[int]] | None = None) -> list[bool]:
    """Say for each graph input whether its first dimension is the batch (split) or not (replicated).

    Args:
        shapes: declared shapes; a dynamic dimension is its symbol or ``None``.
        input_size: the shapes they will be bound to, where known.

    The first input with a dynamic leading dimension, else the first that is not a scalar, sets the batch; another input
    is batched when its leading dimension is the same number, the same symbol, or a dynamic one bound to the same size.
    A declared leading 0 is no batch: there is nothing to split.
    """
    dynamic = [i for i, shape in enumerate(shapes) if shape and not isinstance(shape[0], int)]
    ranked = [i for i, shape in enumerate(shapes) if shape and shape[0] != 0]
    if not ranked:
        return [False] * len(shapes)
    lead = (dynamic or ranked)[0]
    return [bool(shape) and _same_batch(i, lead, shapes, input_size) for i, shape in enumerate(shapes)]


def _same_batch(i: int, lead: int, shapes: Sequence[Sequence[Dim]], input_size: Sequence[Sequence[int]] | None) -> bool:
    mine, leads = shapes[i][0], shapes[lead][0]
    if isinstance(mine, int) or isinstance(leads, int) or mine == leads:
        return mine == leads
    if input_size is not None:
        return input_size[i][:1] == input_size[lead][:1]  # slices: a shape that is too short is refused later
    return any(name is None or _MADE_UP.match(name) for name in (mine, leads))


def input_order(names: list[str], wanted: Sequence[str], ckpt: Path) -> list[int]:
    """Return the model's input indices in the order the caller named them.

    Raises:
        ConfigError: several inputs, and the names are not exactly theirs. (One input needs no name: a wrong one warns.)
    """
    if sorted(wanted) == sorted(names):
        return [names.index(name) for name in wanted]
    if wanted and len(names) > 1:
        raise ConfigError(
            f"{ckpt}: input_name {', '.join(wanted)} does not match the model's inputs: {', '.join(names)}"
        )
    if wanted and names:
        warnings.warn(
            f"{ckpt}: input_name {', '.join(wanted)} is not the model's; its only input {names[0]!r} is used",
            stacklevel=5,
        )
    return list(range(len(names)))


def bind_sizes(inputs: Sequence[TensorSpec], input_size: Sequence[Sequence[int]], ckpt: Path) -> list[TensorSpec]:
    """Fill dynamic dimensions from ``input_size``, one shape per input; the batch stays as it is.

    Raises:
        ConfigError: a rank or a fixed dimension differs from the model's, or a dynamic one is to be 0.
    """
    return [_bind_size(tensor, tuple(size), ckpt) for tensor, size in zip(inputs, input_size, strict=True)]


def _bind_size(tensor: TensorSpec, size: tuple[int, ...], ckpt: Path) -> TensorSpec:
    first = 1 if tensor.batched else 0
    clash = any(have not in (None, want) for have, want in zip(tensor.shape[first:], size[first:], strict=False))
    empty = any(want == 0 and have != 0 for have, want in zip(tensor.shape, size, strict=False))
    if len(size) != len(tensor.shape) or clash or empty:
        have = ["N" if d is None else d for d in tensor.shape]
        raise ConfigError(
            f"{ckpt}: input_size {list(size)} does not fit input {tensor.name!r} of shape {have}".replace("'N'", "N")
        )
    return replace(tensor, shape=(*tensor.shape[:first], *size[first:]))


def fits(shape: tuple[int, ...], spec: TensorSpec) -> bool:
    """Say whether an array of this shape can be fed to an input; one without elements only where the model says so."""
    want = spec.shape
    if len(shape) != len(want) or (0 in shape and 0 not in want):
        return False
    if spec.batched:
        shape, want = shape[1:], want[1:]
    return shape == want or all(w is None or w == got for w, got in zip(want, shape, strict=True))


def batch_of(inputs: Sequence[Array], specs: Sequence[TensorSpec]) -> int:
    """Return the number of samples in a call (1 for a model none of whose inputs has a batch dimension)."""
    return next((array.shape[0] for array, spec in zip(inputs, specs, strict=True) if spec.batched), 1)


def tensor_to_json(tensor: TensorSpec) -> dict[str, Any]:
    """Return a tensor's description in plain types, as saved engines keep it."""
    return {"name": tensor.name, "dtype": tensor.dtype.name, "shape": list(tensor.shape), "batched": tensor.batched}


def tensor_from_json(entry: Mapping[str, Any]) -> TensorSpec:
    """Read what :func:`tensor_to_json` returned.

    Raises:
        KeyError, TypeError: it is something else.
    """
    return TensorSpec(entry["name"], np.dtype(entry["dtype"]), tuple(entry["shape"]), entry["batched"])
