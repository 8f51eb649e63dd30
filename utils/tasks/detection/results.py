"""Reader and writer of COCO's results format, one entry per object."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine import DataError
from tecoinfer_modelzoo.files import read_regular
from utils.datasets.base import Batch, Dataset
from utils.datasets.image.coco import is_id
from utils.datasets.image.objects import CATEGORIES, CATEGORY_IDS, IMAGE_IDS
from utils.metrics.class_names import found_places, places
from utils.postprocess.image.nms import Detections
from utils.tasks.common.prediction_files import write_predictions


def read_box_results(file: Path, dataset: Dataset, labels: Sequence[str] | None) -> list[Detections | None]:
    """Read a JSON list of ``{"image_id", "category_id", "bbox": [left, top, width, height], "score"}``; see
    :func:`read_results`."""
    return read_results(file, dataset, labels, _box_of, _answer, "bbox")


def read_results(
    file: Path,
    dataset: Dataset,
    labels: Sequence[str] | None,
    part: Callable[[Mapping[str, Any], str], Any],
    answer: Callable[[Sequence[Any]], Any],
    key: str,
) -> list[Any]:
    """Read a JSON list of ``{"image_id", "category_id", "score"}`` and further keys.

    The format is cocodataset.org's, "Results format". An image is matched by its id in the data set's JSON, or by its
    file name, with or without the ending. A category is matched by its id in that JSON; without one, ids are numbers of
    the data set's categories, or of the model's classes, from 0.

    Args:
        file: the results. dataset: the images. labels: the model's class names, if stored.
        part: returns the further content of an entry; raises DataError, with the given place, if it is invalid.
        answer: returns the answer of an image from its entries ``(part, score, class)`` by falling score.
        key: the further key, for messages.

    Returns:
        The answer of each image; ``None`` for images without an entry.

    Raises:
        DataError: The file has another format, or an entry has an unknown image or category.
    """
    entries = _read(file)
    listed = _listing(dataset)
    images = _image_places(dataset, listed)
    classes = _classes(listed, dataset, labels)
    rows: dict[int, list[tuple[Any, float, int]]] = {}
    for number, entry in enumerate(entries):
        where = f"{file}: entry {number}"
        if not isinstance(entry, dict):
            raise DataError(f"{where} is not an object; write image_id, category_id, {key} and score")
        place = images.get(str(entry.get("image_id")))
        if place is None and str(entry.get("image_id")) in listed.get("images", {}):
            continue  # beyond --samples, or a missing file
        if place is None:
            raise DataError(f"{where}: image_id {entry.get('image_id')!r} is not in the data set; use its ids")
        own, score = part(entry, where), entry.get("score")
        if not are_numbers([score], 1):
            raise DataError(f"{where}: score {score!r} must be a number")
        found = _class_of(entry.get("category_id"), classes, where)
        rows.setdefault(place, []).append((own, float(score or 0), found))
    ordered = {place: sorted(some, key=lambda row: -row[1]) for place, some in rows.items()}
    return [answer(ordered[place]) if place in ordered else None for place in range(len(dataset))]


def _box_of(entry: Mapping[str, Any], where: str) -> list[float]:
    box, score = entry.get("bbox"), entry.get("score")
    if not isinstance(box, list) or not are_numbers(box, 4) or not are_numbers([score], 1):
        raise DataError(f"{where}: bbox {box!r} and score {score!r} must be four numbers and one")
    return [box[0], box[1], box[0] + box[2], box[1] + box[3]]


def _read(file: Path) -> list[Any]:
    try:
        content = json.loads(read_regular(file))
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}; check --golden") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file} is not JSON ({error}); write COCO's results format, a list of objects") from error
    if isinstance(content, dict) and isinstance(content.get("annotations"), list):
        content = content["annotations"]
    if not isinstance(content, list) or not content:
        raise DataError(f"{file} is not a list of detections; write COCO's results format")
    return content


def _listing(dataset: Dataset) -> dict[str, Any]:
    """Return ids of images and categories in the data set's JSON; empty if it has no JSON."""
    files = map(Path, sorted(dataset.source_files()))
    file = next((one for one in files if one.suffix.lower() == ".json" and one.is_file()), None)
    if file is None:
        return {}
    content = json.loads(read_regular(file))
    images, kinds = (  # invalid entries were rejected when the data set was loaded
        [one for one in content.get(key, ()) if isinstance(one, dict) and is_id(one.get("id"))]
        for key in ("images", "categories")
    )
    names = {str(one["id"]): one["file_name"] for one in images if isinstance(one.get("file_name"), str)}
    categories = {one["id"]: one["name"] for one in kinds}
    return {"images": names, "categories": categories, "root": file.parent}


def _image_places(dataset: Dataset, listed: Mapping[str, Any]) -> dict[str, int]:
    """Return the place of each image by its unambiguous keys: path, name, stem and id."""
    paths = [Path(path) for path in dataset.batch(range(len(dataset))).names]
    found: dict[str, int] = {}
    for words in ([str(path) for path in paths], [path.name for path in paths], [path.stem for path in paths]):
        twice = {word for word, times in Counter(words).items() if times > 1}
        found = {word: place for place, word in enumerate(words) if word not in twice} | found
    if listed:
        at = {str(path): place for place, path in enumerate(paths)}
        files = {key: str(listed["root"] / name) for key, name in listed["images"].items()}
        found |= {key: at[file] for key, file in files.items() if file in at}
    return found


def _classes(listed: Mapping[str, Any], dataset: Dataset, labels: Sequence[str] | None) -> dict[Any, int] | None:
    """Return the model's class of each category id; ``None`` if ids are classes."""
    if listed:
        ids = sorted(listed["categories"], key=lambda key: (isinstance(key, str), key))  # as the loader sorts them
        names = [listed["categories"][one] for one in ids]
        return dict(zip(ids, places(names, labels).tolist(), strict=True))
    targets = dataset.batch(range(1)).targets if len(dataset) else None
    if targets is None or labels is None:
        return None
    return dict(enumerate(places(list(targets[0].categories), labels).tolist()))


def _class_of(given: Any, classes: Mapping[Any, int] | None, where: str) -> int:
    if classes is None and isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    if classes is None or not isinstance(given, (int, str)) or given not in classes:
        raise DataError(f"{where}: category_id {given!r} is not in the data set; use its ids")
    return classes[given]


def are_numbers(values: Any, count: int) -> bool:
    """Return whether this is a list of ``count`` numbers."""
    return (
        isinstance(values, list)
        and len(values) == count
        and all(isinstance(v, (int, float)) and not isinstance(v, bool) and abs(v) < 1e9 for v in values)
    )


def _answer(rows: Sequence[tuple[list[float], float, int]]) -> Detections:
    boxes, scores, classes = zip(*rows, strict=True)
    return Detections(np.array(boxes, np.float64), np.array(scores, np.float64), np.array(classes, np.int64))


class BoxResults:
    """Writer of COCO's results format (:meth:`pycocotools.coco.COCO.loadRes`).

    The id of an image is that in the data set's JSON, else the file's stem, or its path if stems repeat; the id of a
    category is that in the JSON, else its place among the data set's names, or the model's class. Detections of a class
    that the data set lacks are left out.

    Args:
        path: the JSON file to write. dataset: the images. labels: the model's class names, if stored.
    """

    def __init__(self, path: Path, dataset: Dataset, labels: Sequence[str] | None) -> None:
        self.path, self._lines = path, list[str]()
        self._images = dataset.notes.get(IMAGE_IDS)
        names = list(dataset.notes.get(CATEGORIES, ()))
        self._categories: dict[int, Any] | None = None
        if names:
            found = found_places(names, labels).tolist()
            ids = dataset.notes.get(CATEGORY_IDS, range(len(names)))
            self._categories = {place: key for place, key in reversed(list(zip(found, ids, strict=True))) if place >= 0}
        stems = [Path(name).stem for name in dataset.batch(range(len(dataset))).names]
        self._unique = len(set(stems)) == len(stems)

    def see(self, batch: Batch, predictions: Sequence[Any]) -> None:
        """Add the detections of a batch."""
        known = self._categories
        for name, target, found in zip(batch.names, batch.targets or (), predictions, strict=True):
            image = self._images[target.number] if self._images else Path(name).stem if self._unique else name
            for row, label in enumerate(found.classes.tolist()):
                if known is None or label in known:
                    entry = {"image_id": image, "category_id": label if known is None else known[label]}
                    self._lines.append(
                        json.dumps({**entry, **self.part(found, row), "score": float(found.scores[row])})
                    )

    def part(self, found: Any, row: int) -> Mapping[str, Any]:
        """Return the further keys of an entry: the box of an image's detection."""
        left, top, right, bottom = found.boxes[row].tolist()
        return {"bbox": [left, top, right - left, bottom - top]}

    def close(self) -> None:
        """Write the file, an entry per line."""
        write_predictions(self.path, "[\n" + ",\n".join(self._lines) + "\n]\n")
