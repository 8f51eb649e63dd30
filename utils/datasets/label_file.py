"""Label files: a text file (``val.txt``) with one ``path label`` per line."""

from __future__ import annotations

import os
import re
from pathlib import Path

from engine.base import DataError
from utils.datasets.folders import NOT_A_PICTURE, is_picture
from utils.datasets.samples import Dataset, Rejected, Sample


def load_label_file(file: Path, root: Path | None = None) -> Dataset:
    """Load the pictures a label file lists, in its order.

    A line is ``path label``: the label is the last field, so the path may hold spaces. Blank lines and lines starting
    with ``#`` are passed over. Listed pictures that do not exist, and files that are not pictures, are in ``rejected``.

    Args:
        file: the label file, UTF-8.
        root: folder the paths start from; ``None`` means the folder of the file.

    Raises:
        DataError: the file cannot be read or lists nothing, a line is malformed, a label is not a whole number of at
            least 0, a path leaves the root, or not a single listed picture can be used.
    """
    root = file.parent if root is None else root
    samples: list[Sample] = []
    rejected: list[Rejected] = []
    for number, line in enumerate(_lines(file), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        sample = _parse(text, root, f"{file}:{number}")
        if not is_picture(sample.path.name):
            rejected.append(Rejected(sample.path, NOT_A_PICTURE))
        elif not os.path.isfile(sample.path):
            rejected.append(Rejected(sample.path, f"it does not exist but is listed in {file.name} line {number}"))
        else:
            samples.append(sample)
    if not samples:
        raise _nothing_usable(file, root, rejected)
    return Dataset(samples, rejected=rejected)


def _lines(file: Path) -> list[str]:
    try:
        # Split at line feeds only: str.splitlines would also break at characters that are legal in file names.
        return file.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: byte {error.start} is not UTF-8 text; save the label file as UTF-8") from error
    except OSError as error:
        raise DataError(f"label file {file} cannot be read: {error.strerror}; check the path") from error


def _parse(text: str, root: Path, where: str) -> Sample:
    fields = text.rsplit(maxsplit=1)
    if len(fields) != 2:
        raise DataError(f"{where}: {text!r} is not 'path label'; write a picture path, a space and a class index")
    name, label = fields
    if not re.fullmatch("[0-9]{1,18}", label):
        raise DataError(
            f"{where}: label {label!r} is not a class index; end the line with a whole number of at least 0"
        )
    path = os.path.normpath(os.path.join(root, name))
    # By name only: data sets are often assembled from links, so where a link leads is the owner's business.
    if not Path(os.path.abspath(path)).is_relative_to(os.path.abspath(root)):
        raise DataError(f"{where}: path {name!r} leaves the data folder {root}; write paths relative to that folder")
    return Sample(Path(path), int(label))


def _nothing_usable(file: Path, root: Path, rejected: list[Rejected]) -> DataError:
    if not rejected:
        return DataError(f"label file {file} lists no picture; write one 'path label' per line")
    path, reason = rejected[0]
    return DataError(
        f"label file {file}: none of its {len(rejected)} pictures can be used under {root}, "
        f"the first is {path}: {reason}; check the data folder"
    )
