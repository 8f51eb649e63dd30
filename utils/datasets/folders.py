"""Images in folders: one class per subfolder, a flat folder, or a single file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from engine import DataError
from tecoinfer_modelzoo.trees import walk as walk_folders
from utils.datasets.samples import Rejected, Sample, TableDataset
from utils.datasets.table import Listing, prefix_of
from utils.video.names import is_frame

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""File name endings of images, in any case: the list of torchvision's ``ImageFolder``."""

NOT_AN_IMAGE = "not an image file (its extension is none of " + " ".join(EXTENSIONS) + ")"


def is_image(name: str) -> bool:
    """Return whether a file name has the ending of an image, in any case, or is a frame's (``clip.mp4#000012``)."""
    return name.lower().endswith(EXTENSIONS) or is_frame(name)


def class_folders(root: Path) -> TableDataset:
    """Load a folder with one subfolder per class, exactly as torchvision 0.28's ``ImageFolder`` lists it.

    Class indices follow the sorted names of *all* subfolders, including hidden ones; images are found at any depth,
    through links, including hidden ones. Files that ``ImageFolder`` skips silently (other types, or outside a class
    folder) are in ``rejected``, except hidden files such as ``.gitkeep``. Raises DataError if the folder has no
    subfolder, a class has no images, a folder cannot be read, or links form a loop.
    """
    entries = sorted((entry.name, _is_folder(entry)) for entry in entries_of(root))
    classes = [name for name, is_folder in entries if is_folder]
    if not classes:
        raise DataError(f"data folder {root} has no class folders; put the images of each class into a subfolder of it")
    rejected = [
        Rejected(root / name, "it lies outside the class folders" if is_image(name) else NOT_AN_IMAGE)
        for name, is_folder in entries
        if not is_folder and not name.startswith(".")
    ]
    listing = Listing()
    empty: list[str] = []
    for index, folder in enumerate(classes):
        before = len(listing)
        rejected += _list_class(root / folder, index, listing)
        if len(listing) == before:
            empty.append(folder)
    if empty:
        raise DataError(
            f"data folder {root}: no image ({' '.join(EXTENSIONS)}) in class folder {', '.join(empty)}; "
            "add images or remove the folder"
        )
    return TableDataset(listing.table(), classes=classes, rejected=rejected)


def _list_class(top: Path, label: int, listing: Listing) -> list[Rejected]:
    """Add the images below a class folder, sorted by folder and then by name; return the other files.

    Only the names of one class are Python objects at a time, to save memory.
    """
    rejected = []
    for folder, names in sorted(walk(top)):
        prefix = prefix_of(Path(folder))
        for name in sorted(names):
            if is_image(name):
                listing.add(prefix, name, label)
            elif not name.startswith("."):
                rejected.append(Rejected(Path(folder, name), NOT_AN_IMAGE))
    return rejected


def flat_folder(root: Path) -> TableDataset:
    """Load the images that lie directly in a folder, sorted by name, without labels.

    Hidden entries (leading dot) are skipped. Other entries that are not images, also subfolders, are in ``rejected``.
    Raises DataError if the folder is empty, has no image, or cannot be read.
    """
    names: list[str] = []
    others: list[tuple[str, str]] = []
    for entry in entries_of(root):
        if entry.name.startswith("."):
            continue
        if _is_folder(entry):
            others.append((entry.name, "is a folder, and only images directly in the data folder are read"))
        elif is_image(entry.name):
            names.append(entry.name)
        else:
            others.append((entry.name, NOT_AN_IMAGE))
    if not names:
        what = "contains no image" if others else "is empty"
        raise DataError(f"data folder {root} {what}; it needs files ending in {' '.join(EXTENSIONS)}")
    listing, prefix = Listing(), prefix_of(root)
    for name in sorted(names):
        listing.add(prefix, name, None)
    return TableDataset(listing.table(), rejected=[Rejected(root / name, reason) for name, reason in sorted(others)])


def single_image(path: Path) -> TableDataset:
    """Load one image file, without a label; raise DataError if its name does not end like an image's."""
    if not is_image(path.name):
        raise DataError(f"{path}: {NOT_AN_IMAGE}; pass an image, a folder, a .txt label file or an .npz file")
    return TableDataset([Sample(path, None)])


def has_class_folders(root: Path) -> bool:
    """Return whether any visible subfolder has an image, at any depth."""
    visible = (entry for entry in entries_of(root) if not entry.name.startswith("."))
    folders = (root / entry.name for entry in visible if _is_folder(entry))
    return any(is_image(name) for folder in folders for _, names in walk(folder) for name in names)


def entries_of(root: Path) -> Iterator[os.DirEntry[str]]:
    """Yield the entries directly in a folder, unsorted. Raises DataError if it cannot be read."""
    try:
        with os.scandir(root) as found:
            yield from found
    except OSError as error:
        raise _unreadable(error) from error


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder; unlike ``entry.is_dir()``, False for a link to itself, not an error."""
    return os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir()


def walk(top: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield every folder from ``top`` down with the names of its files, following links.

    Raises DataError if a folder cannot be read, or if a link leads to a folder above it, whose files would be listed
    again at every turn.
    """

    def refuse(error: OSError) -> None:
        raise _unreadable(error) from error

    for folder, folders, names in walk_folders(top, followlinks=True, onerror=refuse):
        for path in (Path(folder, name) for name in folders):
            if path.is_symlink() and any(path.samefile(above) for above in path.parents):
                raise DataError(
                    f"{path} is a link to a folder above it, so images would be counted twice; remove the link"
                )
        yield folder, names


def _unreadable(error: OSError) -> DataError:
    return DataError(f"data folder {error.filename} cannot be read: {error.strerror}; check its permissions")
