"""Pascal VOC: an XML file of objects per image, and lists of the images of a split."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.parsers import expat

from engine import DataError
from tecoinfer_modelzoo.files import read_regular
from tecoinfer_modelzoo.text import one_line
from utils.datasets.folders import EXTENSIONS
from utils.datasets.image.coco import leaves
from utils.datasets.image.mask_codes import VOC_CLASSES
from utils.datasets.image.objects import Found, Gathered, lines_of, shown

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element  # for annotations only: expat below parses, without DTDs

NAMES = VOC_CLASSES[1:]
"""VOC's own classes, in their order; other data sets number their class names in alphabetical order."""

SPLITS = ("test", "val")
"""Lists of ``ImageSets/Main`` for evaluation: 2007's test set, and the validation part of later years."""

LARGEST = 32 * 2**20
"""Maximum bytes of an XML file; annotations of an image have a few thousand."""

PAIRS = (("JPEGImages", "Annotations"), ("images", "annotations"), ("images", "Annotations"))
"""Folders of images and of XML files next to each other."""


def load_voc(path: Path) -> Gathered:
    """Read images and objects in VOC's layout. Raises DataError if the path has no data in this layout.

    The path is a list of ``ImageSets/Main``, such as ``VOC2012/ImageSets/Main/val.txt``; a folder with ``JPEGImages``
    and ``Annotations`` (or ``images`` and ``annotations``), of which the list ``test`` or ``val`` is used, or all
    images without a list; or a folder of XML files next to their images.

    Corners in the XML are inclusive pixels counted from 1: ``xmin`` 1 and ``xmax`` 500 span 500 pixels. Here these are
    the edges 0 and 500: ``left = xmin - 1``, ``right = xmax``, which keeps the overlaps of the development kit.
    ``difficult`` objects become crowds: detecting one is neither right nor wrong, in VOC's rules and in COCO's. Parts
    of an object are ignored.
    """
    folder, wanted = _split(path)
    images, notes = _folders(folder)
    found = {file.stem: file for file in sorted(notes.glob("*.xml"))}
    order = sorted(found) if wanted is None else wanted
    gathered, entries = Gathered(path), []
    for name in order:
        file = found.get(name, notes / f"{name}.xml")
        try:
            if leaves(notes, f"{name}.xml"):
                raise DataError(f"its name {shown(name)} leaves the data folder")
            entries.append((file, *_annotation(file, images)))
        except DataError as error:
            gathered.reject(file, str(error))
    names = {name for _, _, objects, _ in entries for name, *_ in objects}
    gathered.names = NAMES if names <= set(NAMES) else tuple(sorted(names))
    places = {name: place for place, name in enumerate(gathered.names)}
    for _, image, objects, size in entries:
        gathered.add(image, [Found(box, places[name], hard) for name, box, hard in objects], size)
    if images == notes:
        _without_notes(images, {image for _, image, _, _ in entries}, gathered)
    return gathered


def is_voc(folder: Path) -> bool:
    """Return whether a folder has this layout."""
    if any((folder / a).is_dir() and any((folder / b).glob("*.xml")) for a, b in PAIRS):
        return True
    return next(folder.glob("*.xml"), None) is not None


def _split(path: Path) -> tuple[Path, list[str] | None]:
    """Return the folder of the data set, and the names of the images of its split; ``None`` for all."""
    if path.is_file():
        if path.suffix != ".txt" or path.parent.parent.name != "ImageSets":
            raise DataError(f"{path} is not a list of VOC; pass VOC2012/ImageSets/Main/val.txt, or the folder VOC2012")
        return path.parents[2], _listed(path)
    lists = (path / "ImageSets" / "Main" / f"{split}.txt" for split in SPLITS)
    chosen = next((file for file in lists if file.is_file()), None)
    return path, None if chosen is None else _listed(chosen)


def _listed(file: Path) -> list[str]:
    """Return the names in a list; in lists of a single class, -1, 0 or 1 after a name is ignored."""
    rows = [line.split() for line in lines_of(file)]
    names = list(dict.fromkeys(row[0] for row in rows if row))
    if not names:
        raise DataError(f"{file} lists no image; list one name per line")
    return names


def _folders(folder: Path) -> tuple[Path, Path]:
    for images, notes in PAIRS:
        if (folder / images).is_dir() and (folder / notes).is_dir():
            return folder / images, folder / notes
    return folder, folder


def _without_notes(folder: Path, used: set[Path], gathered: Gathered) -> None:
    """Reject images without an XML file, if others have one next to them."""
    for file in sorted(folder.iterdir()):
        if file.suffix.lower() in EXTENSIONS and file not in used and not file.with_suffix(".xml").exists():
            gathered.reject(file, f"it has no {file.stem}.xml")


_Object = tuple[str, tuple[float, float, float, float], bool]


def _annotation(file: Path, images: Path) -> tuple[Path, list[_Object], tuple[float, float] | None]:
    """Return the image of an XML file, its objects (name, box, whether difficult), and its stated size."""
    root = read_xml(file)
    image = _image(file, root, images)
    objects = [_object(place, entry) for place, entry in enumerate(root.findall("object"))]
    width, height = (_number(root.findtext(f"size/{side}")) for side in ("width", "height"))
    stated = (width, height) if width and height and width > 0 and height > 0 else None
    return image, objects, stated


def _image(file: Path, root: Element, images: Path) -> Path:
    """Return the image with the same name, else the one given in the XML, in the folder of the images."""
    for ending in EXTENSIONS:
        for path in (images / f"{file.stem}{ending}", images / f"{file.stem}{ending.upper()}"):
            if os.path.isfile(path):
                return path
    named = (root.findtext("filename") or "").strip()
    if named and "\0" not in named and not leaves(images, named) and os.path.isfile(images / named):
        return images / named
    raise DataError(f"{images} has no image of this name")


def _object(place: int, entry: Element) -> _Object:
    name = (entry.findtext("name") or "").strip()
    if not name:
        raise DataError(f"object {place} has no name")
    edges = [_number(entry.findtext(f"bndbox/{edge}")) for edge in ("xmin", "ymin", "xmax", "ymax")]
    if None in edges:
        raise DataError(f"object {place} ({name}): its bndbox needs the numbers xmin, ymin, xmax and ymax")
    left, top, right, bottom = (float(edge) for edge in edges if edge is not None)
    if right < left - 1 or bottom < top - 1:
        raise DataError(f"object {place} ({name}): its bndbox ends before it starts")
    hard = (entry.findtext("difficult") or "0").strip() not in ("0", "")
    return name, (left - 1, top - 1, right, bottom), hard


def _number(text: str | None) -> float | None:
    """Return the number in a text; ``None`` for anything else, including NaN and infinities."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and abs(value) < 1e9 else None


def read_xml(file: Path) -> Element:
    """Return the root of an XML file without a document type (so without entities); raise DataError if invalid."""
    from xml.etree.ElementTree import TreeBuilder  # builds the tree only, without parsing

    def refuse(*_: object) -> None:
        raise DataError("it has a document type (DTD), which annotations do not need; remove it")

    builder, parser = TreeBuilder(), expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler = builder.start, builder.end
    parser.CharacterDataHandler = builder.data
    try:
        if file.stat().st_size > LARGEST:
            raise DataError(f"it has more than {LARGEST >> 20} MB; annotations have a few thousand bytes")
        parser.Parse(read_regular(file), True)
        return builder.close()
    except DataError:
        raise
    except OSError as error:
        reason = str(error.strerror) if os.path.exists(file) else "it does not exist but is listed"
        raise DataError(reason) from error
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise DataError(f"it is not XML, or truncated ({one_line(error)})") from error


def voc_years(folder: Path) -> Sequence[Path]:
    """Return the data sets in a folder ``VOCdevkit``, or in its parent."""
    kit = folder / "VOCdevkit" if (folder / "VOCdevkit").is_dir() else folder
    return [year for year in sorted(kit.glob("VOC20[0-9][0-9]")) if is_voc(year)]
