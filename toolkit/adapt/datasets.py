"""Data of a model: the flags that they need, their copy, and the paths of the three scripts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine import ConfigError, TecoInferError
from tecoinfer_modelzoo.trees import below
from toolkit.adapt.running import FORMS_FOLDER
from toolkit.adapt.signature import signature_of
from toolkit.adapt.work import Work
from toolkit.scaffold import defaults_of
from utils.datasets.base import Dataset
from utils.export.forms import STATIC
from utils.tasks.base import Task

MOST_COPIED = 5_000_000
"""Bytes of data that the structure check accepts in a model's folder."""

_UNSAFE = "\"'\\${}\n"


def first_flags(work: Work, task: type[Task]) -> dict[str, Any]:
    """Return the values of flags that follow from the model, and those of ``--default``.

    Raises ConfigError if a default is not a flag of the task.
    """
    given = defaults_of(task, work.request.defaults)
    keys = {flag.key: flag for flag in task.flags}
    found: dict[str, Any] = {}
    size = _image_size(work.facts("export"))
    if "input_size" in keys and size is not None and (keys["input_size"].default is not None or _is_open(work)):
        found["input_size"] = size
    if "time_axis" in keys and _is_time_last(work.facts("export")):
        found["time_axis"] = 2
    scale = _scale(work) if "scale" in keys and "noise_sigma" in keys else 0
    if scale:
        found["scale"] = scale
    if "layout" in keys:
        found |= _ultralytics_layout(work.facts("export"))
    return {**found, **given}


def _ultralytics_layout(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the layout of a detector of Ultralytics: a box, in YOLOv5 an object score, and classes."""
    if not {"names", "stride"} <= set(found["metadata"]) or len(found["outputs"]) != 1:
        return {}
    sizes, classes = found["outputs"][0]["shape"][1:], found["labels"]
    if len(sizes) != 2:
        return {}
    return {"layout": "yolov8"} if sizes[0] == 4 + classes else {"layout": "yolov5"} if sizes[1] == 5 + classes else {}


def _scale(work: Work) -> int:
    """Return how many times higher the output is than the image, by the static form, whose sizes are known; else 0."""
    export = work.facts("export")
    static = export["forms"].get(STATIC)
    if static is None or not export["sizes"]:  # the sizes of the form that the case runs are known
        return 0
    found = signature_of(work.folder / FORMS_FOLDER / static)
    high, low = (
        [one["shape"][2] for one in found[side][:1] if len(one["shape"]) == 4] for side in ("outputs", "inputs")
    )
    whole = bool(high and low) and isinstance(high[0], int) and isinstance(low[0], int)
    return high[0] // low[0] if whole and high[0] % low[0] == 0 else 0


def _is_time_last(found: Mapping[str, Any]) -> bool:
    """Return whether the first input is N x bands x frames: the second size is fixed, and the third dynamic."""
    shape = found["inputs"][0]["shape"] if found["inputs"] else []
    return len(shape) == 3 and isinstance(shape[1], int) and not isinstance(shape[2], int)


def _is_open(work: Work) -> bool:
    return bool(work.facts("export")["sizes"])


def _image_size(found: Mapping[str, Any]) -> list[int] | None:
    """Return height and width of the first input if it takes images, in the sizes of the static form."""
    shape = found["inputs"][0]["shape"] if found["inputs"] else []
    if len(shape) != 4:
        return None
    sizes = [size if isinstance(size, int) else found["sizes"].get(size, 0) for size in shape]
    sides = sizes[1:3] if sizes[3] in (1, 3) and sizes[1] not in (1, 3) else sizes[2:]
    return [sides[0]] if sides[0] == sides[1] else sides if all(sides) else None


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder."""
    files = [path] if path.is_file() else [one for one in below(path) if one.is_file()]
    return sum(one.stat().st_size for one in files)


def copied(source: Path, folder: Path, loads: Callable[[Path], Dataset]) -> tuple[str, int]:
    """Copy data into ``folder/data`` if they are small; return the place relative to ``folder`` and the bytes.

    A file is copied with the expected arrays beside it; if it cannot be loaded then, such as a list of images, with
    all of its folder. Larger data stay where they are, and their absolute path is returned.

    Raises ConfigError: a name cannot be in a script, or the copy cannot be written.
    """
    if any(mark in source.name for mark in _UNSAFE):
        raise ConfigError(f"--data {source}: rename it without quotes, braces and line breaks")
    target = folder / "data"
    try:
        shutil.rmtree(target, ignore_errors=True)
        if source.is_dir():
            return _of_folder(source, source, target)
        target.mkdir(parents=True)
        beside = [one for one in sorted(source.parent.glob(f"{source.stem}.expected.*")) if one.is_file()]
        size = sum(one.stat().st_size for one in (source, *beside))
        if size > MOST_COPIED:
            target.rmdir()
            return str(source.resolve()), size
        for one in (source, *beside):
            shutil.copy(one, target)
        if not _is_whole(target, source, loads):
            shutil.rmtree(target)
            return _of_folder(source.parent, source, target)
        return f"data/{source.name}", size
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}; choose another --out") from error


def _is_whole(target: Path, source: Path, loads: Callable[[Path], Dataset]) -> bool:
    """Return whether the copy of a file has all samples of the file, and needs no other files."""
    try:
        found = loads(target / source.name)
    except TecoInferError:
        return False
    if len(found) != len(loads(source)) or not len(found):
        return False
    file = _file_of(found.batch(range(1)).samples[0])
    return file is None or file.resolve().is_relative_to(target.resolve())


def _of_folder(folder: Path, wanted: Path, target: Path) -> tuple[str, int]:
    size = size_of(folder)
    if size > MOST_COPIED:
        return str(wanted.resolve()), size
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    return ("data" if wanted == folder else f"data/{wanted.name}"), size


def shown_places(dataset: Dataset, place: str, folder: Path) -> tuple[str, str]:
    """Return the data paths of ``single`` and ``multi``: the first sample's file and its folder, else the data."""
    if not len(dataset):
        return place, place
    sample = dataset.batch(range(1)).samples[0]
    file = _file_of(sample)
    home = (folder / place).resolve() if not place.startswith("fetch:") else None
    top = home if home is None or home.is_dir() else home.parent
    if file is None or top is None or not file.resolve().is_relative_to(top):
        return place, place
    real = file.resolve()
    if not real.is_relative_to(folder.resolve()):
        return str(real), str(real.parent)
    return real.relative_to(folder.resolve()).as_posix(), real.parent.relative_to(folder.resolve()).as_posix()


def _file_of(sample: Any) -> Path | None:
    """Return the file of a sample, or the first file of one of several parts."""
    if isinstance(sample, Path):
        return sample if sample.is_file() else None
    for part in sample if isinstance(sample, tuple) else ():
        found = _file_of(part)
        if found is not None:
            return found
    return None
