"""Samples of a data set as inputs of a model: calls, their sizes, and single samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, Engine, EngineSpec, TensorSpec
from engine.batching import batch_of, split
from toolkit.fix.records import Feed, Measure, listed
from utils.stored import ImageNotes

KEPT = 2**30
"""Largest number of bytes of preprocessed samples kept in memory; more are preprocessed again for every run."""

PLANS = 16
"""Largest number of combinations of sizes, since the card needs a plan for each."""


class Sizes(NamedTuple):
    """Shapes of all calls over a data set, in the form of an engine.

    Attributes:
        shapes: one per input, with ``None`` for a symbolic dimension that differs between calls.
        dims: ascending sizes of each such symbol.
    """

    shapes: tuple[tuple[int | None, ...], ...]
    dims: dict[str, tuple[int, ...]]


class Samples(ABC):
    """A data set as inputs of a model; iterable any number of times, and a context manager.

    Attributes:
        count: number of samples; with a task, of those that could be prepared, known after the first iteration.
        labelled: whether samples have labels. batch: samples per call. where: the data path, for messages.
        images: whether samples are images, which can be preprocessed in other ways (:meth:`parts`).
        specs: inputs of the model in order, with their batch axes.
        notes: preprocessing of images in the model's metadata. one_call: whether a part is one call of the model.
        left_out: note on samples that could not be prepared, or "".
        reference: the correct model, whose calls are used if calls depend on outputs.
    """

    one_call = True
    images = False
    left_out = ""
    where = ""
    reference: Path | None = None

    def __init__(self, count: int, labelled: bool, specs: Sequence[TensorSpec], batch: int) -> None:
        self.count, self.labelled, self.specs, self.batch = count, labelled, list(specs), batch
        self.notes = ImageNotes()
        self._kept: list[Feed] | None = None
        self._seen: set[tuple[tuple[int, ...], ...]] = set()

    @property
    def sharded(self) -> bool:
        """Whether the task splits calls into shards, so that their batch is that of a shard."""
        return False

    @abstractmethod
    def parts(self, **changes: Any) -> Iterator[Feed]:
        """Yield newly prepared parts in order; ``changes``: other parameters of the preprocessing of images."""

    @abstractmethod
    def measure(self, metric: str | None) -> Measure:
        """Return the measure of the runs: the named metric, or the default.

        Raises ConfigError if the name is unknown, or the metric does not support these samples; DataError if it needs
        labels that the data lacks.
        """

    @abstractmethod
    def chosen(self, indices: Sequence[int]) -> list[Feed]:
        """Return the inputs of single samples, in data set order."""

    def __iter__(self) -> Iterator[Feed]:
        if self._kept is not None:
            yield from self._kept
            return
        kept, size = [], 0
        for part in self.parts():
            size += _bytes(part)
            if size <= KEPT:
                kept.append(part)
            yield part
        if size <= KEPT:
            self._kept = kept

    def __enter__(self) -> Samples:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027 -- arrays need no closing
        """Close opened models."""

    def spec(self, path: Path) -> EngineSpec:
        """Return the engine settings of a model with the same inputs."""
        return EngineSpec(path, batch_size=self.batch)

    def card_spec(self, path: Path) -> EngineSpec:
        """Return the engine settings with the sizes of all calls, for a target with static shapes."""
        shapes, dims = self.sizes()
        return replace(self.spec(path), input_size=shapes, dims=dims)

    def run(self, engine: Engine) -> Iterator[tuple[Feed, Any]]:
        """Yield every part with the engine's outputs; float16 outputs are converted to float32."""
        for part in self:
            outputs = listed(engine(cast_to(part.inputs, engine.inputs)))
            yield part, [array.astype(np.float32) if array.dtype == np.float16 else array for array in outputs]

    def calls(self) -> Iterator[Feed]:
        """Yield the inputs of all calls over the data set, in the model's order."""
        yield from self

    def sizes(self) -> Sizes:
        """Return the shapes of all calls, with the batch set to :attr:`batch`; errors as of :func:`sizes_of`."""
        if not self._seen:
            self._seen = {shapes_of(part.inputs) for part in self.calls()}
        specs = [replace(spec, batch_axis=None) for spec in self.specs] if self.sharded else self.specs
        return sizes_of(sorted(self._seen), specs, self.batch)

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return one static shape per input, the largest of all calls."""
        shapes, dims = self.sizes()
        return tuple(
            tuple(dims[spec.symbols[axis] or ""][-1] if size is None else size for axis, size in enumerate(shape))
            for shape, spec in zip(shapes, self.specs, strict=True)
        )


def cast_to(arrays: Sequence[Array], specs: Sequence[TensorSpec]) -> list[Array]:
    """Return arrays cast to the inputs' dtypes of the same kind."""
    with np.errstate(over="ignore"):  # values out of range become inf, as on the device
        return [
            array.astype(spec.dtype, copy=False) if array.dtype.kind == spec.dtype.kind else array
            for array, spec in zip(arrays, specs, strict=True)
        ]


def shapes_of(arrays: Sequence[Array]) -> tuple[tuple[int, ...], ...]:
    """Return the shape of each array."""
    return tuple(array.shape for array in arrays)


def sizes_of(seen: Sequence[Sequence[tuple[int, ...]]], specs: Sequence[TensorSpec], batch: int) -> Sizes:
    """Return the shapes of all calls, in the form of an engine; ``seen``: the shapes of each call, one per input.

    Raises ConfigError for too many combinations of sizes, DataError if a dimension that differs has no name.
    """
    shapes, dims = [], dict[str, set[int]]()
    for spec, column in zip(specs, zip(*seen, strict=True), strict=True):
        sizes = list(zip(*column, strict=True))
        alone = [found[0] if len(set(found)) == 1 else None for found in sizes]
        shape = tuple(batch if axis == spec.batch_axis else size for axis, size in enumerate(alone))
        for axis, found in enumerate(sizes):
            if shape[axis] is None:
                dims.setdefault(_symbol(spec, axis, found), set()).update(found)
        shapes.append(shape)
    plans = len({tuple(_sizes_in(call, specs, dims)) for call in seen})
    if plans > PLANS:
        symbol, values = max(dims.items(), key=lambda item: len(item[1]))
        few = sorted({int(np.quantile(sorted(values), share, method="higher")) for share in (0.5, 0.9, 1.0)})
        raise ConfigError(
            f"calls have {plans} sizes ({symbol} from {min(values)} to {max(values)}), and the card needs a plan for "
            f"each; pad to a few sizes: --dim {symbol}={','.join(map(str, few))}"
        )
    return Sizes(tuple(shapes), {symbol: tuple(sorted(values)) for symbol, values in dims.items()})


def _symbol(spec: TensorSpec, axis: int, found: Sequence[int]) -> str:
    """Return the name of a dimension with several sizes."""
    symbol = spec.symbols[axis] if axis < len(spec.symbols) else None
    if symbol is None:
        raise DataError(
            f"input {spec.name!r}: dimension {axis} has sizes from {min(found)} to {max(found)} but no name in the "
            "model; pad the samples to one size, or export the model with a named dimension"
        )
    return symbol


def _sizes_in(
    call: Sequence[tuple[int, ...]], specs: Sequence[TensorSpec], dims: Mapping[str, Any]
) -> Iterator[tuple[str, int]]:
    for shape, spec in zip(call, specs, strict=True):
        for symbol, size in zip(spec.symbols, shape, strict=False):
            if symbol is not None and symbol in dims:
                yield symbol, size


def _bytes(value: Any) -> int:
    """Return the bytes of all arrays in lists, tuples and mappings."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(map(_bytes, value.values()))
    return sum(map(_bytes, value)) if isinstance(value, (list, tuple)) else 0


def in_parts(inputs: Sequence[Array], specs: Sequence[TensorSpec], batch: int | None) -> list[list[Array]]:
    """Return a call split into parts of a fixed batch, the last one padded with its last sample."""
    if batch is None or all(spec.batch_axis is None for spec in specs):
        return [list(inputs)]
    return split(inputs, [spec.batch_axis for spec in specs], batch_of(inputs, specs), batch)
