"""Samples without a task: rows of an ``.npz`` file, or images preprocessed for a classifier."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import Array, DataError, TensorSpec
from tecoinfer_modelzoo.text import shape_text
from toolkit.fix.records import Feed, RawMeasure, metric_named, needs_labels
from toolkit.fix.samples import Samples
from utils.datasets.base import pick
from utils.stored import ImageNotes, ModelMetadata

if TYPE_CHECKING:
    from utils.metrics.classification import ClassFolders

LABELS = ("labels", "y")
"""Names of an ``.npz`` file's array of labels."""


class ArraySamples(Samples):
    """Rows of arrays, or images preprocessed for a classifier.

    ``made`` yields the parts; it accepts keyword arguments that change the preprocessing of images; ``notes`` is that
    in the model's metadata; ``folders``: class folders, if the targets are indices of these. Others: as the attributes.
    """

    def __init__(
        self,
        count: int,
        labelled: bool,
        specs: Sequence[TensorSpec],
        batch: int,
        made: Callable[..., Iterator[Feed]],
        notes: ImageNotes | None = None,
        images: bool = False,
        folders: ClassFolders | None = None,
    ) -> None:
        super().__init__(count, labelled, specs, batch)
        self.folders = folders
        self._made, self.images, self.notes = made, images, notes or ImageNotes()

    def parts(self, **changes: Any) -> Iterator[Feed]:
        """Yield the parts in order."""
        return self._made(**changes)

    def measure(self, metric: str | None) -> RawMeasure:
        """Return a metric of raw outputs, top1 by default."""
        name = metric or "top1"
        metric_named(name)
        if needs_labels(name) and not self.labelled:
            where = f"{self.where}: " if self.where else ""
            raise DataError(f"{where}metric {name} needs labels, but the data has none; use --metric agree or close")
        return RawMeasure(name, folders=self.folders)

    def chosen(self, indices: Sequence[int]) -> list[Feed]:
        """Return single samples as one part, in data set order."""
        axes, wanted = [spec.batch_axis for spec in self.specs], set(indices)
        first, found = 0, []
        for part in self:
            rows = [row for row in range(len(part.names)) if first + row in wanted]
            first += len(part.names)
            if rows:
                found.append(_picked(part, rows, axes))
        return [_joined(found, axes)]


def _picked(part: Feed, rows: Sequence[int], axes: Sequence[int | None]) -> Feed:
    """Return some samples of a part."""
    both = zip(part.inputs, axes, strict=True)
    inputs: list[Array] = [array if axis is None else array.take(rows, axis) for array, axis in both]
    return Feed(inputs, pick(part.targets, rows), pick(part.names, rows), pick(part.units, rows))


def _joined(parts: Sequence[Feed], axes: Sequence[int | None]) -> Feed:
    """Return the samples of several parts as one."""
    columns = zip(zip(*(part.inputs for part in parts), strict=True), axes, strict=True)
    known = [part.targets for part in parts if part.targets is not None]
    names = [name for part in parts for name in part.names]
    inputs = [column[0] if axis is None else np.concatenate(column, axis) for column, axis in columns]
    return Feed(inputs, np.concatenate(known) if known else None, names)


def load_samples(
    path: Path, inputs: Sequence[TensorSpec], metadata: Mapping[str, str], batch: int, limit: int | None = None
) -> ArraySamples:
    """Open a data set.

    Args:
        path: an ``.npz`` file with one array per input name (``images`` or ``x`` for a single input) and optional
            ``labels``, where an input without a batch axis has one array for all samples; or images, as for
            :func:`utils.datasets.load_dataset`.
        inputs: of the model. batch: samples per part. limit: number of samples, from the beginning.
        metadata: of the model; images are preprocessed accordingly (:class:`utils.stored.ModelMetadata`).

    Raises DataError: the data is missing or does not fit the model; ModelError: the metadata on images is invalid.
    """
    stored = ModelMetadata(metadata)
    if path.suffix == ".npz":
        return _rows(path, inputs, stored.image, batch, limit)
    return _images(path, inputs, stored, batch, limit)


def _rows(path: Path, inputs: Sequence[TensorSpec], notes: ImageNotes, batch: int, limit: int | None) -> ArraySamples:
    from utils.arrays import read_npz

    arrays = read_npz(path)
    labels = next((arrays[name] for name in LABELS if name in arrays), None)
    if labels is not None and labels.ndim == 0:
        raise DataError(f"{path}: 'labels' is a single value; provide one label per sample")
    axes = [spec.batch_axis for spec in inputs]
    if all(axis is None for axis in axes):
        raise DataError("no input of the model has a batch axis; export the model with one to use a data set")
    found = [_column(path, arrays, spec, alone=len(inputs) == 1) for spec in inputs]
    columns = [_taken(array, axis, slice(limit)) for array, axis in zip(found, axes, strict=True)]
    count = _count(path, columns, axes, None if labels is None else labels[:limit])

    def parts() -> Iterator[Feed]:
        for first in range(0, count, batch):
            rows = slice(first, min(first + batch, count))
            names = [f"{path.name}[{i}]" for i in range(rows.start, rows.stop)]
            fed = [_taken(column, axis, rows) for column, axis in zip(columns, axes, strict=True)]
            yield Feed(fed, None if labels is None else labels[rows], names)

    return ArraySamples(count, labels is not None, inputs, batch, parts, notes)


def _count(path: Path, columns: Sequence[Array], axes: Sequence[int | None], labels: Array | None) -> int:
    """Return the number of samples, which must be equal for all arrays."""
    counts: set[int] = {column.shape[axis] for column, axis in zip(columns, axes, strict=True) if axis is not None}
    counts |= {len(labels)} if labels is not None else set()
    if len(counts) != 1 or 0 in counts:
        raise DataError(f"{path}: arrays have {sorted(counts)} samples; all must have the same number, at least 1")
    return counts.pop()


def _taken(array: Array, axis: int | None, rows: slice) -> Array:
    """Return a slice of the samples of an array; an array without a batch axis is returned unchanged."""
    return array if axis is None else array[(slice(None),) * axis + (rows,)]


def _column(path: Path, arrays: Mapping[str, Array], spec: TensorSpec, alone: bool) -> Array:
    names = (spec.name, "images", "x") if alone else (spec.name,)
    found = next((arrays[name] for name in names if name in arrays), None)
    if found is None:
        raise DataError(f"{path} lacks input {spec.name!r}; it contains: {', '.join(arrays) or 'nothing'}")
    if found.ndim != len(spec.shape) or found.dtype.kind != spec.dtype.kind:
        what = f"{found.dtype} of shape {found.shape}"
        raise DataError(f"{path}: {spec.name!r} is {what}, the model takes {spec.dtype} {shape_text(spec.shape)}")
    return found


def _images(
    path: Path, inputs: Sequence[TensorSpec], stored: ModelMetadata, batch: int, limit: int | None
) -> ArraySamples:
    from utils.datasets import load_dataset
    from utils.metrics.classification import ClassFolders

    notes = stored.image
    if len(inputs) != 1 or len(inputs[0].shape) != 4 or inputs[0].shape[1] != 3:
        raise DataError(f"{path}: images do not fit the model's inputs; pass an .npz file with one array per input")
    how = notes.fitted(inputs[0].shape[2:])
    resize, crop = how.pop("resize_shape"), how.pop("crop_shape")
    dataset = load_dataset(path)
    count = min(len(dataset), limit or len(dataset))

    def parts(**changes: Any) -> Iterator[Feed]:
        for first, found in zip(range(0, count, batch), dataset.batches(batch), strict=False):
            take = min(len(found.names), count - first)
            array = preprocess_like(found.samples[:take], resize, crop, **how, **changes)
            yield Feed([array], None if found.targets is None else found.targets[:take], found.names[:take])

    labelled, names = dataset.batch([0]).targets is not None, dataset.notes.get("classes")
    folders = None if names is None else ClassFolders(names, stored.labels, stored.json("class_ids"))
    return ArraySamples(count, labelled, inputs, batch, parts, notes, images=True, folders=folders)


def preprocess_like(
    images: Sequence[object],
    resize: int | tuple[int, int],
    crop: tuple[int, ...],
    *,
    filter_name: str = "",
    squash: bool = False,
    **scale: Any,
) -> Array:
    """Preprocess images as the zoo's classification models do, optionally with one change: N x 3 x height x width,
    float32.

    Args:
        images: paths. resize: short side in pixels, or height and width. crop: height and width.
        filter_name: another Pillow filter for resizing, such as ``NEAREST``.
        squash: resize to the size of the crop, without keeping the aspect ratio.
        scale: ``mean``, ``std`` and ``interpolation`` of the model; by default those of ImageNet.
    """
    from utils.preprocess.pytorch.classification import preprocess

    how = scale | ({"interpolation": filter_name.lower()} if filter_name else {})
    files: list[Any] = list(images)
    return preprocess(files, "float32", crop if squash else resize, crop, **how)
