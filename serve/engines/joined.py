"""Several requests in one call of an engine, with the bits that each request has in a call of its own.

A runtime may choose other kernels for other numbers of rows, and these may round differently. So the first calls with
each number of rows are computed both ways, and compared bit by bit. After :data:`TRIALS` equal ones with
:data:`VALUES` values the requests are computed together only, after a difference never again in this number. The
values must be many because two ways of rounding agree on most single values. Requests are answered with the bits of
their own call in either case.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np

from engine import Array, TensorSpec
from engine.batching import batch_of

TRIALS, VALUES = 2, 256
"""Equal calls with a number of rows, and values in them, from which it is used."""

KEYS = 256
"""Most combinations of shapes of which results of trials are kept; those used last."""

SIZES = tuple(sorted({size for n in range(13) for size in (1 << n, 3 << n)}))
"""Numbers of rows of joined calls; others are padded to the next one, so that there are few to try."""

Call = Callable[[list[Array]], list[Array]]


@dataclass
class _Tried:
    """Results of trials of one combination of shapes."""

    # (rows of a call, rows of a request) -> equal calls, and values in them
    equal: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)  # rows of a call


@dataclass
class Joined:
    """Joins calls of one engine.

    Attributes:
        call: computes arrays, one per input, and returns one per output.
        inputs, outputs: tensors with batch axes; calls are joined only if each output has one.
        most: most rows of a joined call.
        shared, alone, trials: numbers of requests computed with others and alone, and of calls compared.
        refused: number of calls whose bits differed.
    """

    call: Call
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    most: int
    shared: int = 0
    alone: int = 0
    trials: int = 0
    refused: int = 0
    _tried: OrderedDict[Hashable, _Tried] = field(default_factory=OrderedDict)

    def __call__(self, key: Hashable, parts: Sequence[list[Array]]) -> list[list[Array]]:
        """Compute the arrays of several requests of one key; return the outputs of each.

        Args:
            key: equal for requests of equal shapes, except the batch. parts: checked arrays of each request.
        """
        counts = [batch_of(part, self.inputs) for part in parts]
        total = sum(counts)
        size = next((size for size in SIZES if size >= total), total)
        size = size if size <= self.most else total
        tried = self._of(key)
        if len(parts) == 1 or total > self.most or size in tried.refused:
            self.alone += len(parts)
            return [self.call(part) for part in parts]
        together = self._together(parts, counts, size)
        kinds = {(size, count) for count in counts}
        if all(_is_enough(*tried.equal.get(kind, (0, 0))) for kind in kinds):
            self.shared += len(parts)
            return together
        self.trials += 1
        self.alone += len(parts)
        results = [self.call(part) for part in parts]
        if all(map(same_bits, together, results)):
            for kind in kinds:
                calls, values = tried.equal.get(kind, (0, 0))
                mine = (found for found, count in zip(results, counts, strict=True) if count == kind[1])
                tried.equal[kind] = calls + 1, values + sum(array.size for found in mine for array in found)
        else:
            tried.refused.add(size)
            self.refused += 1
        return results

    def most_useful(self, key: Hashable) -> int:
        """Return the most rows that were not refused for a key."""
        refused = self._of(key).refused
        return max((size for size in SIZES if size <= self.most and size not in refused), default=1)

    def _of(self, key: Hashable) -> _Tried:
        found = self._tried.setdefault(key, _Tried())
        self._tried.move_to_end(key)
        if len(self._tried) > KEYS:
            self._tried.popitem(last=False)
        return found

    def _together(self, parts: Sequence[list[Array]], counts: Sequence[int], size: int) -> list[list[Array]]:
        """Compute all parts in one call of ``size`` rows, padded by the last row, and cut the outputs apart."""
        total = sum(counts)
        arrays = []
        for column, spec in zip(zip(*parts, strict=True), self.inputs, strict=True):
            axis = spec.batch_axis
            if axis is None:
                arrays.append(column[0])
                continue
            padding = [np.repeat(np.take(column[-1], [-1], axis), size - total, axis)] if size > total else []
            arrays.append(np.concatenate([*column, *padding], axis))
        ends = [0, *accumulate(counts)]
        found = self.call(arrays)
        return [
            [_rows(array, spec, *cut) for array, spec in zip(found, self.outputs, strict=True)]
            for cut in pairwise(ends)
        ]


def _is_enough(calls: int, values: int) -> bool:
    return calls >= TRIALS and values >= VALUES


def _rows(array: Array, spec: TensorSpec, begin: int, end: int) -> Array:
    """Return rows along the batch axis; an output without one is not joined (:func:`can_join`)."""
    return array[(*(slice(None),) * (spec.batch_axis or 0), slice(begin, end))]


def can_join(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> str:
    """Return why calls of a model with independent rows cannot be joined; empty: they can."""
    if all(spec.batch_axis is None for spec in inputs):
        return "its inputs have no batch"
    fixed = next((spec.name for spec in inputs if spec.batch_axis is None), None)
    if fixed is not None:
        return f"input {fixed!r} has no batch, and requests may give different values"
    whole = next((spec.name for spec in outputs if spec.batch_axis is None), None)
    return "" if whole is None else f"output {whole!r} has no batch"


def same_bits(some: Sequence[Array], others: Sequence[Array]) -> bool:
    """Return whether arrays are equal in shape, dtype and every bit."""
    return len(some) == len(others) and all(map(_same, some, others))


def _same(one: Array, other: Array) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return one.tolist() == other.tolist() if one.dtype.hasobject else one.tobytes() == other.tobytes()
