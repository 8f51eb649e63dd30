"""Where the classes that a data set names lie among a model's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine import Array, DataError, nearest


def places(names: Sequence[str], labels: Sequence[str] | None) -> Array:
    """Return the model's class of each name, int64; the names' own order where the model has no labels.

    Raises:
        DataError: a name is not among the model's labels.
    """
    if labels is None:
        return np.arange(len(names), dtype=np.int64)
    known = {label: place for place, label in enumerate(labels)}
    missing = next((name for name in names if name not in known), None)
    if missing is not None:
        raise DataError(
            f"class {missing!r} of the data set is not among the model's {len(labels)} labels{hint(missing, labels)}; "
            "rename it, or use a model that knows it"
        )
    return np.array([known[name] for name in names], np.int64)


def hint(name: str, labels: Sequence[str]) -> str:
    """Return a part of a sentence that names what was probably meant, or the first labels."""
    near = nearest(name, labels)
    first = f" ({', '.join(labels[:5])}{', ...' if len(labels) > 5 else ''})"
    return first if near is None else f" (did you mean {near!r}?)"
