"""YOLO's text files: a line of class and normalised box for every object, a file for every image."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine import DataError
from tecoinfer_modelzoo.files import check_regular, utf8_text
from tecoinfer_modelzoo.text import one_line
from tecoinfer_modelzoo.trees import walk
from tecoinfer_modelzoo.yaml_files import YamlError, read_yaml
from utils.datasets.folders import is_picture
from utils.datasets.image.coco import leaves
from utils.datasets.image.objects import Found, Gathered, lines_of, shown
from utils.datasets.text.tables import is_text
from utils.preprocess.image.images import upright_size

DATA_FILES = ("data.yaml", "data.yml", "dataset.yaml")
NAME_FILES = ("classes.txt", "obj.names", "classes.names")
SPLITS = ("val", "valid", "val2017", "test")
"""Folders of ``images/`` that are for evaluating, the first that there is."""

NO_LABELS = "images without a label file: {} (taken as images without objects)"

OVER = 1e-3
"""By how much a normalised number may be more than 1: labels are rounded."""

_LONGEST_LINE = 100_000


def load_yolo(path: Path) -> Gathered:
    """Read images and objects in the layouts of Darknet and Ultralytics.

    Args:
        path: ``data.yaml`` with ``names`` (a list, or a mapping from numbers) and ``val``, from the folder ``path`` or
            the file's own on: a folder of images, a text file that lists images, or several of these; a folder with
            such a file; one with ``images`` and ``labels``; or one with text files beside the images. Without the
            YAML file names come from ``classes.txt`` or ``obj.names``; without that classes have numbers alone.

    A line is a class and the centre, width and height of a box, or a class and the corners of a polygon, whose box is
    taken; all as shares of the upright image's width and height. Labels of ``images/a/b.jpg`` are in
    ``labels/a/b.txt``. An empty label file, or none, is an image without objects.

    Raises:
        DataError: nothing of the kind is there.
    """
    root = path if path.is_dir() else path.parent
    listed = path if path.is_file() else next((root / name for name in DATA_FILES if (root / name).is_file()), None)
    names, pictures = _by_yaml(listed) if listed is not None else (_names_of(root), _pictures_of(root))
    gathered = Gathered(path, names)
    labelled = 0
    for picture in pictures:
        file = label_file(picture)
        has_labels = os.path.lexists(file)
        labelled += has_labels
        try:
            objects, size = objects_of(file if has_labels else None, picture, len(names))
            gathered.add(picture, objects, size, stated=False)
        except DataError as error:
            gathered.reject(picture, str(error))
        gathered.remark(NO_LABELS, int(not has_labels and os.path.isfile(picture)))
    if pictures and not labelled:
        raise DataError(f"{path}: none of its {len(pictures)} images has a label file; one goes to {file}")
    _without_pictures(pictures, gathered)
    return gathered


def is_yolo(folder: Path) -> bool:
    """Say whether a folder is laid out so."""
    if any((folder / name).is_file() for name in DATA_FILES):
        return True
    if (folder / "images").is_dir() and (folder / "labels").is_dir():
        return True
    texts = {file.stem for file in folder.glob("*.txt")}
    return bool(texts) and any(file.stem in texts for file in folder.iterdir() if is_picture(file.name))


def label_file(picture: Path) -> Path:
    """Return where the labels of an image are: in ``labels/`` for one below ``images/``, else beside it."""
    parts = list(picture.parts)
    if "images" in parts[:-1]:
        parts[len(parts) - 2 - parts[-2::-1].index("images")] = "labels"
    return Path(*parts).with_suffix(".txt")


def _by_yaml(file: Path) -> tuple[tuple[str, ...], list[Path]]:
    """Return names and images as a YAML file says."""
    content = mapping_of(file, f"{file}", "names and val")
    names = _names(content.get("names"), file)
    wanted = content.get("val")
    places = [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(places, list) or not places or not all(isinstance(place, str) and place for place in places):
        raise DataError(f"{file}: val is {shown(wanted)}; write the folder of the images to evaluate on")
    top = _top(content.get("path"), file)
    return names, [picture for place in places for picture in _pictures_at(_within(top, place, file), file)]


def mapping_of(file: Path, called: str, wanted: str) -> dict[Any, Any]:
    """Return the mapping that a YAML file holds.

    It is read within the limits of the zoo's own YAML files: thirty lines of aliases could take all memory.

    Args:
        called: what error messages call it. wanted: what they say to write.

    Raises:
        DataError: it cannot be read, or holds something else.
    """
    try:
        content = read_yaml(file)
    except OSError as error:
        raise DataError(f"{called} cannot be read: {error.strerror}; write {wanted}") from error
    except YamlError as error:
        raise DataError(f"{called} is not YAML ({one_line(error)}); write {wanted}") from error
    if not isinstance(content, dict):
        raise DataError(f"{called} holds no mapping; write {wanted}")
    return content


def _names(found: object, file: Path) -> tuple[str, ...]:
    """Return the class names of a YAML file."""
    names = list(found) if isinstance(found, list) else None
    by_number = found if isinstance(found, Mapping) and all(map(_is_name, found)) else {}
    if by_number and sorted(map(str, by_number)) == sorted(map(str, range(len(by_number)))):
        by_number = {str(key): name for key, name in by_number.items()}
        names = [by_number[str(place)] for place in range(len(by_number))]
    if not names or not all(map(_is_name, names)):
        raise DataError(f"{file}: names is {shown(found)}; write a list of class names, or a mapping from 0, 1, ...")
    return _distinct([str(name) for name in names], file)


def _is_name(found: object) -> bool:
    """Say whether YAML's value may be a name: text, or a number that can be written as one."""
    return is_text(found) if isinstance(found, str) else isinstance(found, int) and abs(found) < 10**18


def _distinct(names: Sequence[str], file: Path) -> tuple[str, ...]:
    seen: set[str] = set()
    twice = next((name for name in names if name in seen or seen.add(name)), None)  # type: ignore[func-returns-value]
    if twice is not None:
        raise DataError(f"{file}: name {shown(twice)} stands twice; give every class a name of its own")
    return tuple(names)


def _top(given: object, file: Path) -> Path:
    """Return the folder that paths start from: ``path`` where it is below the file's folder, else that one.

    Files that are passed on often name a folder of their author's machine; what is not below is not followed.
    """
    if isinstance(given, str) and given and "\0" not in given and not leaves(file.parent, given):
        inner = file.parent / given
        return inner if os.path.isdir(inner) else file.parent
    return file.parent


def _within(top: Path, place: str, file: Path) -> Path:
    """Return a path of a YAML file below the data set's folder; ``../`` in front of it is how some tools write it."""
    inner = place
    while inner.startswith("../"):
        inner = inner[3:]
    if not inner or "\0" in inner or leaves(top, inner):
        raise DataError(f"{file}: val {shown(place)} leaves the data folder {top}; write a path within it")
    found = Path(os.path.normpath(top / inner))
    if not os.path.exists(found):
        raise DataError(f"{file}: val {shown(place)} does not exist in {top}; correct it")
    return found


def _pictures_at(place: Path, file: Path) -> list[Path]:
    """Return the images below a folder, or those that a text file lists."""
    if place.is_dir():
        return pictures_below(place)
    if place.suffix != ".txt":
        raise DataError(f"{file}: {place} is neither a folder nor a text file that lists images")
    lines = [line.strip() for line in lines_of(place)]
    outside = next((line for line in lines if "\0" in line or leaves(place.parent, line)), None)
    if outside is not None:
        raise DataError(f"{place}: {shown(outside)} leaves the data folder {place.parent}; write a path within it")
    return [Path(os.path.normpath(place.parent / line)) for line in lines if line]


def pictures_below(folder: Path) -> list[Path]:
    """Return the images in a folder and below it, sorted by path; hidden ones are left out."""
    found = [Path(at, name) for at, _, names in walk(folder) for name in names if is_picture(name)]
    return sorted(path for path in found if not path.name.startswith("."))


def _pictures_of(root: Path) -> list[Path]:
    """Return the images of a folder without a YAML file."""
    images = root / "images"
    if not images.is_dir():
        return sorted(file for file in root.iterdir() if is_picture(file.name) and not file.name.startswith("."))
    return pictures_below(next((images / split for split in SPLITS if (images / split).is_dir()), images))


def _names_of(root: Path) -> tuple[str, ...]:
    """Return the names that a text file beside the data lists; none where there is no such file."""
    folders = (root, root / "labels", root / "images")
    files = (folder / name for folder in folders for name in NAME_FILES)
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        return ()
    lines = [line.strip() for line in lines_of(file)]
    return _distinct([line for line in lines if line], file)


def objects_of(file: Path | None, picture: Path, classes: int) -> tuple[list[Found], tuple[float, float] | None]:
    """Return the objects of an image, and its size; without a file of labels there are none.

    Args:
        file: its labels, where there are any.
        image: its file; only the head is read.
        classes: how many classes there are; 0: not known.

    Returns:
        The objects in pixels of the upright image, and its width and height; ``None`` where nothing needed them.

    Raises:
        DataError: what is wrong with the file of the labels, or with the image.
    """
    if file is None:
        return [], None
    lines = utf8_text(file).splitlines()
    rows = [(number, line.split()) for number, line in enumerate(lines, start=1) if line.strip()]
    if not rows or not os.path.isfile(picture):
        return [], None
    width, height = upright_size(picture)
    found = []
    for number, words in rows:
        try:
            label, left, top, right, bottom = _line(words, classes)
        except ValueError as error:
            raise DataError(f"{file}, line {number}: {error}") from error
        found.append(Found((left * width, top * height, right * width, bottom * height), label))
    return found, (width, height)


def _line(words: Sequence[str], classes: int) -> tuple[int, float, float, float, float]:
    """Return the class and the box of a line, as shares."""
    try:
        label, *rest = map(float, words)
    except ValueError:
        raise ValueError(f"{shown(' '.join(words))} are not numbers: class, centre, width and height") from None
    if not all(map(math.isfinite, (label, *rest))):
        raise ValueError("a number is NaN or infinite")
    if label != int(label) or label < 0 or (classes and label >= classes) or label > 1e6:
        raise ValueError(f"class {words[0]} is out of range: {f'0 to {classes - 1}' if classes else 'a whole number'}")
    if len(rest) != 4 and (len(rest) < 6 or len(rest) % 2):
        raise ValueError(f"{len(rest)} numbers behind the class; a box has 4, a polygon 6, 8, ...")
    far = next((value for value in rest if value < -OVER or value > 1 + OVER), None)
    if far is not None:
        raise ValueError(f"{far:g} is not from 0 to 1: coordinates are shares of the image's width and height")
    if len(rest) == 4:
        x, y, width, height = rest
        return int(label), x - width / 2, y - height / 2, x + width / 2, y + height / 2
    across, down = rest[::2], rest[1::2]
    return int(label), min(across), min(down), max(across), max(down)


def _without_pictures(pictures: Iterable[Path], gathered: Gathered) -> None:
    """Reject label files that no image goes with, in the folders where the labels of these images are."""
    for labels, folder in sorted({(label_file(picture).parent, picture.parent) for picture in pictures}):
        beside = os.listdir(folder) if os.path.isdir(folder) else []
        stems = {name.rpartition(".")[0] for name in beside if is_picture(name)}
        for file in sorted(labels.glob("*.txt")) if os.path.isdir(labels) else ():  # glob raises for a name too long
            if file.stem not in stems and file.name not in NAME_FILES and not _is_list(file):
                gathered.reject(file, "no image goes with this label file")


def _is_list(file: Path) -> bool:
    """Say whether a text file lists images: ``train.txt`` beside them."""
    try:
        check_regular(file)
        with file.open(encoding="utf-8-sig", errors="replace") as lines:
            first = lines.readline(_LONGEST_LINE).strip()
    except OSError:
        return False
    return is_picture(first)
