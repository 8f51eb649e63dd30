"""Images with captions: COCO's JSON, Flickr's lists, tables, JSON lines."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from engine import ConfigError, DataError
from tecoinfer_modelzoo.files import size_and_time, utf8_text
from tecoinfer_modelzoo.text import reason_of
from utils.datasets.base import ListDataset, Rejected, check_exists
from utils.datasets.folders import is_image
from utils.datasets.text.tables import read_lines, read_table

LISTS = ("captions.txt", "captions.tsv", "captions.csv", "captions.jsonl", "captions.json")
"""Files of a folder that hold its captions, in order of precedence."""

IMAGES = ("image", "image_name", "file_name", "filename", "filepath", "path", "file")
CAPTIONS = ("caption", "captions", "text", "comment", "raw")
"""Names of the columns, in any case."""

MOST = 64
"""Maximum number of captions of an image."""


class Captioned(NamedTuple):
    """An image and what is written about it."""

    path: Path
    captions: tuple[str, ...]


class Captions(ListDataset):
    """Images with captions; targets are the captions, ``notes`` have ``captions``: the most of one image."""

    def __init__(self, samples: list[Captioned], source: Path, rejected: list[Rejected]) -> None:
        most = max(len(one.captions) for one in samples)
        super().__init__(
            samples,
            [one.captions for one in samples],
            names=[str(one.path) for one in samples],
            files=[source],
            rejected=rejected,
            notes={"captions": most},
        )

    def fingerprint(self) -> str:
        """Return a hash of the images' relative paths, sizes and times, and of the captions."""
        digest, root = hashlib.sha256(), self.files[0].parent
        for one in self.samples:
            facts = (os.path.relpath(one.path, root), size_and_time(one.path), one.captions)
            digest.update(repr(facts).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def captions_in(folder: Path) -> Path | None:
    """Return the list of captions in a folder; ``None`` if it has none of :data:`LISTS`."""
    return next((folder / name for name in LISTS if (folder / name).is_file()), None)


def has_captions(path: Path) -> bool:
    """Return whether a path is a list of captions, or a folder with one."""
    if path.is_dir():
        return captions_in(path) is not None
    return path.name in LISTS or path.suffix.lower() in (".json", ".jsonl", ".csv", ".tsv")


def load_captions(paths: Mapping[str, Path]) -> Captions:
    """Load images and their captions; images are not read.

    Args:
        paths: ``{"data": folder or list}``, or ``{"captions": list, "images": folder}``. Paths in a list are relative
            to the folder of images, else to the list's folder, or to ``images/`` or ``Images/`` in it.

    A list is one of

    - COCO's captions: a JSON object with ``images`` and ``annotations``.
    - ``.txt``: Flickr 8k's (a first line ``image,caption``), Flickr 30k's (``NAME.jpg#0``, a tab, and the caption), or
      the image, a tab, and a caption.
    - a table (``.csv``, ``.tsv``) or JSON lines with columns of :data:`IMAGES` and :data:`CAPTIONS`; in JSON the latter
      may be a list.

    Lines of one image are joined. A line without an image, with an empty caption, or with more than :data:`MOST` of an
    image is in ``rejected``. Raises DataError if no image has a caption, or the list cannot be read, and ConfigError if
    a name of the paths is unknown.
    """
    check_exists(*paths.values())
    if set(paths) == {"captions", "images"}:
        source, roots = paths["captions"], [paths["images"]]
    elif set(paths) == {"data"}:
        path = paths["data"]
        found = captions_in(path) if path.is_dir() else path
        if found is None:
            raise DataError(f"{path}: has no captions; add captions.txt with lines of an image, a tab, and its caption")
        source = found
        roots = [source.parent, source.parent / "images", source.parent / "Images"]
    else:
        raise ConfigError("pass images with captions as --data_path FOLDER, or --data_path captions=FILE images=FOLDER")
    captions, rejected = dict[Path, list[str]](), list[Rejected]()
    known = dict[str, Path | None]()
    for number, name, text in _lines(source, rejected):
        where = Path(f"{source}:{number}")
        if name not in known:
            known[name] = _found(name, roots)
        image = known[name]
        if image is None:
            rejected.append(Rejected(where, f"{name!r} is not an image in {roots[0]}; correct the line"))
        elif not text.strip():
            rejected.append(Rejected(where, "its caption is empty; write one, or remove the line"))
        elif len(captions.setdefault(image, [])) == MOST:
            rejected.append(Rejected(where, f"{name!r} has more than {MOST} captions; remove some"))
        else:
            captions[image].append(" ".join(text.split()))
    samples = [Captioned(path, tuple(texts)) for path, texts in captions.items() if texts]
    if not samples:
        first = f", the first: {rejected[0].path}: {rejected[0].reason}" if rejected else ""
        raise DataError(f"{source}: no image has a caption{first}; pass --data_path captions=FILE images=FOLDER")
    return Captions(samples, source, rejected)


def _found(name: str, roots: list[Path]) -> Path | None:
    inside = Path(os.path.normpath(name))
    if not name.strip() or inside.is_absolute() or ".." in inside.parts or not is_image(name):
        return None
    return next((root / inside for root in roots if (root / inside).is_file()), None)


def _lines(source: Path, rejected: list[Rejected]) -> Iterator[tuple[int, str, str]]:
    """Yield number, image and caption of the entries of a list."""
    ending = source.suffix.lower()
    if ending == ".json":
        yield from _coco(source)
    elif ending == ".txt":
        yield from _flickr(source, rejected)
    else:
        table = read_table(source, quoted=True)
        rejected += table.rejected
        image, caption = (table.column(None, known, "") for known in (IMAGES, CAPTIONS))
        if image is None or caption is None:
            raise DataError(f"{source}: has columns {table.listed()}; name them 'image' and 'caption'")
        for row in table.rows:
            texts = row.values.get(caption, "")
            for text in texts if isinstance(texts, list) else [texts]:
                yield row.number, str(row.values.get(image, "")), str(text)


def _flickr(source: Path, rejected: list[Rejected]) -> Iterator[tuple[int, str, str]]:
    for number, line in read_lines(source):
        name, tab, text = line.partition("\t")
        if not tab:
            name, tab, text = line.partition(",")
        if not line.strip() or (number == 1 and name.strip().lower() in IMAGES):
            continue
        if not tab:
            rejected.append(Rejected(Path(f"{source}:{number}"), "is not an image, a tab, and a caption; correct it"))
            continue
        base, mark, place = name.strip().rpartition("#")
        quoted = len(text) > 1 and text[0] == text[-1] == '"'
        yield number, base if mark and place.isdecimal() else name.strip(), text[1:-1] if quoted else text


def _coco(source: Path) -> Iterator[tuple[int, str, str]]:
    try:
        data = json.loads(utf8_text(source))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{source}: not JSON ({reason_of(error)}); pass COCO's captions_*.json") from error
    images, annotations = (data.get(key) if isinstance(data, dict) else None for key in ("images", "annotations"))
    if not isinstance(images, list) or not isinstance(annotations, list):
        raise DataError(f"{source}: must be an object with the lists 'images' and 'annotations', as COCO's captions")
    names: dict[Any, str] = {}
    for one in images:
        if isinstance(one, dict) and isinstance(one.get("id"), int) and isinstance(one.get("file_name"), str):
            names[one["id"]] = one["file_name"]
    for number, one in enumerate(annotations, 1):
        if not isinstance(one, dict) or not isinstance(one.get("caption"), str):
            raise DataError(f"{source}: annotation {number} has no text 'caption'; pass COCO's captions_*.json")
        place = one.get("image_id")
        yield number, names.get(place, "") if isinstance(place, int) else "", one["caption"]
