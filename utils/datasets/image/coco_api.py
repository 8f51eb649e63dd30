"""COCO's annotations with the interface of pycocotools, implemented without it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from engine import DataError
from tecoinfer_modelzoo import expanded
from utils.datasets.image.coco import by_kind, categories_of, entries, is_id, read_json


class CocoAnnotations:
    """Content of a JSON file in COCO's format, such as ``instances_val2017.json``; raises DataError for another format.

    Attributes:
        dataset: the parsed file. file: its path.
        imgs, cats, anns: images, categories and annotations by id.
    """

    def __init__(self, file: str | os.PathLike[str]) -> None:
        self.file = expanded(file)
        self.dataset: Mapping[str, Any] = read_json(self.file)
        categories_of(self.dataset, self.file)
        self.imgs = self._by_id("images")
        self.cats = self._by_id("categories")
        self.anns: dict[Any, Mapping[str, Any]] = {}
        self._of_image: dict[Any, list[Any]] = {}
        for place, (_, entry) in enumerate(entries(self.dataset, "annotations", self.file)):
            key = entry.get("id")
            key = key if is_id(key) and key not in self.anns else f"annotation {place}"
            self.anns[key] = entry
            owner = entry.get("image_id")
            if is_id(owner):
                self._of_image.setdefault(owner, []).append(key)

    def getImgIds(self, imgIds: Any = (), catIds: Any = ()) -> list[Any]:  # noqa: N802, N803 -- pycocotools' names
        """Return ids of images in order, limited to ``imgIds`` and to images that have every category in ``catIds``."""
        found = [key for key in _listed(imgIds) or sorted(self.imgs, key=by_kind) if key in self.imgs]
        for category in _listed(catIds):
            found = [key for key in found if category in {self.anns[one].get("category_id") for one in self._in(key)}]
        return found

    def getAnnIds(self, imgIds: Any = (), catIds: Any = (), iscrowd: bool | None = None) -> list[Any]:  # noqa: N802, N803
        """Return ids of annotations, limited to the given images and categories."""
        owners, kinds = _listed(imgIds), set(_listed(catIds))
        keys = [key for owner in owners for key in self._in(owner)] if owners else list(self.anns)
        return [
            key
            for key in keys
            if (not kinds or self.anns[key].get("category_id") in kinds)
            and (iscrowd is None or bool(self.anns[key].get("iscrowd", 0)) == iscrowd)
        ]

    def getCatIds(self, catNms: Any = (), supNms: Any = (), catIds: Any = ()) -> list[Any]:  # noqa: N802, N803
        """Return ids of categories in the order of the file, limited to the given names, supercategories or ids."""
        asked = {"name": set(_listed(catNms)), "supercategory": set(_listed(supNms)), "id": set(_listed(catIds))}
        return [
            key for key, one in self.cats.items() if all(not some or one.get(of) in some for of, some in asked.items())
        ]

    def loadImgs(self, ids: Any = ()) -> list[Mapping[str, Any]]:  # noqa: N802
        """Return images by one or several ids."""
        return self._loaded("image", self.imgs, ids)

    def loadAnns(self, ids: Any = ()) -> list[Mapping[str, Any]]:  # noqa: N802
        """Return annotations by one or several ids."""
        return self._loaded("annotation", self.anns, ids)

    def loadCats(self, ids: Any = ()) -> list[Mapping[str, Any]]:  # noqa: N802
        """Return categories by one or several ids."""
        return self._loaded("category", self.cats, ids)

    def _in(self, image: Any) -> list[Any]:
        return self._of_image.get(image, [])

    def _by_id(self, key: str) -> dict[Any, Mapping[str, Any]]:
        found = entries(self.dataset, key, self.file)
        return {entry["id"]: entry for _, entry in found if is_id(entry.get("id"))}

    def _loaded(self, what: str, known: Mapping[Any, Mapping[str, Any]], ids: Any) -> list[Mapping[str, Any]]:
        missing = [key for key in _listed(ids) if key not in known]
        if missing:
            raise DataError(f"{self.file}: no {what} has the id {missing[0]!r}; use an id of the file")
        return [known[key] for key in _listed(ids)]


def _listed(value: Any) -> list[Any]:
    """Return one id, or several, as a list."""
    return [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
