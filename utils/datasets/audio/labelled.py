"""Recordings with classes: ESC-50, UrbanSound8K, Speech Commands, FSD50K, tables, JSON lists, a folder per class."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine import ConfigError, DataError
from tecoinfer_modelzoo.files import utf8_text
from utils.datasets.audio.lists import LISTS, Listed, Row, of_folder
from utils.datasets.audio.recordings import Recording, Sounds, load_sounds
from utils.datasets.base import Rejected, check_exists
from utils.datasets.folders import walk
from utils.datasets.text.tables import Table, read_table
from utils.preprocess.audio.reading import is_sound

FILES = ("filename", "slice_file_name", "fname", "file", "path", "audio", "audio_filepath", "name")
LABELS = ("category", "label", "class", "labels")
NUMBERS = ("target", "classid", "label_id")
SOURCES = ("src_file", "fsid", "speaker", "source", "unit")
"""Names of the columns of a table in any case: recordings, classes, class numbers, and what a recording is part of."""

FOLD = "fold"

TABLES = ("meta", "metadata")
"""Folders of a data set in which its table is."""

SPLITS = ("testing", "validation", "training", "all")
"""Parts of Speech Commands: those of its two lists, all other recordings, or all."""

NO_HASH = "_nohash_"
"""In a file name of Speech Commands between the speaker and the number of the recording."""

NO_CLASS = "_background_noise_"
"""Folder of Speech Commands with recordings that have no class."""


def load_labelled(
    paths: Mapping[str, Path],
    *,
    folds: Sequence[int] = (),
    split: str = SPLITS[0],
    units: str | None = None,
) -> Sounds:
    """Load recordings and their classes, without reading any sound.

    Args:
        paths: ``{"data": path}``, or ``{"list": table, "audio": folder}`` for a table apart from its recordings.
        folds: numbers of the column ``fold`` to take; empty: all.
        split: part of Speech Commands, one of :data:`SPLITS`.
        units: as for :func:`~.recordings.load_sounds`; ``None``: the source of a recording (Speech Commands' speaker,
            ESC-50's ``src_file``, UrbanSound8K's ``fsID``) if all have one, else the recording.

    Layouts, the first that fits:

    - a folder with ``testing_list.txt``, and a folder per word: Speech Commands.
    - a folder with one ``.csv`` in ``meta/`` or ``metadata/``: ESC-50, UrbanSound8K.
    - a table (``.csv``, ``.tsv``) with columns of :data:`FILES` and :data:`LABELS`.
    - everything that :func:`~.recordings.load_sounds` reads with a ``label``: JSON lines, a folder per class; without
      classes also a recording, or a folder of them.

    A sound may have several classes: a list in a JSON list, or a text with commas or semicolons in a table; they are
    split by the metric. The data set's ``notes`` have ``classes``, the names of all classes: by number if the table has
    a column of :data:`NUMBERS`, else sorted.

    Raises:
        DataError: no recording can be used, or the layout is not complete. ConfigError: a name of the paths is unknown.
    """
    if set(paths) == {"list", "audio"}:
        check_exists(*paths.values())
        found, classes = _of_table(paths["list"], paths["audio"], folds)
    elif set(paths) != {"data"}:
        raise ConfigError("pass recordings as --data_path PATH, or as --data_path list=TABLE audio=FOLDER")
    else:
        check_exists(paths["data"])
        found, classes = _of_path(paths["data"], folds, split)
    if units is None:
        units = "speaker" if all("speaker" in row.fields for row in found.rows) else "recording"
    dataset = Sounds(found.rows, found.source, found.rejected, "label", units)
    if not len(dataset):
        where, reason = dataset.rejected[0] if dataset.rejected else (found.source, "it lists none")
        raise DataError(
            f"{found.source}: none of {len(dataset.rejected)} recordings can be used, the first is {where}: {reason}; "
            "check the data, or pass --data_path list=TABLE audio=FOLDER"
        )
    if dataset.targets is not None:
        dataset.notes = {"classes": classes or _classes(dataset.targets)}
    return dataset


def _classes(targets: Sequence[Any]) -> list[str]:
    return sorted({str(one) for each in targets for one in (each if isinstance(each, list) else [each])})


def _of_path(path: Path, folds: Sequence[int], split: str) -> tuple[Listed, list[str]]:
    if path.is_dir():
        if (path / "testing_list.txt").is_file():
            return _speech_commands(path, split), []
        tables = sorted(one for folder in TABLES for one in (path / folder).glob("*.csv"))
        if len(tables) > 1:
            names = ", ".join(one.name for one in tables)
            raise DataError(f"{path}: {len(tables)} tables ({names}); pass one as --data_path list=TABLE audio={path}")
        if tables:
            return _of_table(tables[0], path, folds)
        return _named_alike(of_folder(path, "label", None)), []
    if path.suffix.lower() in (".csv", ".tsv"):
        return _of_table(path, path.parent, folds)
    if path.name.endswith(LISTS):
        found = load_sounds(path, target=None)
        rows = [Row(one, fields) for one, fields in zip(found.samples, found.fields, strict=True)]
        return _named_alike(Listed(rows, list(found.rejected), path)), []
    sounds = load_sounds(path, target=None)
    return Listed([Row(one, {}) for one in sounds.samples], list(sounds.rejected), path), []


def _named_alike(found: Listed) -> Listed:
    """Return the recordings with the value of ``labels``, another usual key of JSON lists, as ``label``."""
    rows = [
        Row(row.recording, {**row.fields, "label": row.fields["labels"]})
        if "labels" in row.fields and "label" not in row.fields
        else row
        for row in found.rows
    ]
    return Listed(rows, found.rejected, found.source)


def _speech_commands(folder: Path, split: str) -> Listed:
    lists = {name: folder / f"{name}_list.txt" for name in SPLITS[:2]}
    listed = {name: _lines(file) if file.is_file() else [] for name, file in lists.items()}
    rejected = list[Rejected]()
    if split in listed:
        if not lists[split].is_file():
            raise DataError(f"{folder}: has no {lists[split].name}; add it, or use --split all")
        names = listed[split]
    else:
        taken = {name for each in listed.values() for name in each} if split == "training" else set[str]()
        names = [name for name in _recordings_below(folder) if name not in taken]
    rows = []
    for name in names:
        path = Path(os.path.normpath(folder / name))
        if len(Path(name).parts) != 2 or ".." in Path(name).parts or not is_sound(name):
            rejected.append(Rejected(folder / name, "is not WORD/RECORDING.wav; correct the line of the list"))
        elif not path.is_file():
            rejected.append(Rejected(path, f"is in {split}_list.txt, but does not exist; correct the list"))
        else:
            word, file = Path(name).parts
            speaker, mark, _ = file.partition(NO_HASH)
            rows.append(Row(Recording(path), {"label": word} | ({"speaker": speaker} if mark else {})))
    return Listed(rows, rejected, folder)


def _lines(file: Path) -> list[str]:
    return [line.strip() for line in utf8_text(file).splitlines() if line.strip()]


def _recordings_below(folder: Path) -> list[str]:
    found = []
    for top, names in walk(folder):
        word = Path(top).relative_to(folder)
        if len(word.parts) == 1 and word.parts[0] != NO_CLASS:
            found += [f"{word}/{name}" for name in names if is_sound(name) and not name.startswith(".")]
    return sorted(found)


def _of_table(file: Path, folder: Path, folds: Sequence[int]) -> tuple[Listed, list[str]]:
    table = read_table(file, quoted=True)
    name, label = (table.column(None, known, "") for known in (FILES, LABELS))
    number, source, fold = (table.column(None, known, "") for known in (NUMBERS, SOURCES, (FOLD,)))
    if name is None:
        raise DataError(f"{file}: has columns {table.listed()}; name the column of the recordings 'filename'")
    if folds and fold is None:
        raise DataError(f"{file}: has no column 'fold' for --fold {folds[0]}; its columns are {table.listed()}")
    rows, rejected = list[Row](), list(table.rejected)
    numbers: dict[str, str] = {}
    for row in table.rows:
        values = {key: str(value) for key, value in row.values.items()}
        if folds and values[fold or ""].strip() not in {str(one) for one in folds}:
            continue
        path = _found(folder, values[name], values.get(fold or "", ""))
        if path is None:
            rejected.append(table.reject(row, f"{values[name]} is not a recording below {folder}; correct the path"))
            continue
        fields: dict[str, Any] = {} if source is None else {"speaker": values[source]}
        if label is not None and not values[label].strip():
            rejected.append(table.reject(row, f"its {label!r} is empty; write the class"))
            continue
        if label is not None or number is not None:
            fields["label"] = values[label or number or ""].strip()
        rows.append(Row(Recording(path), fields))
    if not rows and not rejected:
        raise DataError(f"{file}: no recording is in --fold {' '.join(map(str, folds))}; use others")
    if label is not None and number is not None:
        numbers = {str(row.values[label]).strip(): str(row.values[number]).strip() for row in table.rows}
    return Listed(rows, rejected, file), _by_number(table, numbers)


def _by_number(table: Table, numbers: Mapping[str, str]) -> list[str]:
    """Return the classes by their numbers, if these are 0, 1, ... in a table; else nothing."""
    if not numbers or not all(one.isdecimal() for one in numbers.values()):
        return []
    order = sorted(numbers, key=lambda name: int(numbers[name]))
    return order if [int(numbers[name]) for name in order] == list(range(len(order))) else []


def _found(folder: Path, name: str, fold: str) -> Path | None:
    """Return the file of a table's entry below the data set's folder; names may lack their ending, as in FSD50K."""
    inside = Path(os.path.normpath(name))
    if not name.strip() or inside.is_absolute() or ".." in inside.parts:
        return None
    for top in (folder, folder / "audio", folder / "audio" / f"fold{fold}"):
        for one in (name, f"{name}.wav"):
            if is_sound(one) and (top / one).is_file():
                return top / one
    return None
