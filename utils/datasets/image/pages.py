"""Pages with the text lines on them: PaddleOCR's ``Label.txt``, ICDAR 2015's ``gt_*.txt``, a text per page, or none."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError
from tecoinfer_modelzoo.files import size_and_time, text_of
from tecoinfer_modelzoo.text import one_line
from utils.datasets.base import Dataset, ListDataset, Rejected, check_exists
from utils.datasets.folders import NOT_AN_IMAGE, flat_folder, is_image, single_image
from utils.datasets.image.objects import shown

LABEL_FILES = ("Label.txt", "label.txt", "gt.txt")
"""A folder that has a file with one of these names is loaded through it."""

IGNORED = ("###", "*")
"""Transcriptions of illegible lines; detecting them is neither right nor wrong."""

FARTHEST = 1e6
"""Maximum coordinate in pixels."""

MOST_LINES = 20_000
"""Maximum number of lines on a page; a newspaper page has two thousand."""


class Word(NamedTuple):
    """A line of a page.

    Attributes:
        text: transcription; ``None``: illegible.
        outline: N x 2 float64 (x, y), N at least 3, in pixels of the upright image.
    """

    text: str | None
    outline: Array


class Truth(NamedTuple):
    """Ground truth of a page: its lines or, if these are ``None``, only their text in reading order, a line each."""

    words: tuple[Word, ...] | None
    text: str = ""


def load_pages(paths: Mapping[str, Path]) -> ListDataset:
    """Load pages, with their lines if known.

    - ``data``: a file of lines ``IMAGE<tab>JSON``, PaddleOCR's ``Label.txt``, or a folder with one; the JSON is a
      list of objects with ``transcription`` and ``points``. Paths of images are relative to the file's folder or, as
      PPOCRLabel writes them, to its parent.
    - ``data``: a folder with images and for each a ``gt_STEM.txt`` (ICDAR 2015: ``x1,y1,..,x4,y4,text`` per line), or
      a ``STEM.txt`` with the page's text. ``images`` and ``labels``: the same in two folders.
    - ``data``: an image, or a folder with only images: pages without ground truth.

    Files are UTF-8, with or without a byte order mark. A line that cannot be read rejects its page, with file, line and
    reason in ``rejected``. Names are the images' paths. Raises DataError if no page can be used, and ConfigError for
    unknown names of paths.
    """
    if set(paths) not in ({"data"}, {"images"}, {"images", "labels"}):
        raise ConfigError("page reading takes --data_path PATH, or --data_path images=FOLDER labels=FOLDER")
    if "images" in paths:
        return _folder(paths["images"], paths.get("labels", paths["images"]))
    path = paths["data"]
    if path.is_dir():
        label = next((path / name for name in LABEL_FILES if (path / name).is_file()), None)
        return _label_file(label) if label is not None else _folder(path, path)
    check_exists(path)
    if path.suffix.lower() == ".txt":
        return _label_file(path)
    return _dataset(_paths(single_image(path)), None, path, [])


def _paths(dataset: Dataset) -> list[Path]:
    return [Path(sample) for sample in dataset.batch(range(len(dataset))).samples]


def _dataset(
    images: Sequence[Path], truths: Sequence[Truth] | None, source: Path, rejected: Sequence[Rejected]
) -> Pages:
    if not images:
        if not rejected:
            raise DataError(f"{source} lists no page; list at least one")
        raise DataError(
            f"{source}: none of its pages can be used, the first of {len(rejected)} reasons: {rejected[0].path}: "
            f"{rejected[0].reason}; correct the data set"
        )
    names = [str(path) for path in images]
    return Pages(list(images), truths, names=names, files=[source], rejected=rejected)


class Pages(ListDataset):
    """Images of pages, with ground truth if known."""

    def fingerprint(self) -> str:
        """Return a hash of the images' paths, sizes and times, and of the ground truth; images are not read."""
        root = self.files[0] if self.files[0].is_dir() else self.files[0].parent
        digest = sha256()
        for path in self.samples:
            digest.update(repr((os.path.relpath(path, root), *size_and_time(path))).encode("utf-8", "surrogatepass"))
        for truth in self.targets or ():
            words = [(word.text, word.outline.tolist()) for word in truth.words or ()]
            digest.update(repr((truth.words is None, truth.text, words)).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def _label_file(path: Path) -> ListDataset:
    images: list[Path] = []
    truths: list[Truth] = []
    rejected: list[Rejected] = []
    listed: dict[Path, int] = {}
    for number, line in _lines(path):
        where = path.with_name(f"{path.name}:{number}")
        name, tab, text = line.partition("\t")
        try:
            if not tab:
                raise ValueError("it has no tab between the path of the image and the JSON")
            image = _found(path, name.strip())
            truth = Truth(tuple(_words(text)))
            before = listed.setdefault(image.resolve(), number)
            if before != number:
                raise ValueError(f"image {shown(name)} is already listed in line {before}; list each page once")
        except ValueError as error:
            rejected.append(Rejected(where, one_line(error)))
            continue
        images.append(image)
        truths.append(truth)
    return _dataset(images, truths, path, rejected)


def _found(label: Path, name: str) -> Path:
    """Return the path of an image in a label file."""
    if not is_image(name):
        raise ValueError(f"{shown(name)} is {NOT_AN_IMAGE}")
    places = (label.parent / name, label.parent.parent / name, label.parent / Path(name).name)
    image = next((place for place in places if os.path.isfile(place)), None)
    if image is None:
        raise ValueError(f"image {shown(name)} does not exist in {label.parent}")
    return image


def _words(text: str) -> Iterator[Word]:
    try:
        entries: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the text after the tab is not JSON ({error})") from error
    if not isinstance(entries, list):
        raise ValueError(f'{shown(entries)} is not a list; write [{{"transcription": "...", "points": [[x, y], ...]}}]')
    if len(entries) > MOST_LINES:
        raise ValueError(_too_many(len(entries)))
    for place, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or not isinstance(entry.get("transcription"), str):
            raise ValueError(f"entry {place}, {shown(entry)}, has no transcription, or not a string")
        yield Word(_readable(entry["transcription"]), _outline(entry.get("points"), place))


def _too_many(count: int) -> str:
    return f"{count} lines on one page, the maximum is {MOST_LINES}; split the page"


def _readable(text: str) -> str | None:
    return None if text in IGNORED else text


def _outline(points: Any, place: int) -> Array:
    try:
        outline = np.array(points, np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"entry {place}: points {shown(points)} are not pairs of numbers") from error
    if outline.ndim != 2 or outline.shape[1] != 2 or len(outline) < 3 or not np.isfinite(outline).all():
        raise ValueError(f"entry {place}: points {shown(points)} must be at least three pairs of finite numbers")
    if np.abs(outline).max() > FARTHEST:
        raise ValueError(f"entry {place}: points {shown(points)} exceed {FARTHEST:g} pixels; correct them")
    if len(outline) == 4 and (_cross(*outline) or _cross(*outline[[1, 2, 3, 0]])):
        raise ValueError(f"entry {place}: the sides of points {shown(points)} cross; list the corners in order")
    return outline


def _cross(a: Array, b: Array, c: Array, d: Array) -> bool:
    """Return whether the sides ab and cd of a quadrilateral cross, that is, its corners are out of order."""
    sides = [
        (q - p)[0] * (r - p)[1] - (q - p)[1] * (r - p)[0] for p, q, r in ((a, b, c), (a, b, d), (c, d, a), (c, d, b))
    ]
    return bool(sides[0] * sides[1] < 0 and sides[2] * sides[3] < 0)


def _folder(images: Path, labels: Path) -> ListDataset:
    """Load a folder of images, and their text files, if any."""
    if not images.is_dir():
        raise DataError(f"data folder {images} does not exist; check the path")
    listed = flat_folder(images)
    paths = _paths(listed)
    texts = {path: _label_of(path, labels) for path in paths}
    if not any(texts.values()):
        if labels != images:
            raise DataError(f"{labels} has no gt_STEM.txt or STEM.txt of any image in {images}; check the folders")
        return _dataset(paths, None, images, listed.rejected)
    used = {text for text in texts.values() if text is not None}
    rejected = [one for one in listed.rejected if Path(one.path) not in used]
    kept: list[Path] = []
    truths: list[Truth] = []
    for path, text in texts.items():
        try:
            if text is None:
                raise ValueError(f"it has no gt_{path.stem}.txt or {path.stem}.txt in {labels}")
            truths.append(_icdar(text) if text.name.startswith("gt_") else _plain(text))
        except (ValueError, DataError) as error:
            rejected.append(Rejected(path, one_line(error)))
            continue
        kept.append(path)
    return _dataset(kept, truths, images, rejected)


def _label_of(image: Path, labels: Path) -> Path | None:
    names = (f"gt_{image.stem}.txt", f"{image.stem}.txt")
    return next((labels / name for name in names if (labels / name).is_file()), None)


def _plain(path: Path) -> Truth:
    return Truth(None, "\n".join(line for _, line in _lines(path)))


def _icdar(path: Path) -> Truth:
    words = []
    lines = list(_lines(path))
    if len(lines) > MOST_LINES:
        raise ValueError(f"{path}: {_too_many(len(lines))}")
    for number, line in lines:
        parts = line.split(",", 8)
        try:
            if len(parts) != 9:
                raise ValueError(f"{len(parts)} parts between commas; expected eight numbers and a text")
            outline = _outline([[float(x), float(y)] for x, y in zip(parts[0:8:2], parts[1:8:2], strict=True)], number)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}; write x1,y1,x2,y2,x3,y3,x4,y4,text") from error
        words.append(Word(_readable(parts[8]), outline))
    return Truth(tuple(words))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the non-empty lines of a file with their numbers."""
    try:
        text = text_of(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as UTF-8 ({one_line(error)}); correct the file") from error
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line.rstrip("\r")
