"""Label files: a text file (``val.txt``) with one ``path label`` per line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from engine import DataError
from tecoinfer_modelzoo.files import check_regular, not_a_file_reason
from utils.datasets.folders import NOT_AN_IMAGE, is_image
from utils.datasets.samples import Rejected, TableDataset
from utils.datasets.table import Listing


def load_label_file(file: Path, root: Path | None = None) -> TableDataset:
    """Load the images that a label file lists, in its order; paths are relative to ``root``, or the file's folder.

    A line is ``path label``: the label is the last field, so the path may contain spaces. Blank lines and lines that
    start with ``#`` are skipped. Listed files that do not exist or are not images are in ``rejected``. Raises DataError
    if the file cannot be read or is empty, a line is malformed, a label is not an integer of at least 0, a path leaves
    the root, or no listed image can be used.
    """
    root = file.parent if root is None else root
    listing = Listing()
    rejected: list[Rejected] = []
    for number, line in enumerate(_lines(file), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        path, label = _parse(text, root, f"{file}:{number}")
        folder, separator, name = path.rpartition(os.sep)
        if not is_image(name):
            rejected.append(Rejected(Path(path), NOT_AN_IMAGE))
        elif not os.path.isfile(path):
            rejected.append(
                Rejected(Path(path), f"it {not_a_file_reason(path)} but is listed in {file.name} line {number}")
            )
        else:
            listing.add(folder + separator, name, label)
    if not listing and not rejected:
        raise DataError(f"label file {file} lists no image; write one 'path label' per line")
    if not listing:
        first, reason = rejected[0]
        raise DataError(
            f"label file {file}: none of its {len(rejected)} images can be used under {root}, "
            f"the first is {first}: {reason}; check the data folder"
        )
    return TableDataset(listing.table(), rejected=rejected, listed_in=file)


def _lines(file: Path) -> Iterator[str]:
    """Yield the lines of a file of any size and with any line ends."""
    offset = 0
    try:
        check_regular(file)
        with file.open("rb") as stream:
            # Split at line feeds only: str.splitlines would also break at characters that are legal in file names.
            for number, line in enumerate(stream):
                text = line.decode()
                text = text if number else text.removeprefix("\ufeff")
                yield from text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
                offset += len(line)
    except UnicodeDecodeError as error:
        at = offset + error.start
        raise DataError(f"{file}: byte {at} is not UTF-8 text; save the label file as UTF-8") from error
    except OSError as error:
        raise DataError(f"label file {file} cannot be read: {error.strerror}; check the path") from error


def _parse(text: str, root: Path, where: str) -> tuple[str, int]:
    fields = text.rsplit(maxsplit=1)
    if len(fields) != 2:
        raise DataError(f"{where}: {text!r} is not 'path label'; write an image path, a space and a class index")
    name, label = fields
    if not re.fullmatch("[0-9]{1,18}", label):
        raise DataError(f"{where}: label {label!r} is not a class index; end the line with an integer of at least 0")
    path = os.path.normpath(os.path.join(root, name))
    # Compares names only: links may lead out of the root, since data sets are often assembled from links.
    if not (os.path.abspath(path) + os.sep).startswith(os.path.join(os.path.abspath(root), "")):
        raise DataError(f"{where}: path {name!r} leaves the data folder {root}; write paths relative to that folder")
    return path, int(label)
