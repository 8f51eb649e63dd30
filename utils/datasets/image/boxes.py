"""Images with objects in any of the supported layouts; the path determines the layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from engine import ConfigError, DataError
from utils.datasets.base import check_exists
from utils.datasets.folders import flat_folder, is_image, single_image
from utils.datasets.image.objects import BoxedImages, Gathered, Objects

__all__ = ["FORMATS", "BoxedImages", "Objects", "load_boxes"]

LABEL_FILES = ("val.json", "instances.json", "annotations.json", "_annotations.coco.json")
"""A folder that has a file with one of these names is loaded through it; the first name takes precedence."""

IMAGES, FORMER = "images", "pictures"
"""The format without objects, and its former name."""


def data_format(text: str) -> str:
    """Return a format of the command line, by its present name."""
    return IMAGES if text == FORMER else text


def load_boxes(path: Path, form: str | None = None) -> BoxedImages:
    """Load images, and their objects if known, in one of :data:`FORMATS`; without ``form``, the path determines it.

    - ``coco``: a ``.json`` file, a folder with one of :data:`LABEL_FILES`, or COCO's own layout
      (:func:`~utils.datasets.image.coco.load_coco`);
    - ``voc``: a folder such as ``VOC2012``, its parent, a list of ``ImageSets/Main``, or XML files next to images
      (:func:`~utils.datasets.image.voc.load_voc`);
    - ``yolo``: ``data.yaml``, a folder with one, ``images/`` and ``labels/``, or text files next to images
      (:func:`~utils.datasets.image.yolo.load_yolo`);
    - ``wider``: faces in a text file in the format of WIDER FACE or RetinaFace, or a folder with one
      (:func:`~utils.datasets.image.wider_face.load_wider`);
    - ``images``: any other folder, or one image, without objects.

    Samples are paths. Each entry that cannot be used is in ``rejected``; suspicious entries that are used are counted
    in a warning. Raises DataError if the path has no usable data, or data in several formats, and ConfigError if the
    format is unknown.
    """
    form = None if form is None else data_format(form)
    if form is not None and form not in FORMATS:
        raise ConfigError(f"unknown data format {form!r}; use one of: {', '.join(FORMATS)}")
    check_exists(path)
    found = {name: places for name in FORMATS if (places := _PLACES[name](path))}
    if form is None:
        if len(found) > 1:
            what = " and ".join(f"{name} ({places[0].name})" for name, places in found.items())
            raise DataError(f"{path} has data in several formats: {what}; choose one with --data_format")
        form = next(iter(found), IMAGES)
    if form == IMAGES:
        return _plain(path)
    places = found.get(form, [path])
    if len(places) > 1:
        names = ", ".join(str(place) for place in places)
        raise DataError(f"{path} contains several data sets: {names}; pass the path of one")
    return _load(form, places[0]).dataset()


def _plain(path: Path) -> BoxedImages:
    """Return images without targets."""
    if path.is_file() and not is_image(path.name):
        raise DataError(
            f"{path}: not an image file; pass an image, a folder, a .json file in COCO's format, YOLO's data.yaml, a "
            "list of VOC's ImageSets/Main, or a list of faces in WIDER FACE's format"
        )
    found = flat_folder(path) if path.is_dir() else single_image(path)
    return BoxedImages([sample.path for sample in found], None, path, list(found.rejected))


def _coco(path: Path) -> Sequence[Path]:
    """Return the JSON files for a path."""
    if path.is_file():
        return [path] if path.suffix.lower() == ".json" else []
    listed = next((path / name for name in LABEL_FILES if (path / name).is_file()), None)
    if listed is not None:
        return [listed]
    from utils.datasets.image.coco import annotation_files

    return list(annotation_files(path))


def _voc(path: Path) -> Sequence[Path]:
    """Return the lists or folders of VOC for a path."""
    if path.is_file():
        return [path] if path.suffix == ".txt" and path.parent.parent.name == "ImageSets" else []
    from utils.datasets.image.voc import is_voc, voc_years

    return [path] if is_voc(path) else voc_years(path)


def _yolo(path: Path) -> Sequence[Path]:
    """Return the YAML files or folders of YOLO for a path."""
    if path.is_file():
        return [path] if path.suffix.lower() in (".yaml", ".yml") else []
    from utils.datasets.image.yolo import is_yolo

    return [path] if is_yolo(path) else []


def _wider(path: Path) -> Sequence[Path]:
    """Return the lists of faces for a path."""
    if path.is_file() and path.suffix.lower() != ".txt":
        return []
    from utils.datasets.image.wider_face import face_lists

    return face_lists(path)


def _load(form: str, path: Path) -> Gathered:
    if form == "coco":
        from utils.datasets.image.coco import load_coco

        return load_coco(path)
    if form == "voc":
        from utils.datasets.image.voc import load_voc

        return load_voc(path)
    if form == "yolo":
        from utils.datasets.image.yolo import load_yolo

        return load_yolo(path)
    from utils.datasets.image.wider_face import load_wider

    return load_wider(path)


_PLACES: Mapping[str, Callable[[Path], Sequence[Path]]] = {
    "coco": _coco,
    "voc": _voc,
    "yolo": _yolo,
    "wider": _wider,
    IMAGES: lambda path: [],
}

FORMATS = tuple(_PLACES)
