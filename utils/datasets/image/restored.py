"""Degraded images and their originals: paired folders, or originals from which the degraded image is generated."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np
from PIL import Image

from engine import Array, ConfigError, DataError
from tecoinfer_modelzoo.files import size_and_time
from utils.datasets.base import ListDataset, Rejected, check_exists
from utils.datasets.folders import flat_folder, single_image
from utils.preprocess.image.images import open_image

HIGH = ("HR", "GTmod12", "high", "GT", "gt", "original", "clean", "sharp", "target", "targets")
"""Names of a folder of originals; also those that end in ``_HR``, such as DIV2K's ``DIV2K_valid_HR``."""

LOW = ("LR_bicubic", "LR", "LRbicx2", "LRbicx3", "LRbicx4", "low", "LQ", "lq", "noisy", "blur", "input", "inputs")
"""Names of a folder of degraded images; also those that end in ``_LR_bicubic``. May have a folder per scale: ``X2``."""

DEGRADATIONS = ("bicubic", "noise")
"""``bicubic``: reduced by the scale with Pillow's bicubic filter, which antialiases as MATLAB's ``imresize`` does.
``noise``: Gaussian noise of one standard deviation is added to the levels, then rounded to 0..255."""


class Degradation(NamedTuple):
    """How the degraded image is generated from its original.

    Attributes:
        kind: one of :data:`DEGRADATIONS`.
        scale: the original is cropped at the right and below to multiples of this.
        sigma: standard deviation of the noise in levels of 0..255.
        seed: of the noise; with the file's name it determines the noise of an image.
    """

    kind: str
    scale: int = 1
    sigma: float = 25.0
    seed: int = 0


class ImagePair(NamedTuple):
    """A degraded image and its original; ``low`` is ``None`` if it is generated."""

    low: Path | None
    high: Path


class RestoredImages(ListDataset):
    """Pairs of images as targets and samples, or degraded images alone."""

    def __init__(self, samples: Sequence[ImagePair | Path], source: Path, rejected: Sequence[Rejected] = ()) -> None:
        targets = [one.high for one in samples if isinstance(one, ImagePair)]
        names = [str(shown(one)) for one in samples]
        all_known = len(targets) == len(samples)
        super().__init__(list(samples), targets if all_known else None, names=names, files=[source], rejected=rejected)

    def fingerprint(self) -> str:
        """Return a hash of all files' relative paths, sizes and times (not content)."""
        root = self.files[0] if self.files[0].is_dir() else self.files[0].parent
        digest = hashlib.sha256()
        for sample in self.samples:
            files = [file for file in (sample if isinstance(sample, ImagePair) else (sample,)) if file is not None]
            entry = [(os.path.relpath(path, root), *size_and_time(path)) for path in files]
            digest.update(repr(entry).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def shown(sample: ImagePair | Path) -> Path:
    """Return the file that a sample is named after: the degraded image, else its original."""
    return sample if isinstance(sample, Path) else sample.low or sample.high


def load_restored(paths: Mapping[str, Path], scale: int | None) -> RestoredImages:
    """Load pairs of images, or originals without a degraded image.

    Args:
        paths: ``{"data": path}``, or ``{"high": folder, "low": folder}``. A folder that has folders of :data:`HIGH`
            and :data:`LOW` is read as pairs; one that has the first only, or images, as originals.
        scale: of a folder per scale (``X2``); ``None``: unknown.

    Raises:
        DataError: the path has no usable data. ConfigError: names of paths are unknown.
    """
    check_exists(*paths.values())
    if set(paths) == {"high", "low"}:
        return _paired(paths["high"], paths["low"], scale, paths["high"])
    if set(paths) != {"data"}:
        raise ConfigError(f"--data_path names {', '.join(paths)}; pass --data_path PATH, or high=FOLDER low=FOLDER")
    source = paths["data"]
    if not source.is_dir():
        return RestoredImages([ImagePair(None, one.path) for one in single_image(source)], source)
    high, low = _folder(source, HIGH, "_HR"), _folder(source, LOW, "_LR_bicubic")
    if high is not None and low is not None:
        return _paired(high, low, scale, source)
    found = flat_folder(source if high is None else high)
    return RestoredImages([ImagePair(None, one.path) for one in found], source, found.rejected)


def _folder(source: Path, names: Sequence[str], ending: str) -> Path | None:
    """Return the first folder of some names in a folder, else the first whose name has an ending."""
    own = [source / name for name in names if (source / name).is_dir()]
    others = sorted(one for one in source.iterdir() if one.name.endswith(ending) and one.is_dir())
    return next(iter([*own, *others]), None)


def _paired(high: Path, low: Path, scale: int | None, source: Path) -> RestoredImages:
    """Pair the images of two folders by their stems; a degraded image's may end in ``x2``, as DIV2K's do."""
    scales = sorted(one for one in low.iterdir() if re.fullmatch(r"[xX]\d+", one.name) and one.is_dir())
    if scales:
        chosen = [one for one in scales if scale is None or int(one.name[1:]) == scale]
        if len(chosen) != 1:
            listed = ", ".join(one.name for one in scales)
            raise DataError(f"data folder {low} has the scales {listed}, the model needs "
                            f"{'one of them' if scale is None else f'X{scale}'}; pass --scale")  # fmt: skip
        low = chosen[0]
    originals, degraded = flat_folder(high), flat_folder(low)
    by_stem = {one.path.stem: one.path for one in degraded}
    by_stem = {re.sub(r"[xX]\d+$", "", stem): path for stem, path in by_stem.items()} | by_stem
    samples, rejected = list[ImagePair](), [*originals.rejected, *degraded.rejected]
    for one in originals:
        partner = by_stem.get(one.path.stem)
        if partner is None:
            rejected.append(Rejected(one.path, f"it has no image of the same name in {low}; add it"))
        else:
            samples.append(ImagePair(partner, one.path))
    used = {pair.low for pair in samples}
    rejected += [
        Rejected(one.path, f"it has no original of the same name in {high}; add it")
        for one in degraded
        if one.path not in used
    ]
    if not samples:
        raise DataError(f"no image of {high} has one of the same name in {low}; check the two folders")
    return RestoredImages(samples, source, rejected)


def read_pair(pair: ImagePair, how: Degradation) -> tuple[Array, Array]:
    """Return the degraded image and its original, H x W x 3 uint8, RGB.

    Raises:
        DataError: a file cannot be read, or the original is smaller than the scale.
    """
    high = np.asarray(open_image(pair.high))
    if pair.low is not None:
        return np.asarray(open_image(pair.low)), high
    height, width = (side - side % how.scale for side in high.shape[:2])
    if not height or not width:
        raise DataError(f"{pair.high}: {high.shape[1]} x {high.shape[0]} pixels are fewer than the scale {how.scale}")
    high = high[:height, :width]
    if how.kind == "noise":
        return _noisy(high, how, pair.high.name), high
    size = (width // how.scale, height // how.scale)
    return np.asarray(Image.fromarray(high).resize(size, Image.Resampling.BICUBIC)), high


def _noisy(pixels: Array, how: Degradation, name: str) -> Array:
    """Return an image with noise that depends on the seed and the file's name only, not on the order of files."""
    noise = np.random.default_rng([how.seed, crc32(name.encode())]).normal(0.0, how.sigma, pixels.shape)
    levels: Array = np.rint(pixels + noise).clip(0, 255).astype(np.uint8)
    return levels
