"""A model's signature: names, dtypes and shapes of its inputs and outputs."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tecoinfer_modelzoo.errors import ConfigError
from tecoinfer_modelzoo.json_types import items, text, whole
from tecoinfer_modelzoo.text import user_stacklevel

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

Dim: TypeAlias = int | str | None
"""A declared dimension: a number, the symbol of a dynamic one, or ``None`` for one without a symbol."""

NO_TENSOR = "engines take and return arrays: export the model with tensors in and out"
"""Advice for models with sequences or optionals as inputs or outputs."""

_DTYPES = (
    "float16",
    "float32",
    "float64",
    "bool",
    "object",
    *(f"{sign}int{n}" for sign in ("", "u") for n in (8, 16, 32, 64)),
)

# Names that exporters generate for unnamed dimensions; two different ones may still be the same size.
_MADE_UP = re.compile(r"(unk__|p2o\.DynamicDimension|DynamicDimension|dim_?\d|s\d+$|.*_dynamic_axes_\d)")
_BATCH = re.compile(r"(?i)n|b|bsz?|.*batch.*")
_SURELY_BATCH = re.compile(r"(?i)bsz?|.*batch.*")  # usual names of the batch, and those of them that name nothing else


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One graph input or output.

    Attributes:
        name, dtype: in the graph.
        shape: a dynamic dimension is ``None``.
        batch_axis: the batch dimension, which may have any size in a call; ``None`` if there is none.
        symbols: the declared symbol of each dimension, ``None`` for a number or a dynamic one without a name; empty if
            symbols are unknown.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]
    batch_axis: int | None = 0
    symbols: tuple[str | None, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.batch_axis, bool):  # of an older API: True would be axis 1
            raise TypeError(f"TensorSpec {self.name!r}: batch_axis is {self.batch_axis}; pass an axis, or None")

    @property
    def batched(self) -> bool:
        """Whether one of the dimensions is the batch."""
        return self.batch_axis is not None


def may_be_batch(dim: Dim) -> bool:
    """Return whether a declared dimension may be the batch by its name: it has none, or a usual one."""
    return not isinstance(dim, int) and (dim is None or bool(_MADE_UP.match(dim) or _BATCH.fullmatch(dim)))


def sizes_of(shape: Sequence[Dim]) -> tuple[int | None, ...]:
    """Return the sizes of a declared shape, in the form of :attr:`TensorSpec.shape`."""
    return tuple(d if isinstance(d, int) else None for d in shape)


def symbols_of(shape: Sequence[Dim]) -> tuple[str | None, ...]:
    """Return the symbols of a declared shape, in the form of :attr:`TensorSpec.symbols`."""
    return tuple(d if isinstance(d, str) else None for d in shape)


def batch_axes(
    shapes: Sequence[Sequence[Dim]],
    input_size: Sequence[Sequence[int | None]] | None = None,
    no_batch: Collection[str] = (),
) -> list[int | None]:
    """Guess the batch dimension of each graph input from the declared shapes alone.

    Args:
        shapes: declared shapes; a dynamic dimension is its symbol or ``None``.
        input_size: the shapes they will be bound to, if known.
        no_batch: symbols that are not the batch.

    The first input with a dynamic leading dimension, else the first that is not a scalar, sets the batch. If its symbol
    is not a usual name of the batch, but that of another dimension is (``batch``), that dimension sets it. Another
    input is batched along the dimension of the same symbol, or along its leading one if that is the same number, or a
    dynamic one bound to the same size. A declared leading 0 is not a batch: there is nothing to split. The graph is not
    analysed; :func:`engine.batching.find.find_batching` does that.
    """
    lead = _lead(shapes, no_batch)
    symbol = None if lead is None else shapes[lead][0]
    if not (isinstance(symbol, str) and _BATCH.fullmatch(symbol)):
        symbols = (d for shape in shapes for d in shape if isinstance(d, str) and d not in no_batch)
        named = next(filter(_SURELY_BATCH.fullmatch, symbols), None)  # it can only be the batch
        if named is not None:
            return [_named_axis(named, shape) for shape in shapes]
    if lead is None:
        return [None] * len(shapes)
    return [_batch_axis(i, lead, shapes, input_size, no_batch) for i in range(len(shapes))]


def _lead(shapes: Sequence[Sequence[Dim]], no_batch: Collection[str]) -> int | None:
    """Return the first input whose leading dimension may be the batch, preferring dynamic ones."""
    first = {i: shape[0] for i, shape in enumerate(shapes) if shape}
    dynamic = {i: dim for i, dim in first.items() if not isinstance(dim, int)}
    likely = (i for i, dim in dynamic.items() if dim not in no_batch)
    return next(likely if dynamic else (i for i, dim in first.items() if dim != 0), None)


def axis_of(symbol: str, shape: Sequence[Dim]) -> int | None:
    """Return the first dimension with a symbol."""
    return list(shape).index(symbol) if symbol in shape else None


def _named_axis(symbol: str, shape: Sequence[Dim]) -> int | None:
    """Return the dimension of a symbol, else the leading dimension if the user did not name it."""
    anonymous = bool(shape) and (shape[0] is None or (isinstance(shape[0], str) and _MADE_UP.match(shape[0])))
    return axis_of(symbol, shape) if symbol in shape else 0 if anonymous else None


def _batch_axis(
    i: int,
    lead: int,
    shapes: Sequence[Sequence[Dim]],
    input_size: Sequence[Sequence[int | None]] | None,
    no_batch: Collection[str],
) -> int | None:
    shape, symbol = shapes[i], shapes[lead][0]
    if shape and shape[0] not in no_batch and _same_batch(i, lead, shapes, input_size):
        return 0
    return axis_of(symbol, shape) if isinstance(symbol, str) else None


def _same_batch(
    i: int, lead: int, shapes: Sequence[Sequence[Dim]], input_size: Sequence[Sequence[int | None]] | None
) -> bool:
    mine, leads = shapes[i][0], shapes[lead][0]
    if isinstance(mine, int) or isinstance(leads, int) or mine == leads:
        return mine == leads
    if input_size is not None and None not in (*input_size[i][:1], *input_size[lead][:1]):
        return input_size[i][:1] == input_size[lead][:1]  # slices: a too short shape is refused later
    return any(name is None or _MADE_UP.match(name) for name in (mine, leads))


@dataclass(frozen=True, slots=True)
class BatchAxes:
    """Batch axes found by more than the declared shapes.

    Attributes:
        inputs, outputs: batch axis of each, in the model's order; ``None``: no batch.
        independent: whether a sample's outputs depend on that sample alone; ``None``: unknown.
        reason: why they do not, or why it is unknown.
    """

    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    independent: bool | None = True
    reason: str = ""

    def without(self, shapes: Sequence[Sequence[Dim]], symbols: Collection[str]) -> BatchAxes:
        """Return the same, without a batch if the caller set sizes for the batch's symbol and samples may be dependent.

        An example are a graph's nodes: they look like a batch of dependent samples, and are one sample.

        Args:
            shapes: declared shapes of the inputs, with symbols. symbols: those with sizes set by the caller.
        """
        mine = {shape[axis] for shape, axis in zip(shapes, self.inputs, strict=True) if axis is not None}
        if self.independent or not mine.intersection(symbols):
            return self
        return BatchAxes((None,) * len(self.inputs), (None,) * len(self.outputs))


def input_order(names: list[str], wanted: Sequence[str], ckpt: Path) -> list[int]:
    """Return the model's input indices in the caller's order of names.

    If the names are not those of all inputs, warn and keep the model's order: scripts name one input of several, or use
    another name. Raise ConfigError if some names are the model's, in another order than the model's.
    """
    if sorted(wanted) == sorted(names):
        return [names.index(name) for name in wanted]
    given = f"{ckpt}: input_name {', '.join(wanted)}"
    if wanted and len(names) > 1:
        if _other_order(names, wanted):
            raise ConfigError(f"{given} does not match the model's inputs: {', '.join(names)}; name each once, or none")
        shown = f"is not used: it does not name the model's inputs, which are taken in the order {', '.join(names)}"
        warnings.warn(f"{given} {shown}", stacklevel=user_stacklevel())
    elif wanted and names:
        warnings.warn(f"{given} is not the model's; its only input {names[0]!r} is used", stacklevel=user_stacklevel())
    return list(range(len(names)))


def _other_order(names: list[str], wanted: Sequence[str]) -> bool:
    """Return whether the names that are the model's are in another order than in the model."""
    known = [(i, names.index(name)) for i, name in enumerate(wanted) if name in names]
    if len(wanted) == len(names):
        return any(i != place for i, place in known)
    places = [place for _, place in known]
    return places != sorted(set(places))


def bind_sizes(
    inputs: Sequence[TensorSpec], input_size: Sequence[Sequence[int | None]], ckpt: Path
) -> list[TensorSpec]:
    """Set dynamic dimensions from ``input_size``, one shape per input; the batch is not changed.

    ``None`` in a shape keeps the model's dimension, or the size to which the same symbol is bound elsewhere.
    Raise ConfigError if a rank or a fixed dimension differs from the model's, or the batch is 0.
    """
    bound = [_bind_size(tensor, tuple(size), ckpt) for tensor, size in zip(inputs, input_size, strict=True)]
    known = {
        symbol: size
        for tensor in bound
        for axis, (symbol, size) in enumerate(zip(tensor.symbols, tensor.shape, strict=False))
        if symbol is not None and size is not None and axis != tensor.batch_axis
    }
    return [_bind_symbols(tensor, known) for tensor in bound] if known else bound


def _bind_size(tensor: TensorSpec, size: tuple[int | None, ...], ckpt: Path) -> TensorSpec:
    axis, pairs = tensor.batch_axis, list(zip(tensor.shape, size, strict=False))
    taken = all(_takes(have, want, i == axis) for i, (have, want) in enumerate(pairs))
    if len(size) != len(tensor.shape) or not taken:
        have, given = (["N" if d is None else d for d in shape] for shape in (tensor.shape, size))
        raise ConfigError(
            f"{ckpt}: input_size {given} does not fit input {tensor.name!r} of shape {have}".replace("'N'", "N")
        )
    return replace(
        tensor, shape=tuple(have if i == axis or want is None else want for i, (have, want) in enumerate(pairs))
    )


def _takes(have: int | None, want: int | None, is_batch: bool) -> bool:
    """Return whether a dimension of the model can be bound to a size; the batch to any but 0."""
    if want == 0 and have != 0:
        return have is None and not is_batch
    return is_batch or None in (have, want) or have == want


def _bind_symbols(tensor: TensorSpec, known: Mapping[str, int]) -> TensorSpec:
    shape = tuple(
        known.get(symbol, size) if symbol is not None and size is None and i != tensor.batch_axis else size
        for i, (symbol, size) in enumerate(zip(tensor.symbols, tensor.shape, strict=True))
    )
    return replace(tensor, shape=shape)


def with_batch(shape: Sequence[int | None], axis: int | None, rows: int) -> tuple[int, ...]:
    """Return a shape with batch ``rows``; other unknown sizes become 0.

    Args:
        shape: a tensor's. axis: its batch axis, or ``None``. rows: samples.
    """
    return tuple(rows if i == axis else d or 0 for i, d in enumerate(shape))


def tensor_to_json(tensor: TensorSpec) -> dict[str, Any]:
    """Return a tensor's description in JSON types."""
    return {
        "name": tensor.name,
        "dtype": tensor.dtype.name,
        "shape": list(tensor.shape),
        "batch_axis": tensor.batch_axis,
        "symbols": list(tensor.symbols),
    }


def tensor_from_json(entry: Mapping[str, Any]) -> TensorSpec:
    """Read the result of :func:`tensor_to_json`. Raise KeyError, TypeError, ValueError if it is invalid."""
    shape = tuple(None if size is None else whole(size) for size in items(entry["shape"]))
    symbols = tuple(None if symbol is None else text(symbol) for symbol in items(entry["symbols"]))
    axis = axis_from_json(entry["batch_axis"], len(shape))
    if symbols and len(symbols) != len(shape):
        raise ValueError(f"{len(symbols)} symbols of {len(shape)} dimensions")
    return TensorSpec(text(entry["name"]), dtype_from_json(entry["dtype"]), shape, axis, symbols)


def dtype_from_json(value: Any) -> np.dtype[Any]:
    """Read the name of a tensor dtype; raise TypeError if it is invalid."""
    if value not in _DTYPES:
        raise TypeError("not the dtype of a tensor")
    return np.dtype(str(value))


def dim_from_json(value: Any) -> Dim:
    """Read a declared dimension; raise TypeError if it is invalid."""
    return value if value is None else text(value) if isinstance(value, str) else whole(value)


def axis_from_json(value: Any, rank: int) -> int | None:
    """Read the batch axis of a tensor of so many dimensions; axis 0 is valid for any rank.

    Raise TypeError if it is neither an integer of that range nor ``None``.
    """
    return None if value is None else whole(value, 0, max(0, rank - 1))


def numpy_name(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype in Python code for any NumPy version; strings and bools as Python types."""
    names = {"O": "object", "b": "bool"}
    return names.get(dtype.kind, f"np.{dtype.name}")
