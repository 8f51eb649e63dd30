"""Images with the class of every pixel: two folders, Pascal VOC, Cityscapes, ADE20K, and COCO's JSON."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from engine import Array, ConfigError, DataError
from tecoinfer_modelzoo.files import not_a_file_reason, size_and_time, text_of
from tecoinfer_modelzoo.text import one_line
from tecoinfer_modelzoo.trees import below
from utils.datasets.base import ListDataset, Rejected, check_exists
from utils.datasets.folders import flat_folder, is_image, single_image
from utils.datasets.image.coco import leaves
from utils.datasets.image.mask_codes import CODES, INDEX, WHITE_FOREGROUND, only_white, read_mask
from utils.datasets.image.objects import shown

AUTO, COCO = "auto", "coco"
FORMATS = (AUTO, *CODES, COCO)
"""Values of ``--data_format``; ``auto`` chooses by the folders."""

IGNORE = 255
"""Default of ``--ignore_label``: the level of a mask that is not counted."""

FOREGROUND, NOTHING = "masks_255_foreground", "masks_255_ignored"
"""Names of counts: the meaning of 255 in masks that have only 0 and 255."""

SEEN = 64
"""Number of masks of a data set that are read to find the meaning of 255."""

IMAGES, MASKS = ("images", "imgs", "img", "pictures"), ("masks", "labels", "annotations", "mask", "gt")
"""Names of the two folders with images and masks of the same stems."""

SUFFIXES = ("_mask", "_label", "-mask")
"""Allowed suffixes of a mask's stem next to its image."""

JSON_FILES = ("val.json", "instances.json", "annotations.json")
"""A folder that has a file with one of these names is loaded through it."""

TEXTS = (".csv", ".json", ".md", ".txt", ".xml", ".yaml", ".yml")
"""Endings of files that describe the images next to them: licences, lists, annotations for other tasks."""


class Truth(Protocol):
    """Ground truth of one image; it is read together with the image."""

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes in :meth:`read`; ``None``: those of the model."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files it is read from."""

    def read(self, size: tuple[int, int]) -> Array:
        """Return the class of every pixel, H x W int16, negative if not counted; size is H and W.

        Raises DataError if it cannot be read, or has another size.
        """


@dataclass(frozen=True)
class MaskFile:
    """A mask in its own file.

    Attributes:
        code: one of :data:`~utils.datasets.image.mask_codes.CODES`. ignore: level that is not counted.
        others: masks of the data set that determine the meaning of 255; empty if it is given.
    """

    path: Path
    code: str
    ignore: int = IGNORE
    others: tuple[Path, ...] = field(default=(), repr=False, compare=False)

    @property
    def classes(self) -> None:
        """``None``: the file has the model's own numbers."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The mask."""
        return (self.path,)

    def read(self, size: tuple[int, int]) -> Array:
        """Return the class of every pixel, see :meth:`Truth.read`."""
        return read_mask(self.path, CODES[self.code], self.ignore, size)

    def read_for(self, size: tuple[int, int], classes: int | None) -> tuple[Array, str]:
        """Return the class of every pixel for a model of so many classes (``None``: unknown), and the meaning of 255.

        If the data set's masks have only 0 and 255, they are background and foreground for a model of two classes
        (:data:`FOREGROUND`). For any other model 255 is not counted (:data:`NOTHING`), as in masks with other numbers.
        ``size`` is the image's height and width. Raises DataError if the mask cannot be read, or has another size.
        """
        if not self.others or not only_white(self.others):
            return self.read(size), ""
        if classes == len(WHITE_FOREGROUND.classes or ()):
            return read_mask(self.path, WHITE_FOREGROUND, self.ignore, size), FOREGROUND
        return self.read(size), NOTHING


class Labelled(NamedTuple):
    """An image and its ground truth."""

    image: Path
    truth: Truth


class Reading(NamedTuple):
    """Options for reading a data set.

    Attributes:
        data_format: one of :data:`FORMATS`.
        split: part of the data set, such as ``val``.
        ignore: level of a mask that is not counted; ``None``: 255, unless masks have only 0 and 255.
        overlap, unlisted: see :func:`utils.datasets.image.coco_masks.load_coco`.
    """

    data_format: str = AUTO
    split: str = "val"
    ignore: int | None = None
    overlap: str = "ignore"
    unlisted: str = "refuse"


class MaskedImages(ListDataset):
    """Images with or without ground truth."""

    def __init__(self, samples: Sequence[Labelled | Path], source: Path, rejected: Sequence[Rejected] = ()) -> None:
        truths = [sample.truth for sample in samples if isinstance(sample, Labelled)]
        targets = truths if len(truths) == len(samples) else None
        names = [str(image_of(sample)) for sample in samples]
        super().__init__(list(samples), targets, names=names, files=[source], rejected=rejected)

    def fingerprint(self) -> str:
        """Return a hash of all files' relative paths, sizes and times (not content), and of how they are read."""
        root = self.files[0] if self.files[0].is_dir() else self.files[0].parent
        digest = hashlib.sha256()
        for sample in self.samples:
            truth = sample.truth if isinstance(sample, Labelled) else None
            files = (image_of(sample), *(truth.files if truth is not None else ()))
            entry = [(os.path.relpath(path, root), *size_and_time(path)) for path in files]
            digest.update(repr(entry).encode("utf-8", "surrogatepass"))
            digest.update(repr(truth).replace(str(root), "").encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def image_of(sample: Labelled | Path) -> Path:
    """Return the image of a sample."""
    return sample.image if isinstance(sample, Labelled) else sample


def load_masks(paths: Mapping[str, Path], how: Reading | None = None) -> MaskedImages:
    """Load images, with their masks if there are any.

    ``paths`` is ``{"data": path}``, or ``{"images": folder, "masks": folder or JSON file}``. A ``.json`` file is COCO's
    (:func:`utils.datasets.image.coco_masks.load_coco`). A folder is checked in this order: Pascal VOC (``JPEGImages``,
    ``SegmentationClass``, also below ``VOC2012`` and similar), Cityscapes (``leftImg8bit``, ``gtFine``), ADE20K
    (``images/validation``, ``annotations/validation``), a JSON file of :data:`JSON_FILES`, two folders with names in
    :data:`IMAGES` and :data:`MASKS`, masks next to their images (``a.jpg`` and ``a.png``, or ``a_mask.png``), otherwise
    images without masks, as for a single image. Raises DataError if the path has no usable data, and ConfigError if
    names of paths are unknown.
    """
    how = how or Reading()
    check_exists(*paths.values())
    if set(paths) == {"images", "masks"}:
        images, masks = paths["images"], paths["masks"]
        if masks.suffix.lower() == ".json":
            return _coco(masks, how, images)
        if not images.is_dir() or not masks.is_dir():
            raise DataError(f"{images} and {masks} must be folders, of images and of masks with the same stems")
        return _matched(images, masks, _code(how, "index"), how, masks)
    if set(paths) != {"data"}:
        raise ConfigError("segmentation takes --data_path PATH, or --data_path images=FOLDER masks=FOLDER")
    path = paths["data"]
    if path.is_file():
        return _coco(path, how) if path.suffix.lower() == ".json" else _plain(path)
    found = next((made for layout in LAYOUTS if (made := layout(path, how)) is not None), None)
    return _plain(path) if found is None else found


def _plain(path: Path) -> MaskedImages:
    """Return images without masks; text files next to them are skipped."""
    found = flat_folder(path) if path.is_dir() else single_image(path)
    rejected = [one for one in found.rejected if one.path.suffix.lower() not in TEXTS]
    return MaskedImages([sample.path for sample in found], path, rejected)


def _coco(file: Path, how: Reading, images: Path | None = None) -> MaskedImages:
    from utils.datasets.image.coco_masks import load_coco

    samples, rejected = load_coco(file, images, overlap=how.overlap, unlisted=how.unlisted)
    return _dataset([Labelled(*sample) for sample in samples], rejected, file)


def _dataset(samples: Sequence[Labelled], rejected: Sequence[Rejected], source: Path) -> MaskedImages:
    if samples:
        return MaskedImages(samples, source, rejected)
    first = f", the first: {rejected[0].path}: {rejected[0].reason}" if rejected else ""
    raise DataError(f"{source}: no image with a mask{first}; check the path and --data_format")


def _coco_folder(path: Path, how: Reading) -> MaskedImages | None:
    file = next((path / name for name in JSON_FILES if (path / name).is_file()), None)
    return None if file is None else _coco(file, how)


def _voc(path: Path, how: Reading) -> MaskedImages | None:
    """Load Pascal VOC's development kit, or a year of it, by its list of a split."""
    years = [path, *(year for place in ("VOC", "VOCdevkit/VOC") for year in sorted(path.glob(f"{place}[0-9]*"))[::-1])]
    root = next((year for year in years if (year / "SegmentationClass").is_dir()), None)
    if root is None or not (root / "JPEGImages").is_dir():
        return None
    listed = root / "ImageSets" / "Segmentation" / f"{how.split}.txt"
    code = _code(how, "voc")
    try:
        stems = list(dict.fromkeys(text_of(listed).split()))
    except (OSError, ValueError) as error:
        reason = one_line(error)
        raise DataError(f"{listed} cannot be read ({reason}); add this list, or use another --split") from error
    outside = next((stem for stem in stems if leaves(root / "JPEGImages", f"{stem}.jpg")), None)
    if outside is not None:
        raise DataError(f"{listed}: {shown(outside)} leaves the data folder; list names of images in JPEGImages")
    pairs = [(root / "JPEGImages" / f"{stem}.jpg", root / "SegmentationClass" / f"{stem}.png") for stem in stems]
    return _paired(pairs, code, how, path)


def _cityscapes(path: Path, how: Reading) -> MaskedImages | None:
    """Load Cityscapes: images by split and city, with their label ids, or train ids without label ids."""
    images, truth = path / "leftImg8bit" / how.split, path / "gtFine" / how.split
    if not (path / "leftImg8bit").is_dir() or not (path / "gtFine").is_dir():
        return None
    pairs, codes = [], []
    for image in sorted(images.glob("*/*_leftImg8bit.png")):
        stem = truth / image.parent.name / image.name.removesuffix("_leftImg8bit.png")
        ids, trained = Path(f"{stem}_gtFine_labelIds.png"), Path(f"{stem}_gtFine_labelTrainIds.png")
        given = how.data_format == "index" or (trained.is_file() and not ids.is_file())
        pairs.append((image, trained if given else ids))
        codes.append("index" if given else _code(how, "cityscapes"))
    return _paired(pairs, codes, how, path)


def _ade20k(path: Path, how: Reading) -> MaskedImages | None:
    split = {"val": "validation", "train": "training"}.get(how.split, how.split)
    images, masks = path / "images" / split, path / "annotations" / split
    if not images.is_dir() or not masks.is_dir():
        return None
    return _matched(images, masks, _code(how, "ade20k"), how, path)


def _folders(path: Path, how: Reading) -> MaskedImages | None:
    """Load two folders of images and masks with the same stems."""
    images = next((path / name for name in IMAGES if (path / name).is_dir()), None)
    masks = next((path / name for name in MASKS if (path / name).is_dir()), None)
    return None if images is None or masks is None else _matched(images, masks, _code(how, "index"), how, path)


def _beside(path: Path, how: Reading) -> MaskedImages | None:
    """Load images whose masks are next to them; ``None`` if no image has one."""
    names = sorted(entry.name for entry in os.scandir(path) if entry.is_file() and is_image(entry.name))
    pngs = {name for name in names if name.lower().endswith(".png")}
    masks: dict[str, str] = {}
    for name in names:
        stem = Path(name).stem
        for mask in (*(f"{stem}{suffix}.png" for suffix in SUFFIXES), f"{stem}.png"):
            if mask in pngs and mask != name:
                masks[name] = mask
                break
    if not masks:
        return None
    taken = set(masks.values())
    pairs = [(path / name, path / masks.get(name, f"{Path(name).stem}.png")) for name in names if name not in taken]
    known = [(image, mask) for image, mask in pairs if image != mask]
    lone = [Rejected(image, "it has no mask next to it") for image, mask in pairs if image == mask]
    found = _paired(known, _code(how, "index"), how, path)
    return MaskedImages(found.samples, path, [*lone, *found.rejected])


LAYOUTS: tuple[Callable[[Path, Reading], MaskedImages | None], ...]
LAYOUTS = (_voc, _cityscapes, _ade20k, _coco_folder, _folders, _beside)
"""Loaders of a folder in the order they are tried; ``None``: the folder has another layout."""


def _code(how: Reading, usual: str) -> str:
    """Return the code of ``--data_format``, or the default of the layout."""
    return how.data_format if how.data_format in CODES else usual


def _matched(images: Path, masks: Path, code: str, how: Reading, source: Path) -> MaskedImages:
    """Pair the images below a folder with the masks of the same relative path and stem below another."""
    (by_stem, many), (found, others) = _by_stem(images), _by_stem(masks)
    pairs = [(path, found.get(stem) or masks / f"{stem}.png") for stem, path in by_stem.items()]
    shared = "it shares its name with {}, so its mask is ambiguous; rename one of them"
    lone = [Rejected(path, shared.format(first.name)) for path, first in many]
    lone += [Rejected(path, f"it has the same image as {first.name}; remove one of them") for path, first in others]
    lone += [Rejected(path, f"{images} has no image {stem}") for stem, path in found.items() if stem not in by_stem]
    paired = _paired(pairs, code, how, source)
    return MaskedImages(paired.samples, source, [*paired.rejected, *lone])


def _by_stem(folder: Path) -> tuple[dict[str, Path], list[tuple[Path, Path]]]:
    """Return the images below a folder by relative path without ending and mask suffix, and pairs of duplicates."""
    found: dict[str, Path] = {}
    others = []
    for path in sorted(below(folder)):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and is_image(path.name) and path.is_file():
            stem = path.relative_to(folder).with_suffix("").as_posix()
            key = next((stem.removesuffix(end) for end in SUFFIXES if stem.endswith(end)), stem)
            if found.setdefault(key, path) is not path:
                others.append((path, found[key]))
    return found, others


def _paired(pairs: Sequence[tuple[Path, Path]], codes: str | Sequence[str], how: Reading, source: Path) -> MaskedImages:
    """Return pairs of image and mask as a data set; incomplete pairs are rejected."""
    samples, rejected = [], []
    listed = [codes] * len(pairs) if isinstance(codes, str) else codes
    for (image, mask), code in zip(pairs, listed, strict=True):
        if not os.path.isfile(image):  # Path.is_file raises if a name is too long
            rejected.append(Rejected(image, f"it {not_a_file_reason(image)} but is listed"))
        elif not os.path.isfile(mask):
            rejected.append(Rejected(image, f"its mask {mask} {not_a_file_reason(mask)}"))
        else:
            samples.append((image, mask, code))
    is_open = how.ignore is None and how.data_format == AUTO  # the meaning of 255 is not given by a flag
    others = _spread([mask for _, mask, code in samples if code == INDEX.name]) if is_open else ()
    ignore = IGNORE if how.ignore is None else how.ignore
    labelled = [
        Labelled(one, MaskFile(m, code, ignore, others if code == INDEX.name else ())) for one, m, code in samples
    ]
    return _dataset(labelled, rejected, source)


def _spread(masks: Sequence[Path]) -> tuple[Path, ...]:
    """Return at most :data:`SEEN` of the masks, spread over the data set."""
    return tuple(masks[i * len(masks) // min(SEEN, len(masks))] for i in range(min(SEEN, len(masks))))
