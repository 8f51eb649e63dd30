"""Where the classes that a data set names lie among a model's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine import Array, DataError, nearest

SHOWN = 5
"""Names that an error lists."""

RENAME = "rename it, or use a model that knows it"


def places(names: Sequence[str], labels: Sequence[str] | None) -> Array:
    """Return the model's class of each name, int64; the names' own order where the model has no labels.

    Raises:
        DataError: a name is not among the model's labels.
    """
    found = found_places(names, labels)
    if (found < 0).any():
        raise unknown([name for name, place in zip(names, found.tolist(), strict=True) if place < 0], labels or ())
    return found


def found_places(names: Sequence[str], labels: Sequence[str] | None) -> Array:
    """Return the model's class of each name, int64, -1 where it has none; the names' own order without labels."""
    if labels is None:
        return np.arange(len(names), dtype=np.int64)
    known = {label: place for place, label in enumerate(labels)}
    return np.array([known.get(name, -1) for name in names], np.int64)


def unknown(
    missing: Sequence[str], labels: Sequence[str], fix: str = "rename it, or use a model that knows it"
) -> DataError:
    """Return the error of classes of a data set that the model does not have."""
    if len(missing) == 1:
        what = f"class {missing[0]!r} of the data set is"
    else:
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        what = f"{len(missing)} classes of the data set ({', '.join(map(repr, missing[:SHOWN]))}{more}) are"
    return DataError(f"{what} not among the model's {len(labels)} labels{hint(missing[0], labels)}; {fix}")


def hint(name: str, labels: Sequence[str]) -> str:
    """Return a part of a sentence that names what was probably meant, or the first labels."""
    near = nearest(name, labels)
    first = f" ({', '.join(labels[:5])}{', ...' if len(labels) > 5 else ''})"
    return first if near is None else f" (did you mean {near!r}?)"
