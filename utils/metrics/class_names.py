"""Map the class names of a data set to a model's classes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

import numpy as np

from engine import Array, DataError
from tecoinfer_modelzoo.text import nearest

SHOWN = 5
"""Maximum number of names in an error message."""

VOC_TO_COCO = {
    "aeroplane": "airplane",
    "diningtable": "dining table",
    "motorbike": "motorcycle",
    "pottedplant": "potted plant",
    "sofa": "couch",
    "tvmonitor": "tv",
}
"""COCO's names of classes that VOC names differently."""


def places(names: Sequence[str], labels: Sequence[str] | None) -> Array:
    """Return the model's class of each name, int64; without labels, the names' own order.

    Raises DataError if a name is not among the model's labels.
    """
    found = found_places(names, labels)
    if (found < 0).any():
        raise unknown([name for name, place in zip(names, found.tolist(), strict=True) if place < 0], labels or ())
    return found


def found_places(names: Sequence[str], labels: Sequence[str] | None) -> Array:
    """Return the model's class of each name, int64, -1 if it has none; without labels, the names' own order."""
    if labels is None:
        return np.arange(len(names), dtype=np.int64)
    known = {label: place for place, label in enumerate(labels)}
    return np.array([known.get(name, -1) for name in names], np.int64)


def unknown(missing: Sequence[str], labels: Sequence[str], fix: str = "rename it, or use another model") -> DataError:
    """Return the error for classes of a data set that the model does not have."""
    if len(missing) == 1:
        what = f"class {missing[0]!r} of the data set is"
    else:
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        what = f"{len(missing)} classes of the data set ({', '.join(map(repr, missing[:SHOWN]))}{more}) are"
    return DataError(f"{what} not among the model's {len(labels)} labels{hint(missing[0], labels)}; {fix}")


def outputs_of(
    folders: Sequence[str], count: int, labels: Sequence[str] | None = None, class_ids: Sequence[str] | None = None
) -> Array:
    """Return the model's output of each class folder, int64: the first value of :func:`decided_outputs`."""
    return decided_outputs(folders, count, labels, class_ids)[0]


def decided_outputs(
    folders: Sequence[str], count: int, labels: Sequence[str] | None = None, class_ids: Sequence[str] | None = None
) -> tuple[Array, str]:
    """Return the model's output of each class folder, int64, and a warning if the mapping is ambiguous.

    The first matching rule applies:

    1. Names are WordNet ids stored in the model, or ImageNet's if it has 1000 outputs.
    2. Names are the model's labels, up to case, separators and leading zeros.
    3. Names are integers: the classes themselves, from 0.
    4. There are as many folders as outputs: they are in sorted order, as in torchvision's ``ImageFolder``.

    Args:
        folders: names of the class folders, sorted.
        count: number of outputs of the model.
        labels, class_ids: labels and WordNet ids stored in the model.

    Raises:
        DataError: no rule matches, or one matches only some of the names.
    """
    ids = class_ids or (_imagenet() if count == _IMAGENET else None)
    for kind, known in (("classes' WordNet ids", ids), ("labels", labels)):
        found = _among(folders, known, kind) if known is not None and len(known) == count else None
        if found is not None:
            return found
    numbers = [name for name in folders if _NUMBER.fullmatch(name)]
    if numbers and len(numbers) < len(folders):
        other = next(name for name in folders if name not in numbers)
        raise DataError(f"class folder {numbers[0]!r} is a number, but {other!r} is not: unclear classes; {_FIX}")
    if numbers:
        return _by_number(folders, count)
    if len(folders) != count:
        raise DataError(f"{len(folders)} class folders, but the model has {count} classes: unclear classes; {_FIX}")
    return np.arange(count, dtype=np.int64), _line_on_order(folders, labels)


def _among(folders: Sequence[str], known: Sequence[str], kind: str) -> tuple[Array, str] | None:
    """Return the classes of the names, and a warning if a spelling differs; ``None`` if no name is known."""
    exact, alike = _places_by(known, str), _places_by(known, spelling)
    found = [exact.get(name) or alike.get(spelling(name), []) for name in folders]
    if not any(found):
        return None
    for name, spots in zip(folders, found, strict=True):
        if len(spots) != 1:
            what = f"is not among the model's {kind}, but others are" if not spots else f"{_TWICE} {kind}"
            raise DataError(f"class folder {name!r} {what}; {_FIX}")
    places = [spots[0] for spots in found]
    for i, place in enumerate(places):
        if place in places[:i]:
            first = folders[places.index(place)]
            raise DataError(f"class folders {first!r} and {folders[i]!r} are both {known[place]!r}; {_FIX}")
    other = next((i for i, name in enumerate(folders) if name not in exact), None)
    if other is None:
        return np.array(places, np.int64), ""
    line = f"class folders match the model's {kind} up to case, separators and leading zeros: "
    line += f"{folders[other]!r} is {known[places[other]]!r}"
    return np.array(places, np.int64), line


def _places_by(known: Sequence[str], key: Callable[[str], str]) -> dict[str, list[int]]:
    """Return the indices of the names, grouped by a key."""
    found: dict[str, list[int]] = {}
    for place, name in enumerate(known):
        found.setdefault(key(name), []).append(place)
    return found


def spelling(name: str) -> str:
    """Return a name without differences in case, separators, leading zeros and Unicode forms."""
    words = re.sub(r"[\s_\-]+", " ", unicodedata.normalize("NFKC", name).casefold()).strip()
    return words.lstrip("0") or "0" if _NUMBER.fullmatch(words) else words


def _by_number(folders: Sequence[str], count: int) -> tuple[Array, str]:
    """Return the classes given by the names, and a warning if another mapping is as likely.

    Raises DataError if a number is not a class of the model, or two names are the same number.
    """
    numbers = [int(name) for name in folders]
    for i, (name, number) in enumerate(zip(folders, numbers, strict=True)):
        if number >= count:
            shifted = min(numbers) > 0 and max(numbers) == count
            fix = f"they count from 1: rename them to 0 to {count - 1}, or write a val.txt" if shifted else _FIX
            raise DataError(
                f"class folder {name!r} is a number, but the model has {count} classes (0 to {count - 1}); {fix}"
            )
        if number in numbers[:i]:
            raise DataError(f"class folders {folders[numbers.index(number)]!r} and {name!r} are both class {number}")
    as_text = [i for i, name in enumerate(sorted(folders)) if int(name) != i]
    line = ""
    if as_text and len(folders) == count:
        name = sorted(folders)[as_text[0]]
        line = f"{name!r} is class {int(name)}; ImageFolder sorts names as text, which makes it class {as_text[0]}"
    elif len(folders) < count:
        line = f"{len(folders)} of the model's {count} classes, {folders[0]!r} is class {numbers[0]}"
        line += "; do they count from 1?" if 0 not in numbers else ""
    if line:
        line = f"class folders are numbers and used as the model's classes: {line} (a val.txt overrides this)"
    return np.array(numbers, np.int64), line


def _line_on_order(folders: Sequence[str], labels: Sequence[str] | None) -> str:
    """Return a warning if the sorted order of names may differ from that of the outputs."""
    taken = "their sorted order is used as the order of the model's outputs, as by ImageFolder (a val.txt"
    if labels is not None:
        return f"class folders ({', '.join(folders[:3])}) are not among the model's labels: {taken} overrides this)"
    by_number = sorted(folders, key=_natural)
    name = next((one for one, other in zip(folders, by_number, strict=True) if one != other), None)
    if name is None:
        return ""
    return f"class folder {name!r} has another position by number than as text: {taken} overrides this)"


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts the numbers in names by their value."""
    return [(int(part), "") if _NUMBER.fullmatch(part) else (-1, part) for part in re.split(r"([0-9]{1,18})", name)]


_NUMBER = re.compile("[0-9]{1,18}")
_IMAGENET = 1000
_TWICE = "occurs twice among the model's"
_FIX = "name the folders as the model's labels or by WordNet ids, or write a val.txt with 'path index' lines"


def _imagenet() -> Sequence[str]:
    from utils.imagenet_classes import WNIDS  # needed only for these folders

    return WNIDS


class WrongLabelError(DataError):
    """A target that is not a class of the model; ``place`` is the index of its sample."""

    def __init__(self, text: str, place: int) -> None:
        super().__init__(text)
        self.place = place


def hint(name: str, labels: Sequence[str]) -> str:
    """Return a part of a message with the most similar label, or the first labels."""
    near = nearest(name, labels)
    first = f" ({', '.join(labels[:5])}{', ...' if len(labels) > 5 else ''})"
    return first if near is None else f" (did you mean {near!r}?)"
