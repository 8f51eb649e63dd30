"""Rename the classes of a data set to the names that a model uses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from engine import DataError
from tecoinfer_modelzoo.files import text_of
from tecoinfer_modelzoo.text import did_you_mean, one_line
from utils.datasets.image.objects import CATEGORIES, CATEGORY_IDS, COUNTS, BoxedImages


def read_renames(file: Path) -> dict[str, str]:
    """Read the model's name of each class: lines ``aeroplane = airplane``, or a JSON object of such names.

    Empty lines, and lines that start with ``#``, are skipped. Raises DataError if the file cannot be read or has
    another format; the message names the line.
    """
    try:
        text = text_of(file)
    except (OSError, ValueError) as error:
        raise DataError(f"labels file {file} cannot be read ({one_line(error)}); check --labels") from error
    return _of_json(text, file) if text.lstrip().startswith("{") else _of_lines(text, file)


def _of_json(text: str, file: Path) -> dict[str, str]:
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"labels file {file} is not JSON ({one_line(error)}); correct it") from error
    if not all(isinstance(value, str) for value in found.values()):
        raise DataError(f'labels file {file}: every value must be a string, as in {{"aeroplane": "airplane"}}')
    return dict(found)


def _of_lines(text: str, file: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        name, equals, label = (part.strip() for part in line.partition("="))
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not equals or not name or not label:
            raise DataError(f"labels file {file}, line {number}: expected 'name in the data set = label of the model'")
        if name in found:
            raise DataError(f"labels file {file}, line {number}: {name!r} is listed twice; keep one line")
        found[name] = label
    return found


def renamed(dataset: BoxedImages, names: Mapping[str, str], file: Path) -> BoxedImages:
    """Return the data set with renamed classes; classes that get the same name are merged.

    ``names`` maps old to new names, other classes keep theirs; ``file`` is their source in errors. Raises DataError if
    a name is not a class of the data set.
    """
    if not dataset.targets:
        return dataset
    old = dataset.targets[0].categories
    strange = next((name for name in names if name not in old), None)
    if strange is not None:
        hint = did_you_mean(strange, old)
        raise DataError(f"labels file {file}: {strange!r} is not a class of {dataset.files[0]};{hint or ' remove it'}")
    new = tuple(dict.fromkeys(names.get(name, name) for name in old))
    places = np.array([new.index(names.get(name, name)) for name in old], np.int64)
    targets = [real._replace(classes=places[real.classes], categories=new) for real in dataset.targets]
    counts = np.bincount(places, np.array(dataset.notes[COUNTS], float), minlength=len(new)).astype(int).tolist()
    notes = {**dataset.notes, CATEGORIES: new, COUNTS: counts}
    if CATEGORY_IDS in notes:  # merged classes get the id of the first of them
        first = np.unique(places, return_index=True)[1]
        notes[CATEGORY_IDS] = tuple(notes[CATEGORY_IDS][place] for place in first)
    return BoxedImages(dataset.samples, targets, dataset.files[0], dataset.rejected, notes)
