"""ImageNet's validation images (ILSVRC2012) as distributed: one folder of files, and labels in another place.

Supported layouts, recognised by their file names:

- the development kit (``ILSVRC2012_devkit_t12``, unpacked or not) next to the images of ``ILSVRC2012_img_val.tar``: a
  line per image with its ``ILSVRC2012_ID``, which is not the model's output index: the kit's ``meta.mat`` maps it to a
  WordNet id, and the sorted WordNet ids are the outputs;
- Kaggle's competition: ``LOC_val_solution.csv`` and ``ILSVRC/Data/CLS-LOC/val``;
- the folder of ``torchvision.datasets.ImageNet``, whose ``val`` has a folder per class.

A folder per class and a label file do not need this module.
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

IMAGE = re.compile(r"ILSVRC2012_val_(\d{8})\.JPEG", re.IGNORECASE)
"""Name of a validation image; numbers start at 1."""

KIT, TRUTH, TABLE = "ILSVRC2012_devkit_t12", "ILSVRC2012_validation_ground_truth.txt", "meta.mat"
KAGGLE, KAGGLE_IMAGES = "LOC_val_solution.csv", Path("ILSVRC", "Data", "CLS-LOC", "val")
TORCHVISION = "meta.bin"

LARGEST = 1 << 26
"""Maximum bytes of a file in the kit; larger ones are rejected as damaged or malicious."""

_UP = 4
"""Number of folders above the images that are searched for labels."""


class Layout(NamedTuple):
    """Paths of images and labels. ``labels``: the kit (a folder or an archive), Kaggle's table, or ``meta.bin``."""

    images: Path
    labels: Path


def find_layout(path: Path) -> Layout | None:
    """Return the layout of ImageNet for its image folder or a folder above; ``None`` if it is not ImageNet."""
    for images in (path, path / "val", path / KAGGLE_IMAGES):
        if not images.is_dir():
            continue
        flat, classes = _holds(images)
        for folder in [images, *images.absolute().parents[:_UP]] if flat else ():
            for labels in (folder / KIT, folder / f"{KIT}.tar.gz", folder / KAGGLE):
                if labels.exists():
                    return Layout(images, labels)
        for labels in (path / TORCHVISION, path / KIT, path / f"{KIT}.tar.gz"):
            if images != path and classes and labels.exists():
                return Layout(images, labels)
    return None


def _holds(folder: Path) -> tuple[bool, bool]:
    """Return whether a folder has validation images, and whether it has the folder of a class."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if IMAGE.fullmatch(entry.name):
                return True, False
            if entry.name in _IDS and entry.is_dir():
                return False, True
    return False, False


_IDS = frozenset(WNIDS)


def load_imagenet(layout: Layout) -> TableDataset:
    """Load the validation images; labels are output indices of a model with 1000 classes.

    Raises DataError if the labels cannot be read, or no image has one.
    """
    images, labels = layout
    if not _holds(images)[0]:
        return class_folders(images)
    found = _kaggle(labels) if labels.name == KAGGLE else _kit(labels)
    listing, prefix, rejected = Listing(), prefix_of(images), []
    for name in sorted(os.listdir(images)):
        match = IMAGE.fullmatch(name)
        label = found.get(int(match[1])) if match else None
        if label is not None:
            listing.add(prefix, name, label)
        elif match:
            rejected.append(Rejected(images / name, f"{labels.name} has no label for it"))
    if not listing:
        raise DataError(f"{images}: {labels} has no label for any of its images; get the files again")
    return TableDataset(listing.table(), rejected=rejected, listed_in=labels if labels.is_file() else None)


def _kaggle(file: Path) -> dict[int, int]:
    """Return the class of each image by its number; a row is ``ILSVRC2012_val_00048981,n03995372 85 1 499 272``."""
    places = {wnid: place for place, wnid in enumerate(WNIDS)}
    found = {}
    try:
        check_regular(file)
        with file.open(newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                match = IMAGE.fullmatch(f"{row['ImageId']}.JPEG")
                wnid = row["PredictionString"].split()[0]
                if match is None or wnid not in places:
                    raise DataError(f"{file}: {row['ImageId']!r} of {wnid!r} is not a labelled image; get it again")
                found[int(match[1])] = places[wnid]
    except (OSError, KeyError, IndexError, AttributeError, UnicodeDecodeError, csv.Error) as error:
        reason = f"{type(error).__name__} {error}"
        raise DataError(f"{file}: not Kaggle's table of labels ({reason}); get it again") from error
    return found


def _kit(kit: Path) -> dict[int, int]:
    """Return the class of each image by its number, from the development kit."""
    files = dict(_members(kit, (TRUTH, TABLE)))
    missing = next((name for name in (TRUTH, TABLE) if name not in files), None)
    if missing:
        raise DataError(f"{kit}: has no {missing}; get ILSVRC2012_devkit_t12.tar.gz again")
    outputs = outputs_of_ids(files[TABLE], f"{kit}: {TABLE}")
    found = {}
    for number, text in enumerate(files[TRUTH].decode("ascii", "replace").split(), start=1):
        if not text.isdecimal() or int(text) not in outputs:
            raise DataError(f"{kit}: {TRUTH} line {number}: {text!r} is not an ILSVRC2012_ID; get the kit again")
        found[number] = outputs[int(text)]
    return found


def _members(kit: Path, names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the given files, from a folder or an archive."""
    try:
        if kit.is_dir():
            yield from ((name, read_regular(kit / "data" / name)) for name in names if (kit / "data" / name).is_file())
            return
        check_regular(kit)
        with tarfile.open(kit) as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                if name in names and member.size > LARGEST:
                    raise DataError(f"{kit}: {name} has {member.size} bytes, the maximum is {LARGEST}; get it again")
                stream = archive.extractfile(member) if member.isfile() and name in names else None
                if stream is not None:
                    yield name, stream.read()
    except (OSError, EOFError, tarfile.TarError) as error:
        raise DataError(f"{kit}: cannot be read ({error}); get it again") from error


def outputs_of_ids(data: bytes, name: str) -> Mapping[int, int]:
    """Return the output index of each ``ILSVRC2012_ID``, from the kit's ``meta.mat``.

    The table also has the classes' ancestors in WordNet, which have children; classes have none. Raises DataError if
    the content is not this table.
    """
    try:
        rows = [row for row in read_matlab(data, name)["synsets"] if not int(row["num_children"][0])]
        ids = {int(row["ILSVRC2012_ID"][0]): str(row["WNID"]) for row in rows}
    except (LookupError, TypeError, ValueError) as error:
        raise DataError(f"{name}: not the table of ILSVRC2012's classes ({error}); get the kit again") from error
    places = {wnid: place for place, wnid in enumerate(sorted(ids.values()))}
    return {number: places[wnid] for number, wnid in ids.items()}
