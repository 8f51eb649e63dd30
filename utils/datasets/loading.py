"""Load any kind of data set: :func:`load_dataset` picks the loader by the form of the path."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine import Array, DataError
from tecoinfer_modelzoo import expanded
from utils.datasets.base import check_exists
from utils.datasets.folders import class_folders, flat_folder, has_class_folders, single_image
from utils.datasets.label_file import load_label_file
from utils.datasets.samples import TableDataset
from utils.datasets.table import Listing, prefix_of

if TYPE_CHECKING:
    from utils.datasets.image.imagenet import Layout

LABEL_FILE = "val.txt"
"""A folder that has a file of this name is loaded through it."""

_FIX = "save with np.savez(file, images=..., labels=...)"


def load_dataset(path: str | os.PathLike[str], *, labels: str | os.PathLike[str] | None = None) -> TableDataset:
    """Load the data set at a path.

    A folder with a ``val.txt`` is read through this label file; a folder whose subfolders hold images has one class per
    subfolder; any other folder is a flat folder of unlabelled images. A ``.txt`` file is a label file, an ``.npz`` file
    holds arrays, any other file is a single image. ImageNet's validation images next to its development kit or Kaggle's
    table get the labels listed there (:mod:`utils.datasets.image.imagenet`). ``labels`` is a label file for the images
    in the folder ``path``, with paths relative to that folder. Raises DataError, which names the path and the expected
    content, if the path has no usable data.
    """
    path = expanded(path)
    check_exists(path)
    if labels is not None:
        if not path.is_dir():
            raise DataError(f"label file {labels} was given for {path}, which is not a folder; pass the image folder")
        return load_label_file(expanded(labels), root=path)
    return _load_folder(path) if path.is_dir() else _load_file(path)


def _load_folder(path: Path) -> TableDataset:
    # An explicit list comes first: the usual ImageNet layout is val.txt next to one folder, val/, of all images.
    if (path / LABEL_FILE).is_file():
        return load_label_file(path / LABEL_FILE, _images_of(path))
    if (layout := _imagenet(path)) is not None:
        from utils.datasets.image.imagenet import load_imagenet

        return load_imagenet(layout)
    return class_folders(path) if has_class_folders(path) else flat_folder(path)


def _imagenet(path: Path) -> Layout | None:
    """Return the layout of ImageNet in a folder; ``None`` if there is none."""
    marks = ("ILSVRC", "LOC_", "meta.bin", "val")
    with os.scandir(path) as entries:
        if not any(entry.name.startswith(marks) for entry in entries):
            return None
    from utils.datasets.image.imagenet import find_layout

    return find_layout(path)


def _images_of(path: Path) -> Path:
    """Return the folder that paths in ``val.txt`` are relative to: its own, or ``val`` next to it (Caffe's lists)."""
    with (path / LABEL_FILE).open("rb") as stream:
        first = next((line.split() for line in stream if line.strip() and not line.startswith(b"#")), [])
    name = os.fsdecode(first[0]) if first else ""
    is_plain = bool(name) and os.sep not in name
    is_beside = is_plain and not os.path.exists(path / name) and os.path.isfile(path / "val" / name)
    return path / "val" if is_beside else path


def _load_file(path: Path) -> TableDataset:
    if path.suffix.lower() in (".tar", ".gz", ".tgz", ".zip"):
        folder = path.with_suffix("")
        raise DataError(
            f"{path}: is an archive; unpack it (mkdir -p {folder} && tar xf {path} -C {folder}) and pass the folder"
        )
    loaders = {".txt": load_label_file, ".npz": load_npz}
    return loaders.get(path.suffix.lower(), single_image)(path)


def load_npz(file: Path) -> TableDataset:
    """Load the arrays ``images`` (or ``x``), shape N x ..., and optionally ``labels`` (or ``y``), N integers.

    The samples are the rows of the first array, in its dtype. Pickled content is never loaded. Raises DataError if the
    file is not a readable ``.npz``, has no samples, or its labels do not match the samples.
    """
    from utils.arrays import read_npz  # imported here because most runs do not need it

    arrays = read_npz(file, ("images", "x", "labels", "y"), fix="save it again with np.savez", fix_single=_FIX)
    rows = arrays.get("images", arrays.get("x"))
    if rows is None:
        found = ", ".join(arrays) or "nothing"
        raise DataError(f"{file}: no array 'images' or 'x' (found: {found}); {_FIX}")
    if rows.ndim == 0 or len(rows) == 0:
        raise DataError(f"{file}: array of samples has shape {rows.shape}; it needs N x ... with at least one sample")
    labels = arrays.get("labels", arrays.get("y"))
    values = repeat(None, len(rows)) if labels is None else _checked(labels, len(rows), file)
    listing, prefix = Listing(), prefix_of(file.parent)
    for row, label in enumerate(values):
        listing.add(prefix, f"{file.name}[{row}]", label)
    return TableDataset(listing.table(), rows=rows)


def _checked(labels: Array, count: int, file: Path) -> Iterable[int]:
    if labels.shape != (count,):
        raise DataError(f"{file}: labels have shape {labels.shape}, the {count} samples need ({count},)")
    if labels.dtype.kind not in "iu":
        raise DataError(f"{file}: labels have dtype {labels.dtype}; save integers, labels.astype(np.int64)")
    for value in (labels.min(), labels.max()):
        if not 0 <= int(value) <= np.iinfo(np.int64).max:
            raise DataError(f"{file}: label {value} is not a class index; labels are integers of at least 0")
    return map(int, labels)
