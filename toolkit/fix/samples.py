"""Labelled samples for a model, as arrays it takes: rows of an ``.npz`` file, or pictures preprocessed for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine.base import Array, DataError, TensorSpec
from utils.stored import PictureNotes, Stored

KEPT = 2**30
"""Bytes of preprocessed samples that are kept; more are preprocessed again for every run."""

LABELS = ("labels", "y")
"""Names of an ``.npz`` file's array of labels."""


class Part(NamedTuple):
    """Some consecutive samples: one array per input of the model, the labels where there are any, and names.

    An input that has no row per sample is whole in every part.
    """

    inputs: list[Array]
    labels: Array | None
    names: list[str]


@dataclass
class Samples:
    """A data set as a model takes it; it can be walked through any number of times.

    Attributes:
        count: samples. labelled: whether they have labels.
        pictures: whether they are pictures, so that they can be preprocessed in other ways (:meth:`prepared`).
        batched: of every input, whether it has a row per sample.
        notes: how the model's export says that pictures become its input.
    """

    count: int
    labelled: bool
    pictures: bool
    batched: Sequence[bool]
    _parts: Callable[[Mapping[str, Any]], Iterator[Part]]
    notes: PictureNotes = field(default_factory=PictureNotes)
    _kept: list[Part] | None = None

    def __iter__(self) -> Iterator[Part]:
        if self._kept is not None:
            yield from self._kept
            return
        kept, size = [], 0
        for part in self._parts({}):
            size += sum(array.nbytes for array in part.inputs)
            if size <= KEPT:
                kept.append(part)
            yield part
        if size <= KEPT:
            self._kept = kept

    def prepared(self, **changes: Any) -> Iterator[Part]:
        """Walk through pictures with other parameters of the preprocessing."""
        return self._parts(changes)

    def shapes(self, batch: int) -> tuple[tuple[int, ...], ...]:
        """Return the shape of every input with ``batch`` samples."""
        both = zip(next(iter(self)).inputs, self.batched, strict=True)
        return tuple((batch, *array.shape[1:]) if rows else array.shape for array, rows in both)

    def chosen(self, indices: Sequence[int]) -> Part:
        """Return single samples, in order of their place in the data set."""
        wanted, first = sorted(set(indices)), 0
        found: list[Part] = []
        for part in self:
            rows = [i - first for i in wanted if first <= i < first + len(part.names)]
            first += len(part.names)
            if rows:
                labels = None if part.labels is None else part.labels[rows]
                both = zip(part.inputs, self.batched, strict=True)
                taken = [array[rows] if flag else array for array, flag in both]
                found.append(Part(taken, labels, [part.names[i] for i in rows]))
        columns = zip(zip(*(part.inputs for part in found), strict=True), self.batched, strict=True)
        known = [part.labels for part in found if part.labels is not None]
        names = [name for part in found for name in part.names]
        inputs = [np.concatenate(column) if flag else column[0] for column, flag in columns]
        return Part(inputs, np.concatenate(known) if known else None, names)


def filled(inputs: Sequence[Array], specs: Sequence[TensorSpec], batch: int) -> list[Array]:
    """Return a short last part with its last sample repeated, for what computes in one fixed batch."""
    return [_filled(array, batch) if spec.batched else array for array, spec in zip(inputs, specs, strict=True)]


def _filled(array: Array, batch: int) -> Array:
    short = batch - len(array)
    return array if short <= 0 else np.concatenate([array, np.repeat(array[-1:], short, axis=0)])


def load_samples(
    path: Path, inputs: Sequence[TensorSpec], metadata: Mapping[str, str], batch: int, limit: int | None = None
) -> Samples:
    """Open a data set.

    Args:
        path: an ``.npz`` file with one array per input under the inputs' names (``images`` or ``x`` will do for a
            single one) and perhaps ``labels``, where an input without a batch has one array for all samples; or
            pictures, as :func:`utils.datasets.load_dataset` takes them.
        inputs: what the model takes.
        metadata: the model's; pictures are preprocessed as its export says (:class:`utils.stored.Stored`).
        batch: samples of a part.
        limit: take only so many samples from the beginning.

    Raises:
        DataError: nothing usable at the path, or arrays that do not fit.
        ModelError: what the export stored of pictures cannot be read.
    """
    notes = Stored(metadata).picture
    if path.suffix == ".npz":
        return _rows(path, inputs, notes, batch, limit)
    return _pictures(path, inputs, notes, batch, limit)


def _rows(path: Path, inputs: Sequence[TensorSpec], notes: PictureNotes, batch: int, limit: int | None) -> Samples:
    from toolkit.inputs import read_npz

    arrays = read_npz(path)
    labels = next((arrays[name] for name in LABELS if name in arrays), None)
    flags = [spec.batched for spec in inputs]
    if not any(flags):
        raise DataError("no input of the model has a row per sample; export it with a batch to try data sets")
    found = [_column(path, arrays, spec, alone=len(inputs) == 1) for spec in inputs]
    columns = [array[:limit] if rows else array for array, rows in zip(found, flags, strict=True)]
    counts = {len(column) for column, rows in zip(columns, flags, strict=True) if rows}
    counts |= {len(labels[:limit])} if labels is not None else set()
    if len(counts) != 1 or 0 in counts:
        raise DataError(f"{path}: its arrays hold {sorted(counts)} samples; give all equally many")
    count = counts.pop()

    def parts(_: Mapping[str, Any]) -> Iterator[Part]:
        for first in range(0, count, batch):
            rows = slice(first, min(first + batch, count))
            names = [f"{path.name}[{i}]" for i in range(rows.start, rows.stop)]
            inputs = [column[rows] if flag else column for column, flag in zip(columns, flags, strict=True)]
            yield Part(inputs, None if labels is None else labels[rows], names)

    return Samples(count, labels is not None, False, flags, parts, notes)


def _column(path: Path, arrays: Mapping[str, Array], spec: TensorSpec, alone: bool) -> Array:
    found = arrays.get(spec.name)
    if found is None and alone:
        found = next((arrays[name] for name in ("images", "x") if name in arrays), None)
    if found is None:
        raise DataError(f"{path} lacks input {spec.name!r}; it holds: {', '.join(arrays) or 'nothing'}")
    if found.ndim != len(spec.shape) or found.dtype.kind != spec.dtype.kind:
        want = "x".join("N" if d is None else str(d) for d in spec.shape) or "scalar"
        raise DataError(
            f"{path}: {spec.name!r} is {found.dtype} of shape {found.shape}, the model takes {spec.dtype} {want}"
        )
    return found


def _pictures(path: Path, inputs: Sequence[TensorSpec], notes: PictureNotes, batch: int, limit: int | None) -> Samples:
    from utils.datasets import load_dataset

    if len(inputs) != 1 or len(inputs[0].shape) != 4 or inputs[0].shape[1] != 3:
        raise DataError(f"{path}: pictures do not fit the model's inputs; pass an .npz file with one array per input")
    height, width = (size or side for size, side in zip(inputs[0].shape[2:], notes.crop, strict=True))
    how = notes.scaled((height, width))
    resize, crop = how.pop("resize_shape"), how.pop("crop_shape")
    dataset = load_dataset(path)
    count = min(len(dataset), limit or len(dataset))

    def parts(changes: Mapping[str, Any]) -> Iterator[Part]:
        for first, found in zip(range(0, count, batch), dataset.batches(batch), strict=False):
            take = min(len(found.names), count - first)
            array = preprocess_like(found.samples[:take], resize, crop, **how, **changes)
            yield Part([array], None if found.labels is None else found.labels[:take], found.names[:take])

    return Samples(count, dataset.labels is not None, True, [True], parts, notes)


def preprocess_like(
    pictures: Sequence[object],
    resize: int | tuple[int, int],
    crop: tuple[int, ...],
    *,
    filter_name: str = "",
    squash: bool = False,
    **scale: Any,
) -> Array:
    """Preprocess pictures as the classification models here do, or with one thing done otherwise.

    Args:
        pictures: paths. resize: short side in pixels, or height and width. crop: height and width.
        filter_name: another filter of Pillow's to resize with, such as ``NEAREST``.
        squash: resize to the crop's size at once, whatever that does to the picture's proportions.
        scale: ``mean``, ``std`` and ``interpolation`` of the model; ImageNet's usual ones without them.

    Returns:
        N x 3 x height x width, float32.
    """
    from utils.preprocess.pytorch.classification import preprocess

    how = scale | ({"interpolation": filter_name.lower()} if filter_name else {})
    files: list[Any] = list(pictures)
    return preprocess(files, "float32", crop if squash else resize, crop, **how)
