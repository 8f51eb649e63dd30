"""Images with the class of every pixel: two folders, Pascal VOC, Cityscapes, ADE20K, and COCO's JSON."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from engine import Array, ConfigError, DataError
from tecoinfer_modelzoo.files import no_file, size_and_time, text_of
from tecoinfer_modelzoo.text import one_line
from tecoinfer_modelzoo.trees import below
from utils.datasets.base import ListDataset, Rejected
from utils.datasets.folders import flat_folder, is_picture, single_picture
from utils.datasets.image.coco import leaves
from utils.datasets.image.mask_codes import CODES, INDEX, WHITE_FOREGROUND, only_white, read_mask
from utils.datasets.image.objects import shown

AUTO, COCO = "auto", "coco"
FORMATS = (AUTO, *CODES, COCO)
"""What ``--data_format`` may be: ``auto`` tells by the folders."""

IGNORE = 255
"""Level of a mask that counts for nothing, unless ``--ignore_label`` says another one."""

FOREGROUND, NOTHING = "masks_255_foreground", "masks_255_ignored"
"""What 255 was taken for in masks that hold 0 and 255 only; the names of their counts."""

SEEN = 64
"""Masks of a data set that are looked at for what 255 means in it."""

IMAGES, MASKS = ("images", "imgs", "img", "pictures"), ("masks", "labels", "annotations", "mask", "gt")
"""Names of the two folders that hold images and masks of the same stems."""

SUFFIXES = ("_mask", "_label", "-mask")
"""What may stand between stem and ending of a mask beside its image."""

JSON_FILES = ("val.json", "instances.json", "annotations.json")
"""A folder that holds a file of one of these names is read through it."""

TEXTS = (".csv", ".json", ".md", ".txt", ".xml", ".yaml", ".yml")
"""Endings of files that describe the images they lie beside: licences, lists, annotations for other tasks."""


class Truth(Protocol):
    """Where the right classes of one image are; they are read when the image is."""

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names that the numbers of :meth:`read` stand for; ``None``: they are the model's."""

    @property
    def files(self) -> tuple[Path, ...]:
        """What it is read from."""

    def read(self, size: tuple[int, int]) -> Array:
        """Return the class of every pixel, H x W int16, negative where it counts for nothing; size is H and W.

        Raises:
            DataError: it cannot be read, or is not of this size.
        """


@dataclass(frozen=True)
class MaskFile:
    """A mask in a file of its own.

    Attributes:
        path: the file.
        code: one of :data:`~utils.datasets.image.mask_codes.CODES`.
        ignore: level that counts for nothing.
        others: masks of the data set that show together what 255 means; empty where that is said.
    """

    path: Path
    code: str
    ignore: int = IGNORE
    others: tuple[Path, ...] = field(default=(), repr=False, compare=False)

    @property
    def classes(self) -> None:
        """The file holds the model's own numbers."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The mask."""
        return (self.path,)

    def read(self, size: tuple[int, int]) -> Array:
        """Return the class of every pixel, as :meth:`Truth.read` says."""
        return read_mask(self.path, CODES[self.code], self.ignore, size)

    def read_for(self, size: tuple[int, int], classes: int | None) -> tuple[Array, str]:
        """Return the class of every pixel for a model of so many classes, and what 255 was taken for.

        Where the data set's masks hold 0 and 255 only, a model of two classes has them as background and foreground
        (:data:`FOREGROUND`). For any other model 255 counts for nothing (:data:`NOTHING`), as where masks hold numbers.

        Args:
            size: height and width of the image. classes: ``None``: not known.

        Raises:
            DataError: the mask cannot be read, or is not of this size.
        """
        if not self.others or not only_white(self.others):
            return self.read(size), ""
        if classes == len(WHITE_FOREGROUND.classes or ()):
            return read_mask(self.path, WHITE_FOREGROUND, self.ignore, size), FOREGROUND
        return self.read(size), NOTHING


class Labelled(NamedTuple):
    """An image, and where its right classes are."""

    picture: Path
    truth: Truth


class Reading(NamedTuple):
    """How a data set is to be read.

    Attributes:
        data_format: one of :data:`FORMATS`.
        split: the part of a data set that has several, such as ``val``.
        ignore: level of a mask that counts for nothing; ``None``: 255, unless masks hold 0 and 255 only.
        overlap, unlisted: what :func:`utils.datasets.image.coco_masks.load_coco` takes.
    """

    data_format: str = AUTO
    split: str = "val"
    ignore: int | None = None
    overlap: str = "ignore"
    unlisted: str = "refuse"


class MaskedPictures(ListDataset):
    """Images, and where the classes of their pixels are, where they are known.

    Args:
        samples: :class:`Labelled` or paths.
        source: the file or folder they come from.
        rejected: what cannot be a sample.
    """

    def __init__(self, samples: Sequence[Labelled | Path], source: Path, rejected: Sequence[Rejected] = ()) -> None:
        truths = [sample.truth for sample in samples if isinstance(sample, Labelled)]
        targets = truths if len(truths) == len(samples) else None
        names = [str(picture_of(sample)) for sample in samples]
        super().__init__(list(samples), targets, names=names, files=[source], rejected=rejected)

    def fingerprint(self) -> str:
        """Return a hash of all files' paths below the source's folder, their sizes and times, and of how they are read.

        Images and masks are not read: a change that keeps size and time is not seen.
        """
        root = self.files[0] if self.files[0].is_dir() else self.files[0].parent
        digest = hashlib.sha256()
        for sample in self.samples:
            truth = sample.truth if isinstance(sample, Labelled) else None
            files = (picture_of(sample), *(truth.files if truth is not None else ()))
            digest.update(
                repr([(os.path.relpath(path, root), *size_and_time(path)) for path in files]).encode(
                    "utf-8", "surrogatepass"
                )
            )
            digest.update(repr(truth).replace(str(root), "").encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def picture_of(sample: Labelled | Path) -> Path:
    """Return a sample's image."""
    return sample.picture if isinstance(sample, Labelled) else sample


def load_masks(paths: Mapping[str, Path], how: Reading | None = None) -> MaskedPictures:
    """Load images, and where their masks are, where there are any.

    Args:
        paths: ``{"data": path}``, or ``{"images": folder, "masks": folder or JSON file}``. A ``.json`` file is COCO's
            (:func:`utils.datasets.image.coco_masks.load_coco`). A folder is looked at in this order: Pascal VOC
            (``JPEGImages``, ``SegmentationClass``, also below ``VOC2012`` and the like), Cityscapes (``leftImg8bit``,
            ``gtFine``), ADE20K (``images/validation``, ``annotations/validation``), a JSON file of
            :data:`JSON_FILES`, two folders as :data:`IMAGES` and :data:`MASKS` name them, masks beside their images
            (``a.jpg`` and ``a.png``, or ``a_mask.png``), and otherwise images without masks, as is one image.
        how: how to read it.

    Raises:
        DataError: nothing usable at the path. ConfigError: unknown names of paths.
    """
    how = how or Reading()
    for path in paths.values():
        if not path.exists():
            raise DataError(f"data path {path} does not exist; check the path")
    if set(paths) == {"images", "masks"}:
        images, masks = paths["images"], paths["masks"]
        return _coco(masks, how, images) if masks.suffix.lower() == ".json" else _two_folders(images, masks, how)
    if set(paths) != {"data"}:
        raise ConfigError("segmentation takes --data_path PATH, or --data_path images=FOLDER masks=FOLDER")
    return _load(paths["data"], how)


def _load(path: Path, how: Reading) -> MaskedPictures:
    if path.is_file():
        return _coco(path, how) if path.suffix.lower() == ".json" else _plain(path)
    for layout in LAYOUTS:
        found = layout(path, how)
        if found is not None:
            return found
    return _plain(path)


def _plain(path: Path) -> MaskedPictures:
    """Return images without masks; texts beside them are passed over."""
    found = flat_folder(path) if path.is_dir() else single_picture(path)
    rejected = [one for one in found.rejected if one.path.suffix.lower() not in TEXTS]
    return MaskedPictures([sample.path for sample in found], path, rejected)


def _coco(file: Path, how: Reading, images: Path | None = None) -> MaskedPictures:
    from utils.datasets.image.coco_masks import load_coco

    samples, rejected = load_coco(file, images, overlap=how.overlap, unlisted=how.unlisted)
    return _dataset([Labelled(*sample) for sample in samples], rejected, file)


def _dataset(samples: Sequence[Labelled], rejected: Sequence[Rejected], source: Path) -> MaskedPictures:
    if samples:
        return MaskedPictures(samples, source, rejected)
    first = f", the first: {rejected[0].path}: {rejected[0].reason}" if rejected else ""
    raise DataError(f"{source}: no image with a mask in it{first}; check the path and --data_format")


# ------------------------------------------------------------------------------------------------------------- layouts


def _coco_folder(path: Path, how: Reading) -> MaskedPictures | None:
    """Load a folder through the JSON file in it."""
    file = next((path / name for name in JSON_FILES if (path / name).is_file()), None)
    return None if file is None else _coco(file, how)


def _voc(path: Path, how: Reading) -> MaskedPictures | None:
    """Load Pascal VOC's development kit, or a year of it, by its list of a split."""
    years = [
        path,
        *sorted(path.glob("VOC[0-9]*"), reverse=True),
        *sorted(path.glob("VOCdevkit/VOC[0-9]*"), reverse=True),
    ]
    root = next((year for year in years if (year / "SegmentationClass").is_dir()), None)
    if root is None or not (root / "JPEGImages").is_dir():
        return None
    listed = root / "ImageSets" / "Segmentation" / f"{how.split}.txt"
    code = _code(how, "voc")
    try:
        stems = list(dict.fromkeys(text_of(listed).split()))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{listed} cannot be read ({one_line(error)}); give the list of a split, or another --split"
        ) from error
    outside = next((stem for stem in stems if leaves(root / "JPEGImages", f"{stem}.jpg")), None)
    if outside is not None:
        raise DataError(f"{listed}: {shown(outside)} leaves the data folder; list names of images in JPEGImages")
    pairs = [(root / "JPEGImages" / f"{stem}.jpg", root / "SegmentationClass" / f"{stem}.png") for stem in stems]
    return _paired(pairs, code, how, path)


def _cityscapes(path: Path, how: Reading) -> MaskedPictures | None:
    """Load Cityscapes: images by split and city, and their label ids, or train ids where only those are there."""
    images, truth = path / "leftImg8bit" / how.split, path / "gtFine" / how.split
    if not (path / "leftImg8bit").is_dir() or not (path / "gtFine").is_dir():
        return None
    pairs, codes = [], []
    for picture in sorted(images.glob("*/*_leftImg8bit.png")):
        stem = truth / picture.parent.name / picture.name.removesuffix("_leftImg8bit.png")
        ids, trained = Path(f"{stem}_gtFine_labelIds.png"), Path(f"{stem}_gtFine_labelTrainIds.png")
        given = how.data_format == "index" or (trained.is_file() and not ids.is_file())
        pairs.append((picture, trained if given else ids))
        codes.append("index" if given else _code(how, "cityscapes"))
    return _paired(pairs, codes, how, path)


def _ade20k(path: Path, how: Reading) -> MaskedPictures | None:
    """Load ADE20K's scene parsing data."""
    split = {"val": "validation", "train": "training"}.get(how.split, how.split)
    images, masks = path / "images" / split, path / "annotations" / split
    if not images.is_dir() or not masks.is_dir():
        return None
    return _matched(images, masks, _code(how, "ade20k"), how, path)


def _folders(path: Path, how: Reading) -> MaskedPictures | None:
    """Load two folders of images and masks with the same stems."""
    images = next((path / name for name in IMAGES if (path / name).is_dir()), None)
    masks = next((path / name for name in MASKS if (path / name).is_dir()), None)
    return None if images is None or masks is None else _matched(images, masks, _code(how, "index"), how, path)


def _beside(path: Path, how: Reading) -> MaskedPictures | None:
    """Load images whose masks lie beside them; ``None`` where no image has one."""
    names = sorted(entry.name for entry in os.scandir(path) if entry.is_file() and is_picture(entry.name))
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
    known = [(picture, mask) for picture, mask in pairs if picture != mask]
    lone = [Rejected(picture, "it has no mask beside it") for picture, mask in pairs if picture == mask]
    found = _paired(known, _code(how, "index"), how, path)
    return MaskedPictures(found.samples, path, [*lone, *found.rejected])


LAYOUTS: tuple[Callable[[Path, Reading], MaskedPictures | None], ...] = (
    _voc,
    _cityscapes,
    _ade20k,
    _coco_folder,
    _folders,
    _beside,
)
"""Ways to read a folder, in the order they are tried; ``None``: it is none of this kind."""


def _code(how: Reading, usual: str) -> str:
    """Return the code that ``--data_format`` names, or the layout's usual one."""
    return how.data_format if how.data_format in CODES else usual


def _two_folders(images: Path, masks: Path, how: Reading) -> MaskedPictures:
    if not images.is_dir() or not masks.is_dir():
        raise DataError(f"{images} and {masks} must be folders, of images and of masks with the same stems")
    return _matched(images, masks, _code(how, "index"), how, masks)


def _matched(images: Path, masks: Path, code: str, how: Reading, source: Path) -> MaskedPictures:
    """Pair the images below one folder with the masks of the same path and stem below another."""
    (pictures, many), (found, others) = _by_stem(images), _by_stem(masks)
    pairs = [(path, found.get(stem) or masks / f"{stem}.png") for stem, path in pictures.items()]
    lone = [
        *(
            Rejected(path, f"it has the name of {first.name}, and which mask goes with it is not known")
            for path, first in many
        ),
        *(
            Rejected(path, f"it goes with the image that {first.name} goes with; remove one of them")
            for path, first in others
        ),
    ]
    lone += [
        Rejected(path, f"there is no image {stem} in {images}") for stem, path in found.items() if stem not in pictures
    ]
    paired = _paired(pairs, code, how, source)
    return MaskedPictures(paired.samples, source, [*paired.rejected, *lone])


def _by_stem(folder: Path) -> tuple[dict[str, Path], list[tuple[Path, Path]]]:
    """Return the images below a folder by their path in it without the ending, and without a mask's suffix.

    The second value are those whose name an earlier one has taken, each with that one.
    """
    found: dict[str, Path] = {}
    others = []
    for path in sorted(below(folder)):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and is_picture(path.name) and path.is_file():
            stem = path.relative_to(folder).with_suffix("").as_posix()
            key = next((stem.removesuffix(end) for end in SUFFIXES if stem.endswith(end)), stem)
            if found.setdefault(key, path) is not path:
                others.append((path, found[key]))
    return found, others


def _paired(
    pairs: Sequence[tuple[Path, Path]], codes: str | Sequence[str], how: Reading, source: Path
) -> MaskedPictures:
    """Return pairs of image and mask as a data set; those that lack either are rejected."""
    samples, rejected = [], []
    listed = [codes] * len(pairs) if isinstance(codes, str) else codes
    for (picture, mask), code in zip(pairs, listed, strict=True):
        if not os.path.isfile(picture):  # Path.is_file raises for a name that is too long
            rejected.append(Rejected(picture, f"it {no_file(picture)} but is listed"))
        elif not os.path.isfile(mask):
            rejected.append(Rejected(picture, f"its mask {mask} {no_file(mask)}"))
        else:
            samples.append((picture, mask, code))
    others = _spread([mask for _, mask, code in samples if code == INDEX.name]) if _is_open(how) else ()
    ignore = IGNORE if how.ignore is None else how.ignore
    return _dataset(
        [Labelled(one, MaskFile(m, code, ignore, others if code == INDEX.name else ())) for one, m, code in samples],
        rejected,
        source,
    )


def _is_open(how: Reading) -> bool:
    """Say whether neither flag says what 255 means."""
    return how.ignore is None and how.data_format == AUTO


def _spread(masks: Sequence[Path]) -> tuple[Path, ...]:
    """Return at most :data:`SEEN` of the masks, from all over the data set."""
    return tuple(masks[i * len(masks) // min(SEEN, len(masks))] for i in range(min(SEEN, len(masks))))
