"""Images of text lines with their transcriptions, in the usual layouts of text recognition."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from engine import ConfigError, DataError
from tecoinfer_modelzoo.files import not_a_file_reason, size_and_time, utf8_text
from utils.datasets.base import ListDataset, Rejected, check_exists
from utils.datasets.folders import NOT_AN_IMAGE, flat_folder, is_image, single_image

LABEL_FILES = (
    *("rec_gt.txt", "rec_gt_test.txt", "rec_gt_val.txt", "rec_gt_train.txt"),
    *("gt.txt", "labels.txt", "annotation.txt"),
)
"""Names of a folder's label file, in order of precedence."""

TEXTS = (".txt", ".gt.txt")
"""Endings of the text next to an image ``name.png``: ``name.txt``, or Tesseract's ``name.gt.txt``."""

LABELLED = (".txt", ".tsv", ".csv")
"""Endings of label files."""

LINE, FOLDER, NAME = UNITS = ("line", "folder", "name")
"""Independent units: every line; the lines of a folder; or lines whose names are equal up to the last ``_``, such as
``page3_line07.png``: a page or a writer."""


class TextLines(ListDataset):
    """Images of lines, with their texts if known, from a label file or folder; ``units`` is one of :data:`UNITS`."""

    def __init__(
        self,
        images: Sequence[Path],
        texts: Sequence[str] | None,
        source: Path,
        rejected: Sequence[Rejected] = (),
        units: str = LINE,
    ) -> None:
        names = [str(image) for image in images]
        of = None if units == LINE else [unit_of(image, units) for image in images]
        super().__init__(list(images), texts, names=names, units=of, files=[source], rejected=rejected)

    def fingerprint(self) -> str:
        """Return a hash of the images' relative paths, sizes and times (not content), texts and units."""
        root = self.files[0] if self.files[0].is_dir() else self.files[0].parent
        own: Sequence[str | None] = self.units or [None] * len(self)
        units = [None if unit is None else os.path.relpath(unit, root) for unit in own]
        rows = zip(self.samples, self.targets or [None] * len(self), units, strict=True)
        digest = hashlib.sha256()
        for image, text, unit in rows:
            state = os.path.relpath(image, root), *size_and_time(image)
            digest.update(repr((state, text, unit)).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def unit_of(image: Path, units: str) -> str:
    """Return the name of the unit of a line."""
    if units == FOLDER:
        return str(image.parent)
    before, _, _ = image.stem.rpartition("_")
    return str(image.parent / (before or image.stem))


def load_text_lines(paths: Mapping[str, Path], units: str = LINE) -> TextLines:
    """Load images of lines, with their texts if there are any.

    ``paths`` is ``{"data": path}``, or ``{"labels": file, "images": folder}``. A path is a label file; a folder with
    one of :data:`LABEL_FILES`, with a text next to each image, or with only images; or one image. ``units`` is one of
    :data:`UNITS`.

    A label file is UTF-8 with one image per line, all lines in the same format; its paths are relative to its folder or
    the parent of it, the first that has one of the images. Empty lines are skipped.

    - ``path<tab>text`` (PaddleOCR). The text is everything after the first tab, and may be empty.
    - ``path, "text"`` (ICDAR); quotes and backslashes in the text are escaped by a backslash.
    - ``path number`` with paths like ``3/12_word_7.jpg`` (MJSynth): the text is between the underscores.

    Duplicates, missing images, and images without a text if others have one, are in ``rejected``. Raises DataError,
    with file, line and fix, if the path has no usable data, or a line has another format, and ConfigError if names of
    paths are unknown.
    """
    check_exists(*paths.values())
    if set(paths) == {"labels", "images"}:
        return _listed(paths["labels"], [paths["images"]], units)
    if set(paths) != {"data"}:
        raise ConfigError("text recognition takes --data_path PATH, or --data_path labels=FILE images=FOLDER")
    path = paths["data"]
    if path.is_dir():
        return _folder(path, units)
    if path.suffix.lower() in LABELLED:
        return _listed(path, [path.parent, path.parent.parent], units)
    if not is_image(path.name):
        raise DataError(f"{path}: {NOT_AN_IMAGE}; pass a label file ({' '.join(LABELLED)}), a folder or an image")
    return TextLines([sample.path for sample in single_image(path)], None, path, units=units)


def _folder(folder: Path, units: str) -> TextLines:
    for name in LABEL_FILES:
        if (folder / name).is_file():
            return _listed(folder / name, [folder, folder.parent], units)
    found = flat_folder(folder)
    images = [sample.path for sample in found]
    texts = {image: text for image in images if (text := _beside(image)) is not None}
    rejected = [one for one in found.rejected if not one.path.name.endswith(TEXTS)]
    if not texts:
        return TextLines(images, None, folder, rejected, units)
    missing = f"no text next to it ({' or '.join('name' + ending for ending in TEXTS)}), but other images have one"
    rejected += [Rejected(image, missing) for image in images if image not in texts]
    kept = [image for image in images if image in texts]
    return TextLines(kept, [_one_line(texts[image]) for image in kept], folder, rejected, units)


def _beside(image: Path) -> Path | None:
    files = (image.with_name(image.stem + ending) for ending in TEXTS)
    return next((file for file in files if file.is_file()), None)


def _one_line(file: Path) -> str:
    lines = utf8_text(file).rstrip("\r\n").split("\n")
    if len(lines) > 1:
        raise DataError(f"{file}: {len(lines)} lines of text for an image of one line; keep one")
    return lines[0]


def _listed(file: Path, roots: Sequence[Path], units: str) -> TextLines:
    lines = enumerate(utf8_text(file).split("\n"), 1)
    rows = [(number, row.removesuffix("\r")) for number, row in lines if row.strip()]
    if not rows:
        raise DataError(f"label file {file} lists no image; write one path, a tab and its text per line")
    for number, row in rows:
        if "\r" in row:
            raise DataError(f"{file}:{number}: a carriage return in a line; end lines with line feeds")
    read = _form_of(rows[0][1], f"{file}:{rows[0][0]}")
    listed = [(number, *read(row, f"{file}:{number}")) for number, row in rows]
    root = next((root for root in roots if any(os.path.isfile(root / name) for _, name, _ in listed)), roots[0])
    images, texts, rejected = [], [], list[Rejected]()
    before: dict[str, int] = {}
    for number, name, text in listed:
        place = os.path.normpath(os.path.join(root, name))
        image = Path(place)
        if before.setdefault(place, number) != number:
            reason: str | None = f"already listed in line {before[place]}; list each image once"
        else:
            reason = _unusable(image, root, name)
        if reason is None:
            images.append(image)
            texts.append(text)
        else:
            rejected.append(Rejected(image, f"{reason} ({file.name}:{number})"))
    if not images:
        path, reason = rejected[0]
        raise DataError(
            f"label file {file}: none of its {len(rejected)} images can be used under {root}, the first is {path}: "
            f"{reason}; check the data folder, or set it with --data_path labels={file} images=FOLDER"
        )
    return TextLines(images, texts, file, rejected, units)


def _unusable(image: Path, root: Path, name: str) -> str | None:
    """Return why a listed path cannot be a sample; ``None`` if it can."""
    # Compares names only: links may lead out of the root, since data sets are often assembled from links.
    if not (os.path.abspath(image) + os.sep).startswith(os.path.join(os.path.abspath(root), "")):
        return f"the listed path {name!r} leaves the data folder"
    if not os.path.isfile(image):  # also False for a name that no file can have
        return f"it is listed, but it {not_a_file_reason(image)}"
    return None if is_image(image.name) else NOT_AN_IMAGE


def _form_of(row: str, where: str) -> Callable[[str, str], tuple[str, str]]:
    """Return the parser for a label file by its first row."""
    if "\t" in row:
        return _by_tab
    for pattern, read in ((_ICDAR, _by_comma), (_MJSYNTH, _by_name)):
        if pattern.fullmatch(row):
            return read
    raise DataError(f"{where}: {row[:80]!r} is not 'path<tab>text', 'path, \"text\"' or MJSynth's; correct the line")


_ICDAR = re.compile(r'(?P<path>[^"]+?), *"(?P<text>(?:[^"\\]|\\.|"(?!\s*$))*)" *')
_MJSYNTH = re.compile(r"(?P<path>.*?[^/_]*_(?P<text>[^/]+)_[0-9]+\.\w+) [0-9]+ *")


def _by_tab(row: str, where: str) -> tuple[str, str]:
    path, tab, text = row.partition("\t")
    if not tab:
        raise DataError(f"{where}: {row[:80]!r} has no tab between path and text, unlike the first line; correct it")
    return path, text


def _by_comma(row: str, where: str) -> tuple[str, str]:
    found = _ICDAR.fullmatch(row)
    if found is None:
        raise DataError(f"{where}: {row[:80]!r} is not 'path, \"text\"', unlike the first line; correct it")
    return found["path"], re.sub(r"\\(.)", r"\1", found["text"])


def _by_name(row: str, where: str) -> tuple[str, str]:
    found = _MJSYNTH.fullmatch(row)
    if found is None:
        raise DataError(f"{where}: {row[:80]!r} is not MJSynth's 'path number', unlike the first line; correct it")
    return found["path"], found["text"]
