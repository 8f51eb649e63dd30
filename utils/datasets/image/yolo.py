"""YOLO's text files: a file per image, with a line of class and normalised box per object."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine import DataError
from tecoinfer_modelzoo.files import utf8_text
from tecoinfer_modelzoo.text import one_line
from tecoinfer_modelzoo.trees import walk
from tecoinfer_modelzoo.yaml_files import YamlError, read_yaml
from utils.datasets.folders import is_image
from utils.datasets.image.coco import leaves
from utils.datasets.image.objects import Found, Gathered, first_lines, lines_of, shown
from utils.datasets.text.tables import is_text
from utils.preprocess.image.images import upright_size

DATA_FILES = ("data.yaml", "data.yml", "dataset.yaml")
NAME_FILES = ("classes.txt", "obj.names", "classes.names")
SPLITS = ("val", "valid", "val2017", "test")
"""Folders of ``images/`` for evaluation, in order of precedence."""

NO_LABELS = "images without a label file: {} (used as images without objects)"

OVER = 1e-3
"""Tolerance above 1 for normalised numbers, because labels are rounded."""


def load_yolo(path: Path) -> Gathered:
    """Read images and objects in the layouts of Darknet and Ultralytics.

    The path is ``data.yaml`` with ``names`` (a list, or a mapping from numbers) and ``val``, a folder of images, a text
    file that lists images, or several of these, relative to the folder ``path`` or the file's own; a folder with such a
    file; one with ``images`` and ``labels``; or one with text files next to the images. Without a YAML file, names come
    from ``classes.txt`` or ``obj.names``; otherwise classes are numbers only.

    A line is a class and the centre, width and height of a box, or a class and the corners of a polygon, which is
    replaced by its bounding box; all relative to the upright image's width and height. Labels of ``images/a/b.jpg`` are
    in ``labels/a/b.txt``. An empty or missing label file means an image without objects. Raises DataError if the path
    has no data in this layout.
    """
    root = path if path.is_dir() else path.parent
    listed = path if path.is_file() else next((root / name for name in DATA_FILES if (root / name).is_file()), None)
    names, images = _by_yaml(listed) if listed is not None else (_names_of(root), _images_of(root))
    gathered = Gathered(path, names)
    labelled = gather(gathered, images)
    if images and not labelled:
        file = label_file(images[-1])
        raise DataError(f"{path}: none of its {len(images)} images has a label file; expected for example {file}")
    _without_images(images, gathered)
    return gathered


def gather(gathered: Gathered, images: Iterable[Path]) -> int:
    """Add images with the objects of their label files, and return the number of images that have such a file."""
    labelled = 0
    for image in images:
        file = label_file(image)
        has_labels = os.path.lexists(file)
        labelled += has_labels
        try:
            objects, size = objects_of(file if has_labels else None, image, len(gathered.names))
            gathered.add(image, objects, size, stated=False)
        except DataError as error:
            gathered.reject(image, str(error))
        gathered.count_warning(NO_LABELS, int(not has_labels and os.path.isfile(image)))
    return labelled


def is_yolo(folder: Path) -> bool:
    """Return whether a folder has this layout."""
    if any((folder / name).is_file() for name in DATA_FILES):
        return True
    if (folder / "images").is_dir() and (folder / "labels").is_dir():
        return True
    texts = {file.stem for file in folder.glob("*.txt")}
    return bool(texts) and any(file.stem in texts for file in folder.iterdir() if is_image(file.name))


def label_file(image: Path) -> Path:
    """Return the path of an image's labels: in ``labels/`` for an image below ``images/``, else next to it."""
    parts = list(image.parts)
    if "images" in parts[:-1]:
        parts[len(parts) - 2 - parts[-2::-1].index("images")] = "labels"
    return Path(*parts).with_suffix(".txt")


def _by_yaml(file: Path) -> tuple[tuple[str, ...], list[Path]]:
    content = mapping_of(file, f"{file}", "names and val")
    names = _names(content.get("names"), file)
    wanted = content.get("val")
    places = [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(places, list) or not places or not all(isinstance(place, str) and place for place in places):
        raise DataError(f"{file}: val is {shown(wanted)}; write the folder of the images to evaluate on")
    top = _top(content.get("path"), file)
    return names, [image for place in places for image in _images_at(_within(top, place, file), file)]


def mapping_of(file: Path, called: str, wanted: str) -> dict[Any, Any]:
    """Return the mapping in a YAML file; ``called`` and ``wanted`` are its name and content in error messages.

    Limits apply as for the zoo's own YAML files, because thirty lines of aliases could exhaust the memory. Raises
    DataError if the file cannot be read, or is not a mapping.
    """
    try:
        content = read_yaml(file)
    except OSError as error:
        raise DataError(f"{called} cannot be read: {error.strerror}; write {wanted}") from error
    except YamlError as error:
        raise DataError(f"{called} is not YAML ({one_line(error)}); write {wanted}") from error
    if not isinstance(content, dict):
        raise DataError(f"{called} is not a mapping; write {wanted}")
    return content


def _names(found: object, file: Path) -> tuple[str, ...]:
    names = list(found) if isinstance(found, list) else None
    by_number = found if isinstance(found, Mapping) and all(map(_is_name, found)) else {}
    if by_number and sorted(map(str, by_number)) == sorted(map(str, range(len(by_number)))):
        by_number = {str(key): name for key, name in by_number.items()}
        names = [by_number[str(place)] for place in range(len(by_number))]
    if not names or not all(map(_is_name, names)):
        raise DataError(f"{file}: names is {shown(found)}; write a list of class names, or a mapping from 0, 1, ...")
    return _distinct([str(name) for name in names], file)


def _is_name(found: object) -> bool:
    """Return whether a value from YAML is a valid name: a text, or an integer."""
    return is_text(found) if isinstance(found, str) else isinstance(found, int) and abs(found) < 10**18


def _distinct(names: Sequence[str], file: Path) -> tuple[str, ...]:
    seen: set[str] = set()
    twice = next((name for name in names if name in seen or seen.add(name)), None)  # type: ignore[func-returns-value]
    if twice is not None:
        raise DataError(f"{file}: name {shown(twice)} occurs twice; give every class a different name")
    return tuple(names)


def _top(given: object, file: Path) -> Path:
    """Return the folder that paths are relative to: ``path`` if it is below the file's folder, else this folder.

    ``path`` often is a folder on the author's machine; folders outside are not used.
    """
    if isinstance(given, str) and given and "\0" not in given and not leaves(file.parent, given):
        inner = file.parent / given
        return inner if os.path.isdir(inner) else file.parent
    return file.parent


def _within(top: Path, place: str, file: Path) -> Path:
    """Return a path of a YAML file below the data set's folder, without a leading ``../``, which some tools write."""
    inner = place
    while inner.startswith("../"):
        inner = inner[3:]
    if not inner or "\0" in inner or leaves(top, inner):
        raise DataError(f"{file}: val {shown(place)} leaves the data folder {top}; write a path within it")
    found = Path(os.path.normpath(top / inner))
    if not os.path.exists(found):
        raise DataError(f"{file}: val {shown(place)} does not exist in {top}; correct it")
    return found


def _images_at(place: Path, file: Path) -> list[Path]:
    """Return the images below a folder, or those listed in a text file."""
    if place.is_dir():
        return images_below(place)
    if place.suffix != ".txt":
        raise DataError(f"{file}: {place} must be a folder or a text file that lists images")
    lines = [line.strip() for line in lines_of(place)]
    outside = next((line for line in lines if "\0" in line or leaves(place.parent, line)), None)
    if outside is not None:
        raise DataError(f"{place}: {shown(outside)} leaves the data folder {place.parent}; write a path within it")
    return [Path(os.path.normpath(place.parent / line)) for line in lines if line]


def images_below(folder: Path) -> list[Path]:
    """Return the images in and below a folder, sorted by path, without hidden ones."""
    found = [Path(at, name) for at, _, names in walk(folder) for name in names if is_image(name)]
    return sorted(path for path in found if not path.name.startswith("."))


def _images_of(root: Path) -> list[Path]:
    """Return the images of a folder without a YAML file."""
    images = root / "images"
    if not images.is_dir():
        return sorted(file for file in root.iterdir() if is_image(file.name) and not file.name.startswith("."))
    return images_below(next((images / split for split in SPLITS if (images / split).is_dir()), images))


def _names_of(root: Path) -> tuple[str, ...]:
    """Return the names listed in a text file next to the data; empty without such a file."""
    folders = (root, root / "labels", root / "images")
    files = (folder / name for folder in folders for name in NAME_FILES)
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        return ()
    lines = [line.strip() for line in lines_of(file)]
    return _distinct([line for line in lines if line], file)


def objects_of(file: Path | None, image: Path, classes: int) -> tuple[list[Found], tuple[float, float] | None]:
    """Return the objects of an image in pixels of the upright image, and its width and height if they were needed.

    ``file`` has its labels (``None``: no objects); of the image only the header is read; ``classes`` is the number of
    classes, 0 if unknown. Raises DataError if the labels or the image are invalid.
    """
    if file is None:
        return [], None
    lines = utf8_text(file).splitlines()
    rows = [(number, line.split()) for number, line in enumerate(lines, start=1) if line.strip()]
    if not rows or not os.path.isfile(image):
        return [], None
    width, height = upright_size(image)
    found = []
    for number, words in rows:
        try:
            label, left, top, right, bottom = _line(words, classes)
        except ValueError as error:
            raise DataError(f"{file}, line {number}: {error}") from error
        found.append(Found((left * width, top * height, right * width, bottom * height), label))
    return found, (width, height)


def _line(words: Sequence[str], classes: int) -> tuple[int, float, float, float, float]:
    """Return the class and the box of a line, in normalised coordinates."""
    try:
        label, *rest = map(float, words)
    except ValueError:
        raise ValueError(f"{shown(' '.join(words))} are not numbers: class, centre, width and height") from None
    if not all(map(math.isfinite, (label, *rest))):
        raise ValueError("a number is NaN or infinite")
    if label != int(label) or label < 0 or (classes and label >= classes) or label > 1e6:
        raise ValueError(f"class {words[0]} is out of range: {f'0 to {classes - 1}' if classes else 'an integer'}")
    if len(rest) != 4 and (len(rest) < 6 or len(rest) % 2):
        raise ValueError(f"{len(rest)} numbers after the class; a box has 4, a polygon 6, 8, ...")
    far = next((value for value in rest if value < -OVER or value > 1 + OVER), None)
    if far is not None:
        raise ValueError(f"{far:g} is not from 0 to 1: coordinates are relative to the image's width and height")
    if len(rest) == 4:
        x, y, width, height = rest
        return int(label), x - width / 2, y - height / 2, x + width / 2, y + height / 2
    across, down = rest[::2], rest[1::2]
    return int(label), min(across), min(down), max(across), max(down)


def _without_images(images: Iterable[Path], gathered: Gathered) -> None:
    """Reject label files without an image, in the folders of these images' labels."""
    for labels, folder in sorted({(label_file(image).parent, image.parent) for image in images}):
        beside = os.listdir(folder) if os.path.isdir(folder) else []
        stems = {name.rpartition(".")[0] for name in beside if is_image(name)}
        for file in sorted(labels.glob("*.txt")) if os.path.isdir(labels) else ():  # glob raises if a name is too long
            if file.stem in stems or file.name in NAME_FILES:
                continue
            if not is_image(first_lines(file, 1)[0]):  # else it lists images, as train.txt next to them does
                gathered.reject(file, "this label file has no image")
