"""Pictures in folders: one class per subfolder, a flat folder, or a single file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from engine.base import DataError
from utils.datasets.samples import Dataset, Rejected, Sample

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""File name endings, in any case, that make a file a picture: the list of torchvision's ``ImageFolder``."""

NOT_A_PICTURE = "not a picture file (its extension is none of " + " ".join(EXTENSIONS) + ")"


def is_picture(name: str) -> bool:
    """Say whether a file name ends like a picture's, in any case."""
    return name.lower().endswith(EXTENSIONS)


def class_folders(root: Path) -> Dataset:
    """Load a folder with one subfolder per class, exactly as torchvision 0.28's ``ImageFolder`` lists it.

    Class indices follow the sorted names of *all* subfolders, hidden ones too; pictures are found at any depth, through
    links, hidden ones too. What ``ImageFolder`` passes over in silence (other files, files outside a class folder) is
    in ``rejected``, except hidden files such as ``.gitkeep``.

    Raises:
        DataError: no subfolder, a class without pictures, a folder that cannot be read, or links that form a loop.
    """
    classes = sorted(entry.name for entry in _entries(root) if entry.is_dir())
    if not classes:
        raise DataError(
            f"data folder {root} has no class folders; put the pictures of each class into a subfolder of it"
        )
    rejected = [
        Rejected(root / entry.name, "it lies outside the class folders" if is_picture(entry.name) else NOT_A_PICTURE)
        for entry in _entries(root)
        if not entry.is_dir() and not entry.name.startswith(".")
    ]
    samples: list[Sample] = []
    empty: list[str] = []
    for index, name in enumerate(classes):
        before = len(samples)
        for path in _files(root / name):
            if is_picture(path.name):
                samples.append(Sample(path, index))
            elif not path.name.startswith("."):
                rejected.append(Rejected(path, NOT_A_PICTURE))
        if len(samples) == before:
            empty.append(name)
    if empty:
        raise DataError(
            f"data folder {root}: no picture ({' '.join(EXTENSIONS)}) in class folder {', '.join(empty)}; "
            "add pictures or remove the folder"
        )
    return Dataset(samples, classes=classes, rejected=rejected)


def flat_folder(root: Path) -> Dataset:
    """Load the pictures that lie directly in a folder, sorted by name, without labels.

    Hidden entries (leading dot) are ignored. Everything else that is not a picture, subfolders too, is in ``rejected``.

    Raises:
        DataError: the folder is empty, holds no picture, or cannot be read.
    """
    samples: list[Sample] = []
    rejected: list[Rejected] = []
    for entry in _entries(root):
        if entry.name.startswith("."):
            continue
        path = root / entry.name
        if entry.is_dir():
            rejected.append(Rejected(path, "a folder, and only the pictures directly in the data folder are read"))
        elif is_picture(entry.name):
            samples.append(Sample(path, None))
        else:
            rejected.append(Rejected(path, NOT_A_PICTURE))
    if not samples:
        what = "holds no picture" if rejected else "is empty"
        raise DataError(f"data folder {root} {what}; it needs files ending in {' '.join(EXTENSIONS)}")
    return Dataset(samples, rejected=rejected)


def single_picture(path: Path) -> Dataset:
    """Load one picture file, without a label.

    Raises:
        DataError: the file is not named like a picture.
    """
    if not is_picture(path.name):
        raise DataError(f"{path}: {NOT_A_PICTURE}; give a picture, a folder, a .txt label file or an .npz file")
    return Dataset([Sample(path, None)])


def has_class_folders(root: Path) -> bool:
    """Say whether any visible subfolder holds a picture, at any depth."""
    folders = (root / entry.name for entry in _entries(root) if entry.is_dir() and not entry.name.startswith("."))
    return any(is_picture(path.name) for folder in folders for path in _files(folder))


def _entries(root: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(root) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        raise _unreadable(error) from error


def _files(top: Path) -> Iterator[Path]:
    """Yield every file below ``top``: folders sorted by their path, and the names sorted within each."""
    for folder, _, names in sorted(_walk(top)):
        for name in sorted(names):
            yield Path(folder, name)


def _walk(top: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    def refuse(error: OSError) -> None:
        raise _unreadable(error) from error

    for folder, folders, names in os.walk(top, followlinks=True, onerror=refuse):
        for name in folders:
            _refuse_loop(Path(folder, name))
        yield folder, folders, names


def _refuse_loop(folder: Path) -> None:
    """Raise where a link leads back to a folder above it: its pictures would be counted again at every turn."""
    if folder.is_symlink() and any(folder.samefile(above) for above in folder.parents):
        raise DataError(
            f"{folder} is a link to a folder above it, so its pictures would count many times; remove the link"
        )


def _unreadable(error: OSError) -> DataError:
    return DataError(f"data folder {error.filename} cannot be read: {error.strerror}; check its permissions")
