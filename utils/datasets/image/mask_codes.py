"""Meaning of the pixels in mask files: class numbers, palette colours, or the numbers of a known data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from engine import Array, DataError, ImageError
from tecoinfer_modelzoo.text import reason_of
from utils.palette import Colour, palette
from utils.preprocess.image.images import opened

IGNORED = -1
"""Class of a pixel that is unknown or not counted."""

LARGEST = np.iinfo(np.int16).max
"""Maximum class number in a mask."""

VOC_CLASSES = (
    *("background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
"""Pascal VOC's classes (Everingham et al., "The PASCAL Visual Object Classes Challenge 2012 Development Kit")."""

BORDER = (224, 224, 192)
"""VOC's colour of the border around objects, 255 in the palette, which is not counted."""

CITYSCAPES = dict(
    zip(
        (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33),
        (
            *("road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign", "vegetation"),
            *("terrain", "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle"),
        ),
        strict=True,
    )
)
"""The evaluated label ids of Cityscapes, in the order of their 19 train ids (Cordts et al. 2016, supplement;
``cityscapesscripts``, "labels"); all others up to 33, and -1 or 255, are not counted."""

CITYSCAPES_IDS = 34

ADE20K_CLASSES = 150
"""Number of classes of ADE20K's scene parsing; 1 to 150 in the files, and 0 for no class."""


@dataclass(frozen=True)
class Code:
    """Mapping from the pixels of mask files to classes.

    Attributes:
        name: its name in ``--data_format`` and in errors.
        levels: class of each allowed level; ``None``: a level is its class.
        colours: class of each allowed RGB colour; ``None``: colours are not allowed.
        classes: names of the classes, if known.
    """

    name: str
    levels: Mapping[int, int] | None = None
    colours: Mapping[Colour, int] | None = None
    classes: tuple[str, ...] | None = None


_CITYSCAPES_LEVELS = dict.fromkeys((*range(CITYSCAPES_IDS), 255), IGNORED)
_CITYSCAPES_LEVELS |= {level: place for place, level in enumerate(CITYSCAPES)}

INDEX = Code("index")
_VOC_COLOURS = {**{colour: place for place, colour in enumerate(palette(len(VOC_CLASSES)))}, BORDER: IGNORED}
VOC = Code("voc", None, _VOC_COLOURS, VOC_CLASSES)
BINARY = Code("binary", {0: 0, 1: 1, 255: 1}, None, ("background", "foreground"))
WHITE_FOREGROUND = Code("binary", {0: 0, 255: 1}, None, BINARY.classes)
"""For masks found to have only 0 and 255; a level of 1 is then an error."""
_TWO = (BINARY, WHITE_FOREGROUND)
CITYSCAPES_CODE = Code("cityscapes", _CITYSCAPES_LEVELS, None, tuple(CITYSCAPES.values()))
ADE20K = Code("ade20k", {level: level - 1 for level in range(ADE20K_CLASSES + 1)})  # 0 becomes IGNORED
CODES = {code.name: code for code in (INDEX, VOC, BINARY, CITYSCAPES_CODE, ADE20K)}


def read_mask(path: Path, code: Code, ignore: int, size: tuple[int, int]) -> Array:
    """Return the class of every pixel of a mask file, H x W int16; :data:`IGNORED` for pixels that are not counted.

    Grey, palette and black-and-white images have one number per pixel, of 8 or 16 bits (for a palette, the index). A
    colour image is read by ``code.colours``, or, if its three channels are equal, as grey. Alpha is dropped. For
    background and foreground, 65535 in 16 bits means 255 if the only other level is 0. If ``code`` keeps levels, the
    level ``ignore`` is not counted.

    JPEG, and WebP that is not lossless, changes levels. Such masks are read for background and foreground only, with a
    threshold of 128. Raises DataError if the mask cannot be read, has not ``size`` (height and width), or has an
    unknown level or colour.
    """
    values, lossy = _values(path, size)
    if values.ndim == 3:
        channels = values[..., :3]
        if code.colours is not None:
            return _of_colours(channels, code.colours, path)
        if not _grey(channels):
            raise DataError(
                f"{path}: a colour image, but --data_format {code.name} expects one class number per pixel; "
                "--data_format voc reads VOC's colours, other colours must be converted to numbers first"
            )
        values = channels[..., 0]
    if code in _TWO:
        values = _shallow(values)
    return _of_levels((_sharp(values, code, path) if lossy else values).astype(np.int64), code, ignore, path)


def only_white(paths: Sequence[Path]) -> bool:
    """Return whether mask files have only the levels 0 and 255, and 255 at all; for JPEG, levels close to these.

    Files that cannot be read are skipped; reading them as masks reports the reason.
    """
    return _only_white(tuple(map(str, paths)))


@lru_cache(8)
def _only_white(paths: tuple[str, ...]) -> bool:
    found = False
    for path in paths:
        try:
            values, lossy = _values(Path(path), None)
        except DataError:
            continue
        if values.ndim == 3 and not _grey(values[..., :3]):
            return False
        values = _shallow(values[..., 0] if values.ndim == 3 else values)
        white = values >= (128 if lossy else 255)
        if lossy:
            near = (values <= _NEAR) | (values >= 255 - _NEAR)
            if near.mean() < _NEAR_SHARE:
                return False
        elif not (white | (values == 0)).all() or values.max(initial=0) > 255:
            return False
        found |= bool(white.any())
    return found


_DEEP_WHITE = 65535
_NEAR, _NEAR_SHARE = 32, 0.8
"""Maximum change of most levels by JPEG in a mask of 0 and 255, and the share of these pixels: edges change more."""


def _grey(channels: Array) -> bool:
    return bool((channels == channels[..., :1]).all())


def _shallow(values: Array) -> Array:
    """Convert 16-bit values to 8 bits if they are only 0 and 65535."""
    if values.max(initial=0) == _DEEP_WHITE and ((values == 0) | (values == _DEEP_WHITE)).all():
        return np.where(values == 0, 0, 255)
    return values


def _sharp(values: Array, code: Code, path: Path) -> Array:
    """Return the levels of a JPEG mask as 0 and 255; raise DataError if it is not for background and foreground."""
    top = int(values.max(initial=0))
    if not top:
        return values
    if code not in _TWO or top < 128:
        raise DataError(
            f"{path}: a JPEG or WebP mask, whose compression changes class numbers (its largest is {top}); write "
            "masks as PNG, or pass --data_format binary if they are 0 and 255"
        )
    return np.where(values < 128, 0, 255)


def _is_lossy(kind: str | None, path: Path) -> bool:
    """Return whether a file's compression changes levels; the format of a WebP file follows its header."""
    if kind != "WEBP":
        return kind in ("JPEG", "MPO")
    with path.open("rb") as stream:
        return b"VP8L" not in stream.read(64)


def _values(path: Path, size: tuple[int, int] | None) -> tuple[Array, bool]:
    """Return the numbers of a mask, H x W or H x W x channels, and whether its compression changes them.

    Its size is checked before decoding; ``None`` accepts any size.
    """
    try:
        with opened(path, path) as image:
            found = image.size
            size = found[::-1] if size is None else size
            if found == size[::-1]:
                image.load()
                mode, values, lossy = image.mode, np.asarray(image), _is_lossy(image.format, path)
    except ImageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise DataError(f"{path}: this mask does not exist; add it, or remove its image") from error
        reason = str(error.args[0]).removeprefix(f"{path}: ")
        raise DataError(f"{path}: cannot be read as a mask: {reason}") from error
    except Exception as error:  # decoders raise nearly anything on damaged data
        raise DataError(f"{path}: cannot be read as a mask ({reason_of(error)}); replace the file") from error
    if found != size[::-1]:
        raise DataError(
            f"{path}: the mask has {found[0]}x{found[1]} pixels, but its image {size[1]}x{size[0]}; replace one of them"
        )
    if mode == "LA":
        return values[..., 0], lossy
    if mode not in ("1", "L", "P", "I", "RGB", "RGBA") and not mode.startswith("I;16"):
        raise DataError(f"{path}: unsupported mode {mode}; write class numbers as an 8 or 16 bit grey or palette PNG")
    return values, lossy


def _of_levels(values: Array, code: Code, ignore: int, path: Path) -> Array:
    """Return the classes of levels, H x W int64."""
    top, low = int(values.max(initial=0)), int(values.min(initial=0))
    if low < 0 and (values[values < 0] != ignore).any():  # possible in TIFF
        raise DataError(f"{path}: {low} is not a class number (0 to {LARGEST}); replace the mask")
    if code.levels is None:
        if top > LARGEST and (values[values > LARGEST] != ignore).any():
            raise DataError(f"{path}: {top} is not a class number (0 to {LARGEST}); replace the mask")
        return np.where(values == ignore, IGNORED, values).astype(np.int16)
    size = max(code.levels) + 1
    table = np.full(size + 1, IGNORED - 1, np.int16)  # the last entry is for all larger levels
    table[list(code.levels)] = list(code.levels.values())
    classes: Array = table[np.where(values < 0, size, np.minimum(values, size))]
    if (classes < IGNORED).any():
        row, column = np.argwhere(classes < IGNORED)[0]
        raise DataError(
            f"{path}: level {values[row, column]} at {column},{row} (column, row) is not in --data_format {code.name}"
            "; correct the mask, or set its format"
        )
    return classes


def _of_colours(channels: Array, colours: Mapping[Colour, int], path: Path) -> Array:
    """Return the classes of RGB colours, H x W int16."""
    weights = np.array([1 << 16, 1 << 8, 1])
    known = np.array(list(colours)) @ weights
    order = np.argsort(known)
    packed = channels.astype(np.int64) @ weights
    places = order[np.minimum(np.searchsorted(known[order], packed), len(known) - 1)]
    wrong = known[places] != packed
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        red, green, blue = channels[row, column].tolist()
        raise DataError(
            f"{path}: colour ({red}, {green}, {blue}) at {column},{row} (column, row) is not a class, "
            f"for {np.count_nonzero(wrong)} pixels in all; save the mask without smoothing, or correct it"
        )
    classes: Array = np.array(list(colours.values()), np.int16)[places]
    return classes
