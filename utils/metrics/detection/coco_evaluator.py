"""COCO's twelve figures with the interface used by scripts for DETR and Grounding DINO, without pycocotools."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, ConfigError, DataError, InputError
from utils.datasets.image.coco import categories_of, found_in
from utils.datasets.image.objects import Objects
from utils.metrics.detection.metric import MeanAveragePrecision
from utils.postprocess.image.nms import Detections
from utils.torch_array import as_array

_SIZES = ("small", "medium", "large")
_AP, _AR, _RANGE = ("Average Precision", "AP"), ("Average Recall", "AR"), "0.50:0.95"
FIGURES = (
    *(("mAP", *_AP, _RANGE, "all", 100), ("mAP50", *_AP, "0.50", "all", 100), ("mAP75", *_AP, "0.75", "all", 100)),
    *((f"mAP_{size}", *_AP, _RANGE, size, 100) for size in _SIZES),
    *((f"AR{most}", *_AR, _RANGE, "all", most) for most in (1, 10, 100)),
    *((f"AR_{size}", *_AR, _RANGE, size, 100) for size in _SIZES),
)
"""COCO's figures in the order of ``COCOeval.stats``: the metric's name, and the columns of its printed line."""

ABSENT = -1.0
"""COCO's value of a figure without objects."""


class Summary:
    """The figures of one kind of evaluation.

    Attributes:
        stats: the twelve of :data:`FIGURES`, float64; :data:`ABSENT` before they are computed.
    """

    def __init__(self) -> None:
        self.stats: Array = np.full(len(FIGURES), ABSENT)


class CocoGroundingEvaluator:
    """Collects detections and computes COCO's figures over the evaluated images.

    Args:
        coco_gt: the annotations: a data set's ``coco``, or any object whose ``dataset`` is COCO's JSON.
        iou_types: kinds of comparison; only ``"bbox"`` is supported.
        useCats: whether a detection must have its object's class; ``False`` compares only boxes.

    Attributes:
        coco_eval: ``{"bbox": summary}``, whose ``stats`` are the twelve figures.

    Raises:
        ConfigError: another kind of comparison.
        DataError: the annotations are not in COCO's format.
    """

    def __init__(self, coco_gt: Any, iou_types: Sequence[str], useCats: bool = True) -> None:  # noqa: N803
        kinds = [iou_types] if isinstance(iou_types, str) else list(iou_types)
        if kinds != ["bbox"]:
            raise ConfigError(f"iou_types {kinds} are not supported; use ('bbox',)")
        self.coco_gt, self.iou_types, self.useCats = coco_gt, kinds, bool(useCats)
        self._file = Path(getattr(coco_gt, "file", "annotations"))
        self._names, self._places = categories_of(coco_gt.dataset, self._file)
        self._images = {image.get("id") for image in coco_gt.dataset["images"]}
        self._found: dict[Any, Detections] = {}
        self.coco_eval = {"bbox": Summary()}

    def update(self, predictions: Mapping[Any, Mapping[str, Any]]) -> None:
        """Add the detections of some images; a repeated image replaces its earlier detections.

        Args:
            predictions: by image id ``boxes`` (K x 4 corners in pixels), ``scores`` (K) and ``labels`` (K category
                ids), tensors or arrays.

        Raises:
            InputError: unknown images or categories, or arrays that do not match.
        """
        for given, found in predictions.items():
            key = given.item() if hasattr(given, "item") else given
            if key not in self._images:
                raise InputError(f"image_id {key!r} is not in {self._file}; pass the target's image_id")
            boxes = as_array(found["boxes"], "boxes").reshape(-1, 4).astype(np.float64)
            labels = as_array(found["labels"], "labels").reshape(-1).tolist()
            unknown = [label for label in labels if label not in self._places]
            if unknown:
                raise InputError(
                    f"label {unknown[0]} of image {key!r} is not a category id of {self._file}; "
                    "pass coco_api=dataset.coco to PostProcessCocoGrounding"
                )
            classes = np.array([self._places[label] for label in labels], np.int64)
            scores = as_array(found["scores"], "scores").reshape(-1).astype(np.float64)
            self._found[key] = self._compared(Detections(boxes, scores, classes))

    def synchronize_between_processes(self) -> None:
        """Merge the detections of all processes of ``torch.distributed``, if it is initialized."""
        distributed = getattr(sys.modules.get("torch"), "distributed", None)
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            return
        parts: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(parts, self._found)
        self._found = {key: found for part in parts for key, found in part.items()}

    def accumulate(self) -> None:
        """Compute the figures of the images so far.

        Raises DataError without images, or if an annotation of one is invalid.
        """
        if not self._found:
            raise DataError(f"{self._file}: no image was evaluated; call update() first")
        ids = sorted(self._found, key=lambda key: (isinstance(key, str), key))
        targets = self._targets(ids)
        stats = np.full(len(FIGURES), ABSENT)
        if all(target.crowd.all() for target in targets):
            warnings.warn(f"{self._file}: the {len(ids)} images have no object; every figure is -1", stacklevel=2)
        else:
            metric = MeanAveragePrecision()
            metric.update([self._found[key] for key in ids], targets)
            figures = {"mAP": metric.compute(), **metric.secondary()}
            stats[:] = [figures.get(name, ABSENT) for name, *_ in FIGURES]
        self.coco_eval["bbox"].stats = stats

    def summarize(self) -> None:
        """Print the twelve figures, a line each, in the format of COCO's own evaluation."""
        lines = ["IoU metric: bbox"]
        for (_, what, short, overlap, size, most), value in zip(FIGURES, self.coco_eval["bbox"].stats, strict=True):
            lines.append(
                f" {what:<18} ({short}) @[ IoU={overlap:<9} | area={size:>6} | maxDets={most:>3} ] = {value:.3f}"
            )
        sys.stdout.write("\n".join(lines) + "\n")

    def _compared(self, found: Detections) -> Detections:
        """Return detections, without classes if these are not compared; of equal scores COCO takes the lower id."""
        if self.useCats or not len(found.classes):
            return found
        order = np.argsort(found.classes, kind="stable")
        return Detections(found.boxes[order], found.scores[order], np.zeros_like(found.classes))

    def _targets(self, ids: Sequence[Any]) -> list[Objects]:
        """Return the objects of images, numbered in the order of their ids, as COCO orders equal scores."""
        annotations: dict[Any, list[Any]] = {key: [] for key in ids}
        for place, entry in enumerate(self.coco_gt.dataset["annotations"]):
            mine = annotations.get(entry.get("image_id"))
            if mine is not None:
                try:
                    mine.append(found_in(entry, self._places))
                except DataError as error:
                    raise DataError(f"{self._file}: annotations[{place}]: {error}") from error
        found = []
        for number, key in enumerate(ids):
            objects = annotations[key] if self.useCats else sorted(annotations[key], key=lambda one: one.label)
            boxes = np.array([one.box for one in objects], np.float64).reshape(-1, 4)
            own = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1).tolist()
            classes = np.array([one.label if self.useCats else 0 for one in objects], np.int64)
            areas = np.array([area if one.area is None else one.area for one, area in zip(objects, own, strict=True)])
            found.append(Objects(boxes, classes, np.array([one.crowd for one in objects], bool), (), areas, number))
        return found
