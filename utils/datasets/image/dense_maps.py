"""Images, or pairs of them, with a number for every pixel: depth or disparity in PNGs of 16 bits or ``.npy``."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError
from tecoinfer_modelzoo.files import size_and_time
from tecoinfer_modelzoo.text import one_line
from utils.arrays import array_errors
from utils.datasets.base import ListDataset, Rejected, check_exists
from utils.datasets.folders import flat_folder, is_image, single_image
from utils.preprocess.image.images import opened

LEFT = ("image_2", "colored_0", "image_0", "left", "im0")
RIGHT = ("image_3", "colored_1", "image_1", "right", "im1")
"""Names of the folders of left and right images: KITTI 2015's, 2012's, and others."""

IMAGES = ("image", "images", "rgb", "color", "img")
"""Names of the folder of single images."""

TRUTHS = {
    **dict.fromkeys(("disp_occ_0", "disp_noc_0", "disp_occ", "disp_noc", "disparity", "disparities", "disp"), 256.0),
    "groundtruth_depth": 256.0,
    "depth": 1000.0,
    "depths": 1000.0,
}
"""Names of the folder of true values, and the levels of its PNGs per unit: 256 in KITTI, for pixels and metres; 1000
(millimetres) in NYU Depth V2's and most other exports."""

KITTI_NAMES = ("_image_", "_groundtruth_depth_")
"""KITTI's selection for depth has this difference in the names of an image and its true values."""

_LONGEST = 1 << 28
"""Maximum number of values in an ``.npy`` file."""


class TruthFile(NamedTuple):
    """A file of true values; ``scale``: levels of a PNG per unit, and divisor of the numbers of an ``.npy`` file."""

    path: Path
    scale: float

    def read(self) -> Array:
        """Return the values, H x W float32; 0 where they are unknown: 0, negative or not finite in the file.

        Raises DataError if it is neither a PNG of 16 bits nor an array with two axes.
        """
        values = _npy(self.path) if self.path.suffix.lower() == ".npy" else _png(self.path)
        found = values.astype(np.float32) / np.float32(self.scale)
        return np.where(np.isfinite(found) & (found > 0), found, np.float32(0))


class MappedImage(NamedTuple):
    """A sample: one image, or a left and a right one, and the file of its true values, if any."""

    images: tuple[Path, ...]
    truth: TruthFile | None = None


class MappedImages(ListDataset):
    """Images with or without true values."""

    def __init__(self, samples: Sequence[MappedImage], source: Path, rejected: Sequence[Rejected] = ()) -> None:
        truths = [one.truth for one in samples if one.truth is not None]
        targets = truths if len(truths) == len(samples) else None
        names = [str(one.images[0]) for one in samples]
        super().__init__(list(samples), targets, names=names, files=[source], rejected=rejected)

    def fingerprint(self) -> str:
        """Return a hash of all files' relative paths, sizes and times (not content), and of the scales."""
        root = self.files[0] if self.files[0].is_dir() else self.files[0].parent
        digest = hashlib.sha256()
        for sample in self.samples:
            truth = () if sample.truth is None else (sample.truth.path,)
            entry = [(os.path.relpath(path, root), *size_and_time(path)) for path in (*sample.images, *truth)]
            digest.update(repr((entry, sample.truth and sample.truth.scale)).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def load_maps(paths: Mapping[str, Path], views: int, scale: float | None = None) -> MappedImages:
    """Load images with their true values.

    Args:
        paths: ``{"data": path}``, or by name ``images`` (or ``left`` and ``right``) and ``truth``. A folder has the
            folders of :data:`IMAGES` (or :data:`LEFT` and :data:`RIGHT`) and :data:`TRUTHS`; without the latter, and if
            the path has images or is one, there are no true values.
        views: images of a sample: 1, or 2 for left and right.
        scale: levels per unit; ``None``: by the folder's name, else 1000 for PNGs; 1 for ``.npy``.

    Raises:
        DataError: the path has no usable data. ConfigError: names of paths are unknown.
    """
    check_exists(*paths.values())
    names = ("images",) if views == 1 else ("left", "right")
    if set(paths) == {"data"}:
        source = paths["data"]
        if views == 1 and not source.is_dir():
            return MappedImages([MappedImage((one.path,)) for one in single_image(source)], source)
        found = [_folder(source, own) for own in ((IMAGES,) if views == 1 else (LEFT, RIGHT))]
        folders = [source] if views == 1 and found[0] is None else [one for one in found if one is not None]
        if len(folders) != views:
            raise DataError(
                f"data folder {source} has no folders of left and right images ({' '.join(LEFT)}; {' '.join(RIGHT)}); "
                "rename them, or pass --data_path left=FOLDER right=FOLDER truth=FOLDER"
            )
        truth = _folder(source, tuple(TRUTHS))
    elif {*names} <= set(paths) <= {*names, "truth"}:
        folders, truth = [paths[name] for name in names], paths.get("truth")
        source = folders[0]
    else:
        given = " ".join(f"{name}=FOLDER" for name in (*names, "truth"))
        raise ConfigError(f"--data_path names {', '.join(paths)}; pass --data_path PATH, or {given}")
    return _joined(folders, truth, source, scale)


def _folder(source: Path, names: Sequence[str]) -> Path | None:
    return next((source / name for name in names if (source / name).is_dir()), None)


def _joined(folders: Sequence[Path], truth: Path | None, source: Path, scale: float | None) -> MappedImages:
    """Return the images of the first folder with the files of the same stem in the others."""
    listed = [flat_folder(folder) for folder in folders]
    rejected = [one for table in listed for one in table.rejected]
    others = [{one.path.stem: one.path for one in table} for table in listed[1:]]
    truths, samples = None if truth is None else _truths(truth), list[MappedImage]()
    for one in listed[0]:
        stem = one.path.stem
        missing = [folder for folder, stems in zip(folders[1:], others, strict=True) if stem not in stems]
        right = None if truths is None else truths.get(stem) or truths.get(stem.replace(*KITTI_NAMES, 1))
        if truths is not None and right is None and truth is not None:
            missing.append(truth)
        if missing:
            rejected.append(Rejected(one.path, f"it has no file of the same name in {missing[0]}; add it"))
            continue
        images = (one.path, *(stems[stem] for stems in others))
        samples.append(MappedImage(images, None if right is None else TruthFile(right, _scale(right, scale))))
    if not samples:
        raise DataError(f"no image of {folders[0]} has files of the same name in the other folders; check their names")
    return MappedImages(samples, source, rejected)


def _truths(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; pass the folder of the true values")
    files = [one for one in sorted(folder.iterdir()) if is_image(one.name) or one.suffix.lower() == ".npy"]
    return {one.stem: one for one in files}


def _scale(file: Path, given: float | None) -> float:
    if given is not None:
        return given
    return 1.0 if file.suffix.lower() == ".npy" else TRUTHS.get(file.parent.name, 1000.0)


def _npy(path: Path) -> Array:
    try:
        with path.open("rb") as file:
            version = np.lib.format.read_magic(file)
            reads = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            shape, _, kind = reads[version](file)
        if len(shape) != 2 or kind.kind not in "fiu" or shape[0] * shape[1] > _LONGEST or 0 in shape:
            raise DataError(f"{path}: an array {kind} of shape {shape}; true values are numbers with two axes, H x W")
        found: Array = np.load(path, allow_pickle=False)
        return found
    except DataError:
        raise
    except array_errors() as error:
        raise DataError(f"{path}: cannot be read as .npy ({one_line(error)}); write it by numpy.save") from error


def _png(path: Path) -> Array:
    with opened(path, path) as image:
        if not image.mode.startswith("I"):
            raise DataError(
                f"{path}: an image of mode {image.mode}; true values are PNGs of 16 bits in grey (mode I;16), or .npy"
            )
        try:
            image.load()
        except Exception as error:  # decoders raise nearly anything on damaged data
            raise DataError(f"{path}: truncated or damaged image ({one_line(error)}); replace the file") from error
        return np.array(image)
