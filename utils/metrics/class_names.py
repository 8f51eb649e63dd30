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


def outputs_of(
    folders: Sequence[str], count: int, labels: Sequence[str] | None = None, class_ids: Sequence[str] | None = None
) -> Array:
    """Return the model's output of each class folder, int64.

    Folders are told by WordNet ids where all their names are such, else by the model's labels where all are among
    them. Otherwise there must be as many as outputs, and their sorted order counts, as in torchvision's
    ``ImageFolder``.

    Args:
        folders: names of the class folders, sorted.
        count: outputs of the model. labels, class_ids: what it stores of them.

    Raises:
        DataError: which is which cannot be told.
    """
    ids = class_ids or (_imagenet() if count == _IMAGENET else None)
    for kind, known in (("classes' WordNet ids", ids), ("labels", labels)):
        if known is None or len(known) != count:
            continue
        among = [name for name in folders if name in set(known)]
        if among and (len(among) < len(folders) or any(list(known).count(name) > 1 for name in folders)):
            name = next((name for name in folders if name not in known or list(known).count(name) > 1), "")
            what = "stands twice" if name in known else "is not"
            raise DataError(f"class folder {name!r} {what} among the model's {kind}, as others are; {_TELL}")
        if among:
            return places(folders, known)
    if len(folders) != count:
        raise DataError(f"{len(folders)} class folders, and the model has {count} classes: which are they? {_TELL}")
    if labels is not None and all(name.isdecimal() for name in folders) and folders != sorted(folders, key=int):
        raise DataError(f"class folders are numbers that sort otherwise as text ({', '.join(folders[:3])}); {_TELL}")
    return np.arange(count, dtype=np.int64)


_IMAGENET = 1000
_TELL = "name the folders as the model's labels or by WordNet ids, or write a val.txt with 'path index' lines"


def _imagenet() -> Sequence[str]:
    from utils.imagenet_classes import WNIDS  # only for such folders

    return WNIDS


class WrongLabelError(DataError):
    """A target is no class of the model; ``place`` is that of its sample among those given."""

    def __init__(self, text: str, place: int) -> None:
        super().__init__(text)
        self.place = place


def hint(name: str, labels: Sequence[str]) -> str:
    """Return a part of a sentence that names what was probably meant, or the first labels."""
    near = nearest(name, labels)
    first = f" ({', '.join(labels[:5])}{', ...' if len(labels) > 5 else ''})"
    return first if near is None else f" (did you mean {near!r}?)"
