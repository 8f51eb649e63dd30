"""Images as predictions: written as files for ``--save_predictions``, and read as a source framework's answers."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from engine import Array, ConfigError, DataError
from utils.datasets.base import Batch, Dataset
from utils.datasets.folders import is_image
from utils.preprocess.image.images import open_image


class ImageFiles:
    """Writer of an image per sample as a PNG, at its path below the common folder of all images.

    If images differ only in their endings, a hash of the path is appended to the stem. A missing folder is created.
    """

    def __init__(self, folder: Path, dataset: Dataset) -> None:
        self.folder = folder
        names = dataset.batch(range(len(dataset))).names
        self._top = os.path.commonpath([os.path.dirname(name) for name in names]) if names else ""
        self._times = Counter(self._below(name).with_suffix("") for name in names)

    def image(self, prediction: Any) -> Image.Image:
        """Return the image of a prediction."""
        return Image.fromarray(prediction)

    def _below(self, name: str) -> Path:
        return Path(os.path.relpath(name, self._top))

    def _file(self, name: str) -> Path:
        from utils.draw import file_name

        below = self._below(name)
        again = self._times[below.with_suffix("")] > 1
        ending = f"-{sha256(os.fsencode(below)).hexdigest()[:12]}.png" if again else ".png"
        return self.folder / below.with_name(file_name(below.stem, ending))

    def see(self, batch: Batch, predictions: Sequence[Any]) -> None:
        """Write the images of a batch."""
        for name, prediction in zip(batch.names, predictions, strict=True):
            file = self._file(name)
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                self.image(prediction).save(file, optimize=True)
            except OSError as error:
                reason = error.strerror or error
                raise ConfigError(f"--save_predictions: {file} cannot be written ({reason})") from error

    def close(self) -> None:
        """Do nothing: ``see`` writes all files."""


def save_image(image: Array | Image.Image, file: Path) -> Path:
    """Write an image as a PNG; its folder is created. Raises ConfigError if it cannot be written."""
    try:
        file.parent.mkdir(exist_ok=True)
        (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(file, optimize=True)
    except OSError as error:
        raise ConfigError(f"cannot write {file} ({error.strerror or error}); choose another folder") from error
    return file


def read_answers(folder: Path, files: Sequence[Path]) -> list[Array | None]:
    """Read images, H x W x 3 uint8 RGB, with the stems of some files; ``None`` where there is none.

    Raises DataError if the path is not a folder of images, or an image cannot be read.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; pass one with an image per sample, named like the sample's file")
    found = {path.stem: path for path in sorted(folder.iterdir()) if is_image(path.name)}
    return [np.asarray(open_image(found[file.stem])) if file.stem in found else None for file in files]
