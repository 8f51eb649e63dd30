"""COCO's images for scripts of Grounding DINO: normalised, stretched to squares, with their objects."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, DataError, InputError, declared_shapes
from tecoinfer_modelzoo import expanded
from utils.datasets.image.coco import images_root, load_coco
from utils.datasets.image.coco_api import CocoAnnotations
from utils.datasets.image.objects import CATEGORY_IDS, IMAGE_IDS
from utils.torch_array import as_array, of_the_script

__all__ = ["CocoDetection", "Images", "collate_fn"]

SIDE = 800
"""Default side of the square input in pixels, if no engine with another size was opened."""


class CocoDetection:
    """Images and their objects from COCO's JSON, for :class:`torch.utils.data.DataLoader`.

    Images with an invalid entry or without a file are skipped with one warning, and listed with reasons in
    ``rejected``. An image that cannot be decoded raises an error with its path when it is read. Raises DataError if a
    path is missing, the JSON is not in COCO's format, or no image can be used.

    Attributes:
        coco: the annotations, a :class:`~utils.datasets.image.coco_api.CocoAnnotations`.
        ids: image ids, in the order of the samples.
    """

    def __init__(self, img_folder: str | os.PathLike[str], ann_file: str | os.PathLike[str]) -> None:
        folder, file = expanded(img_folder), expanded(ann_file)
        if not folder.is_dir():
            raise DataError(f"img_folder {folder} is not a folder; pass the folder of images")
        self.coco = CocoAnnotations(file)
        gathered = load_coco(file, _root(folder, file, self.coco), self.coco.dataset)
        data = gathered.dataset()
        self.rejected = data.rejected
        if self.rejected:
            first = self.rejected[0]
            lost = f"{len(self.rejected)} entries left out, the first: {first.path}: {first.reason}"
            warnings.warn(f"{file}: {lost}", stacklevel=2)
        self._paths, self._objects = data.samples, data.targets or ()
        self.ids = [data.notes[IMAGE_IDS][found.number] for found in self._objects]
        self._categories = np.array(data.notes[CATEGORY_IDS] or [0])
        shape = next((shape for shape in declared_shapes() if len(shape) == 4), (None,) * 4)
        self._size = (shape[2] or SIDE, shape[3] or SIDE)

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> tuple[Any, dict[str, Any]]:
        """Return an image and its objects, as tensors if the script has imported torch.

        The image is 3 x S x S float32, normalised with ImageNet's mean and standard deviation; S is the input side of
        the engine that the script has opened, else :data:`SIDE`. The objects are a dict of ``image_id`` (from the
        JSON), ``orig_size`` and ``size`` (height and width in pixels of the image and of the square), ``boxes`` (K x 4
        float32: centre, width and height relative to the image), ``labels`` (K category ids), ``area`` and ``iscrowd``.
        Raises DataError if the image cannot be decoded.
        """
        from utils.preprocess.image.images import open_image
        from utils.preprocess.pytorch.classification import preprocess

        image, objects = open_image(self._paths[index]), self._objects[index]
        pixels = preprocess(image, "float32", self._size, self._size)[0]
        areas = (objects.boxes[:, 2:] - objects.boxes[:, :2]).prod(axis=1)
        columns = {
            "boxes": _shares(objects.boxes, image.width, image.height),
            "labels": self._categories[objects.classes],
            "area": (areas if objects.areas is None else objects.areas).astype(np.float32),
            "iscrowd": objects.crowd.astype(np.int64),
            "orig_size": np.array((image.height, image.width), np.int64),
            "size": np.array(self._size, np.int64),
        }
        return of_the_script(pixels), {
            "image_id": self.ids[index],
            **{name: of_the_script(column) for name, column in columns.items()},
        }


class Images(NamedTuple):
    """A batch: ``tensors`` N x 3 x H x W, and ``mask`` N x H x W, true in the padding."""

    tensors: Any
    mask: Any


def collate_fn(batch: Sequence[tuple[Any, dict[str, Any]]]) -> tuple[Images, list[dict[str, Any]]]:
    """Return a batch: images padded with zeros right and below, and a list of targets; raise InputError if empty."""
    if not batch:
        raise InputError("an empty batch cannot be collated; pass at least one sample")
    arrays = [as_array(image, "an image") for image, _ in batch]
    height, width = (max(array.shape[axis] for array in arrays) for axis in (1, 2))
    tensors = np.zeros((len(arrays), 3, height, width), np.float32)
    mask = np.ones((len(arrays), height, width), bool)
    for place, array in enumerate(arrays):
        tensors[place, :, : array.shape[1], : array.shape[2]] = array
        mask[place, : array.shape[1], : array.shape[2]] = False
    return Images(of_the_script(tensors), of_the_script(mask)), [target for _, target in batch]


def _root(folder: Path, file: Path, coco: CocoAnnotations) -> Path:
    """Return the given folder if it has the first image, else the folder found from the path of the JSON."""
    names = [str(entry.get("file_name")) for entry in list(coco.imgs.values())[:1]]
    if not any((folder / name).is_file() for name in names):
        other = images_root(file, names)
        return other if any((other / name).is_file() for name in names) else folder
    return folder


def _shares(boxes: Array, width: int, height: int) -> Array:
    """Return corners in pixels as centres, widths and heights relative to the image, float32."""
    sides = boxes[:, 2:] - boxes[:, :2]
    shares: Array = np.concatenate([boxes[:, :2] + sides / 2, sides], axis=1) / (width, height, width, height)
    return shares.astype(np.float32)
