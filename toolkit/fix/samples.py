"""Samples for a model, as what it is fed over a data set: the calls, their sizes, and single samples of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, Engine, EngineSpec, TensorSpec, batch_of, split
from toolkit.fix.records import Feed, Measure
from utils.stored import PictureNotes

if TYPE_CHECKING:
    from typing_extensions import Self

KEPT = 2**30
"""Bytes of preprocessed samples that are kept; more are preprocessed again for every run."""

PLANS = 16
"""Combinations of sizes that calls may have: the card has a plan for each."""


class Sizes(NamedTuple):
    """The shapes of all calls over a data set, as an engine takes them.

    Attributes:
        shapes: one per input, ``None`` in it for a symbolic dimension that differs between calls.
        dims: the sizes that each such symbol has, rising.
    """

    shapes: tuple[tuple[int | None, ...], ...]
    dims: dict[str, tuple[int, ...]]


class Samples(ABC):
    """A data set as a model takes it; it can be walked through any number of times, and is a context manager.

    Attributes:
        count: samples; of data that a task prepares those that could be, known after the first walk.
        labelled: whether they have labels.
        pictures: whether they are pictures, so that they can be preprocessed in other ways (:meth:`prepared`).
        specs: what the model takes, in its own order; the batch axis of each input is known.
        notes: how the model's export says that pictures are preprocessed.
        batch: samples of a call.
        one_call: whether a part is one call of the model.
        left_out: what is to be said of samples that could not be prepared.
        where: the data path, for messages.
        reference: the model that is right, whose calls are those that guide where values say what is called next.
    """

    one_call = True
    pictures = False
    left_out = ""
    where = ""
    reference: Path | None = None

    def __init__(self, count: int, labelled: bool, specs: Sequence[TensorSpec], batch: int) -> None:
        self.count, self.labelled, self.specs, self.batch = count, labelled, list(specs), batch
        self.notes = PictureNotes()
        self._kept: list[Feed] | None = None
        self._seen: set[tuple[tuple[int, ...], ...]] = set()

    @property
    def sharded(self) -> bool:
        """Whether calls are laid out by SPA, so that their batch is no whole call's."""
        return False

    @abstractmethod
    def parts(self, **changes: Any) -> Iterator[Feed]:
        """Yield the parts in order, prepared anew; ``changes`` are those of :meth:`prepared`."""

    @abstractmethod
    def measure(self, metric: str | None) -> Measure:
        """Return what judges the runs: the metric of this name, or the data's own.

        Raises:
            ConfigError: there is none of this name, or it does not go with these samples.
            DataError: the metric needs labels, and there are none.
        """

    @abstractmethod
    def chosen(self, indices: Sequence[int]) -> list[Feed]:
        """Return what the model is fed of single samples, in order of their place in the data set."""

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027 -- arrays hold nothing that needs freeing
        """Free what was opened."""

    def prepared(self, **changes: Any) -> Iterator[Feed]:
        """Walk through pictures with other parameters of the preprocessing."""
        return self.parts(**changes)

    def spec(self, path: Path) -> EngineSpec:
        """Return how to open a model of the same inputs as the one the samples are for; the target says the rest."""
        return EngineSpec(path, batch_size=self.batch)

    def card_spec(self, path: Path) -> EngineSpec:
        """Return the same with the sizes of all calls, for a target whose plans are of fixed shapes."""
        shapes, dims = self.sizes()
        return replace(self.spec(path), input_size=shapes, dims=dims)

    def run(self, engine: Engine) -> Iterator[tuple[Feed, Any]]:
        """Yield every part with what an engine gives for it; float16 outputs come as float32."""
        for part in self:
            outputs = listed(engine(cast_to(part.inputs, engine.inputs)))
            yield part, [array.astype(np.float32) if array.dtype == np.float16 else array for array in outputs]

    def calls(self) -> Iterator[Feed]:
        """Yield what the model is fed over the data set, inputs in its own order."""
        yield from self

    def sizes(self) -> Sizes:
        """Return the shapes of all calls, the batch set to :attr:`batch`.

        Raises:
            ConfigError: calls have too many sizes, one plan of the card for each.
            DataError: a dimension without a name has several.
        """
        if not self._seen:
            self._seen = {shapes_of(part.inputs) for part in self.calls()}
        specs = [replace(spec, batch_axis=None) for spec in self.specs] if self.sharded else self.specs
        return sizes_of(sorted(self._seen), specs, self.batch)

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return one full shape per input, the largest where calls differ."""
        shapes, dims = self.sizes()
        pairs = zip(shapes, self.specs, strict=True)
        return tuple(
            tuple(dims[spec.symbols[axis] or ""][-1] if size is None else size for axis, size in enumerate(shape))
            for shape, spec in pairs
        )


def listed(outputs: Any) -> Any:
    """Return a single array as a list of one."""
    return [outputs] if isinstance(outputs, np.ndarray) else outputs


def cast_to(arrays: Sequence[Array], specs: Sequence[TensorSpec]) -> list[Array]:
    """Return arrays in the inputs' dtypes, where these are of the same kind."""
    with np.errstate(over="ignore"):  # beyond a narrower float's range it becomes inf, as on the device
        return [
            array.astype(spec.dtype, copy=False) if array.dtype.kind == spec.dtype.kind else array
            for array, spec in zip(arrays, specs, strict=True)
        ]


def shapes_of(arrays: Sequence[Array]) -> tuple[tuple[int, ...], ...]:
    """Return the shape of each array."""
    return tuple(array.shape for array in arrays)


def sizes_of(seen: Sequence[Sequence[tuple[int, ...]]], specs: Sequence[TensorSpec], batch: int) -> Sizes:
    """Return the shapes that calls have, as an engine takes them.

    Args:
        seen: the shapes of each call, one per input. specs: of the inputs. batch: samples of a call.

    Raises:
        ConfigError: too many combinations of sizes for a plan each.
        DataError: a dimension that differs has no name.
    """
    shapes, dims = [], dict[str, set[int]]()
    for spec, column in zip(specs, zip(*seen, strict=True), strict=True):
        sizes = list(zip(*column, strict=True))
        shape = tuple(batch if axis == spec.batch_axis else _only(found) for axis, found in enumerate(sizes))
        for axis, found in enumerate(sizes):
            if shape[axis] is None:
                dims.setdefault(_symbol(spec, axis, found), set()).update(found)
        shapes.append(shape)
    plans = len({tuple(_sizes_in(call, specs, dims)) for call in seen})
    if plans > PLANS:
        symbol, values = max(dims.items(), key=lambda item: len(item[1]))
        few = sorted({int(np.quantile(sorted(values), share, method="higher")) for share in (0.5, 0.9, 1.0)})
        raise ConfigError(
            f"calls have {plans} sizes ({symbol} from {min(values)} to {max(values)}), and the card has a plan for "
            f"each; pad to a few: --dim {symbol}={','.join(map(str, few))}"
        )
    return Sizes(tuple(shapes), {symbol: tuple(sorted(values)) for symbol, values in dims.items()})


def _only(found: Sequence[int]) -> int | None:
    """Return the one size that was found, or ``None`` of several."""
    return found[0] if len(set(found)) == 1 else None


def _symbol(spec: TensorSpec, axis: int, found: Sequence[int]) -> str:
    """Return the name of a dimension that has several sizes."""
    symbol = spec.symbols[axis] if axis < len(spec.symbols) else None
    if symbol is None:
        raise DataError(
            f"input {spec.name!r}: dimension {axis} has sizes from {min(found)} to {max(found)} over the "
            "data and no name in the model; pad the samples to one size, or export it with a name"
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
    """Return the bytes of the arrays in lists, tuples and mappings."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(map(_bytes, value.values()))
    return sum(map(_bytes, value)) if isinstance(value, (list, tuple)) else 0


def in_parts(inputs: Sequence[Array], specs: Sequence[TensorSpec], batch: int | None) -> list[list[Array]]:
    """Return a call in parts of a fixed batch, a short one filled up with its last sample; whole without a batch."""
    if batch is None or all(spec.batch_axis is None for spec in specs):
        return [list(inputs)]
    return split(inputs, [spec.batch_axis for spec in specs], batch_of(inputs, specs), batch)
