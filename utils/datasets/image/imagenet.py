"""ImageNet's validation images (ILSVRC2012) as they are handed out: one folder of files, their labels elsewhere.

Read here, each told by the names of its files:

- the development kit (``ILSVRC2012_devkit_t12``, unpacked or not) beside the images of ``ILSVRC2012_img_val.tar``: a
  line per image with its ``ILSVRC2012_ID``, which is not the number of a model's output: the kit's own table
  (``meta.mat``) says which WordNet id it is, and sorted WordNet ids are the outputs;
- Kaggle's competition: ``LOC_val_solution.csv`` and ``ILSVRC/Data/CLS-LOC/val``;
- the folder of ``torchvision.datasets.ImageNet``, whose ``val`` has a folder per class.

A folder per class and a label file need nothing of this module.
"""

from __future__ import annotations

import csv
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from engine import DataError
from tecoinfer_modelzoo.files import check_regular, read_regular
from utils.datasets.folders import class_folders
from utils.datasets.image.matlab import read_matlab
from utils.datasets.samples import Rejected, TableDataset
from utils.datasets.table import Listing, prefix_of
from utils.imagenet_classes import WNIDS

PICTURE = re.compile(r"ILSVRC2012_val_(\d{8})\.JPEG", re.IGNORECASE)
"""Name of a validation image; the number counts from 1."""

KIT, TRUTH, TABLE = "ILSVRC2012_devkit_t12", "ILSVRC2012_validation_ground_truth.txt", "meta.mat"
KAGGLE, KAGGLE_PICTURES = "LOC_val_solution.csv", Path("ILSVRC", "Data", "CLS-LOC", "val")
TORCHVISION = "meta.bin"

LARGEST = 1 << 26
"""Bytes of a file of the kit that is read; the largest has one millionth of the bytes that an archive can hold."""

_UP = 4
"""How many folders above the images their labels are looked for."""


class Layout(NamedTuple):
    """Where images and labels are. ``labels``: the kit (a folder or an archive), Kaggle's table, or ``meta.bin``."""

    pictures: Path
    labels: Path


def find_layout(path: Path) -> Layout | None:
    """Return how ImageNet lies in a folder: that of the images or one above; ``None`` where it does not."""
    for pictures in (path, path / "val", path / KAGGLE_PICTURES):
        if not pictures.is_dir():
            continue
        flat, classes = _holds(pictures)
        for folder in [pictures, *pictures.absolute().parents[:_UP]] if flat else ():
            for labels in (folder / KIT, folder / f"{KIT}.tar.gz", folder / KAGGLE):
                if labels.exists():
                    return Layout(pictures, labels)
        for labels in (path / TORCHVISION, path / KIT, path / f"{KIT}.tar.gz"):
            if pictures != path and classes and labels.exists():
                return Layout(pictures, labels)
    return None


def _holds(folder: Path) -> tuple[bool, bool]:
    """Say whether a folder holds validation images, and whether it holds the folder of a class."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if PICTURE.fullmatch(entry.name):
                return True, False
            if entry.name in _IDS and entry.is_dir():
                return False, True
    return False, False


_IDS = frozenset(WNIDS)


def load_imagenet(layout: Layout) -> TableDataset:
    """Load the validation images with the outputs of a model of 1000 classes as labels.

    Raises:
        DataError: labels that cannot be read, or no image that has one.
    """
    pictures, labels = layout
    if not _holds(pictures)[0]:
        return class_folders(pictures)
    found = _kaggle(labels) if labels.name == KAGGLE else _kit(labels)
    listing, prefix, rejected = Listing(), prefix_of(pictures), []
    for name in sorted(os.listdir(pictures)):
        match = PICTURE.fullmatch(name)
        label = found.get(int(match[1])) if match else None
        if label is not None:
            listing.add(prefix, name, label)
        elif match:
            rejected.append(Rejected(pictures / name, f"{labels.name} has no label for it"))
    if not listing:
        raise DataError(f"{pictures}: {labels} has a label for none of its images; get the files again")
    return TableDataset(listing.table(), rejected=rejected, listed_in=labels if labels.is_file() else None)


def _kaggle(file: Path) -> dict[int, int]:
    """Return the class of each image by its number; a row is ``ILSVRC2012_val_00048981,n03995372 85 1 499 272``."""
    places = {wnid: place for place, wnid in enumerate(WNIDS)}
    found = {}
    try:
        check_regular(file)
        with file.open(newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                match = PICTURE.fullmatch(f"{row['ImageId']}.JPEG")
                wnid = row["PredictionString"].split()[0]
                if match is None or wnid not in places:
                    raise DataError(f"{file}: {row['ImageId']!r} of {wnid!r} is no image of a class; get it again")
                found[int(match[1])] = places[wnid]
    except (OSError, KeyError, IndexError, AttributeError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{file}: not Kaggle's table of labels ({type(error).__name__} {error}); get it again"
        ) from error
    return found


def _kit(kit: Path) -> dict[int, int]:
    """Return the class of each image by its number, of the development kit."""
    files = dict(_members(kit, (TRUTH, TABLE)))
    missing = next((name for name in (TRUTH, TABLE) if name not in files), None)
    if missing:
        raise DataError(f"{kit}: holds no {missing}; get ILSVRC2012_devkit_t12.tar.gz again")
    outputs = outputs_of_ids(files[TABLE], f"{kit}: {TABLE}")
    found = {}
    for number, text in enumerate(files[TRUTH].decode("ascii", "replace").split(), start=1):
        if not text.isdecimal() or int(text) not in outputs:
            raise DataError(f"{kit}: {TRUTH} line {number}: {text!r} is no ILSVRC2012_ID; get the kit again")
        found[number] = outputs[int(text)]
    return found


def _members(kit: Path, names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield the files of these names, out of a folder or an archive."""
    try:
        if kit.is_dir():
            yield from ((name, read_regular(kit / "data" / name)) for name in names if (kit / "data" / name).is_file())
            return
        check_regular(kit)
        with tarfile.open(kit) as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                if name in names and member.size > LARGEST:
                    raise DataError(f"{kit}: {name} has {member.size} bytes, and the kit's far fewer; get it again")
                stream = archive.extractfile(member) if member.isfile() and name in names else None
                if stream is not None:
                    yield name, stream.read()
    except (OSError, EOFError, tarfile.TarError) as error:
        raise DataError(f"{kit}: cannot be read ({error}); get it again") from error


def outputs_of_ids(data: bytes, name: str) -> Mapping[int, int]:
    """Return the place of each ``ILSVRC2012_ID`` among the outputs of a model, of the kit's ``meta.mat``.

    The table holds the classes' ancestors in WordNet too; those have children, classes have none.

    Raises:
        DataError: it is no such table.
    """
    try:
        rows = [row for row in read_matlab(data, name)["synsets"] if not int(row["num_children"][0])]
        ids = {int(row["ILSVRC2012_ID"][0]): str(row["WNID"]) for row in rows}
    except (LookupError, TypeError, ValueError) as error:
        raise DataError(f"{name}: not the table of ILSVRC2012's classes ({error}); get the kit again") from error
    places = {wnid: place for place, wnid in enumerate(sorted(ids.values()))}
    return {number: places[wnid] for number, wnid in ids.items()}
