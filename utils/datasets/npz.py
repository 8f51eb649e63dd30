"""Data sets in one ``.npz`` file: an array of samples and, optionally, their labels."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from pathlib import Path

import numpy as np

from engine import Array, DataError
from utils.datasets.samples import TableDataset
from utils.datasets.table import Listing, prefix_of

_FIX = "save with np.savez(file, images=..., labels=...)"


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
