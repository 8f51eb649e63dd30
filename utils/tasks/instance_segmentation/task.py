"""Instance segmentation: the mask of every object of an image; the metric is COCO's mask mAP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from engine import Array, ConfigError
from utils.datasets.base import Dataset
from utils.datasets.image.boxes import data_format
from utils.datasets.image.instances import FORMATS, Outlined, OutlinedImages, load_instances
from utils.datasets.image.objects import CATEGORIES
from utils.metrics.base import Metric
from utils.postprocess.image.instances import Instances, Mask, kept_masks, of_box_masks, of_prototypes, suppressed
from utils.preprocess.image.letterbox import Geometry
from utils.tasks import Diagnostics, Flag, PredictionWriter, Prepared, Rendering, Template
from utils.tasks.detection.choices import CHOICES
from utils.tasks.detection.heads import OTHERS_SCORE, least_score, most, overlap, shown
from utils.tasks.detection.task import Detection, check_classes, in_words
from utils.tasks.instance_segmentation.heads import BOX_MASKS, LAYOUTS, box_masks_of, layout_of, prototypes_of
from utils.tasks.templates import sample_images

LEFT_OUT = ("best_class", "box_format", "box_units", "score_form", "nms", "metric")
"""Flags of detection that instance segmentation does not have."""

OWN = {
    "layout": Flag("--layout", "layout of the outputs (default: as stored, or by their number)", None, choices=LAYOUTS),
    "data_format": Flag(
        "--data_format", "layout of the data; left out: detected from the path", None, data_format, choices=FORMATS
    ),
}


class Context(NamedTuple):
    """Context of an image."""

    geometry: Geometry  # placement in the input
    masks: tuple[Mask, ...] | None = None  # of its objects, in valid


class InstanceSegmentation(Detection):
    """Models with boxes, coefficients and prototypes (YOLO's segmentation), or boxes and masks (Mask R-CNN).

    Samples are :class:`.Outlined`, predictions :class:`.Instances` in pixels of the image.
    """

    name = "instance_segmentation"
    domain = "segmentation"
    domain_default = False
    template: ClassVar[Template | None] = sample_images.INSTANCE_SEGMENTATION
    data_help = "COCO's JSON of instances, a folder with one, a folder of images, or an image"
    flags: ClassVar[tuple[Flag, ...]] = (
        *(OWN.get(flag.key, flag) for flag in Detection.flags if flag.key not in LEFT_OUT),
        Flag("--mask_threshold", "probability above which a pixel belongs to an object", 0.5, float),
    )
    export_settings = tuple(one for one in CHOICES if one.key not in LEFT_OUT)
    writes = "the masks as a JSON file in COCO's results format"

    def check(self) -> None:
        """Check the options."""
        super().check()
        if not 0 < self.options.mask_threshold < 1:
            raise ConfigError(f"--mask_threshold {self.options.mask_threshold} must be above 0 and below 1")

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return the images, and the regions of their objects if known (:func:`.load_instances`)."""
        found, labels = load_instances(paths["data"], self.options.data_format), self.options.labels
        if labels is None:
            return self.selected(found)
        from utils.datasets.renaming import read_renames, renamed

        return self.selected(OutlinedImages(renamed(found.images, read_renames(labels), labels), found.regions))

    def prepare(self, samples: Sequence[Outlined], *, out: Array | None = None) -> Prepared:
        """Return the images placed in the input, as for detection; contexts hold the masks of their objects in valid.
        Raises DataError if an image or a region cannot be read."""
        arrays, placed, _ = super().prepare([one.image for one in samples], out=out)
        valid, contexts = self.options.script == "valid", []
        for sample, geometry in zip(samples, placed or (), strict=True):
            size = geometry.height, geometry.width
            known = valid and sample.regions is not None
            contexts.append(Context(geometry, sample.masks(size) if known else None))
        return Prepared(arrays, contexts)

    def decode(self, outputs: Any, contexts: Any) -> Sequence[Instances]:
        """Return the objects of each image by falling score; those without a pixel are dropped.

        With prototypes, every pair of box and class with a score of at least ``--score_threshold`` is a candidate, and
        boxes that overlap a better one of their class by more than ``--iou_threshold`` are dropped. Boxes with masks
        are final.

        Raises:
            InputError: the outputs do not fit the layout.
        """
        model, opt, size = self.model, self.options, self.known_size
        if size is None:
            raise ConfigError(f"{model.ckpt}: height and width of its input are open; pass --input_size")
        least, limit = least_score(model, opt), most(model, opt)
        if layout_of(model, opt) == BOX_MASKS:
            pairs = zip(box_masks_of(outputs, len(contexts), model, opt, least), contexts, strict=True)
            some = [(one.at(np.arange(min(limit, len(one.scores)))), context.geometry) for one, context in pairs]
            return [kept_masks(of_box_masks(one, place, size, opt.mask_threshold)) for one, place in some]
        logit, iou = float(np.log(opt.mask_threshold / (1 - opt.mask_threshold))), overlap(model, opt)
        rows = zip(prototypes_of(outputs, len(contexts), model, least), contexts, strict=True)
        return [
            kept_masks(of_prototypes(suppressed(one, iou, limit), own, context.geometry, size, logit))
            for (one, own), context in rows
        ]

    def metric(self, dataset: Dataset) -> Metric:
        """Return COCO's mean average precision of masks. Raises DataError if the model lacks a class."""
        from utils.metrics.detection.masks import MaskAveragePrecision

        labels, opt, names = self.labels, self.options, dataset.notes.get(CATEGORIES, ())
        if labels is not None:
            check_classes(dataset, labels, opt.common_classes)
        return MaskAveragePrecision(labels, categories=names, common=opt.common_classes)

    def show(self, sample: Outlined, prediction: Instances) -> Rendering:
        """Return the objects as text and as data; saving draws masks and boxes on the image."""
        from utils.tasks.instance_segmentation.drawing import save_instances

        names, places = self.labels, np.arange(len(prediction.scores))
        (kept,) = shown([places], prediction.scores, self.options, OTHERS_SCORE)
        answer = list[dict[str, Any]]()
        for place in kept.tolist():
            label = int(prediction.classes[place])
            answer.append(
                {
                    "label": names[label] if names and label < len(names) else str(label),
                    "score": round(float(prediction.scores[place]), 4),
                    "box": [round(edge, 2) for edge in prediction.boxes[place].tolist()],
                    "pixels": prediction.masks[place].area,
                }
            )
        self.add_tracks(answer)
        text, masks = in_words(answer, "object"), [prediction.masks[place] for place in kept.tolist()]
        return Rendering(text, answer, partial(save_instances, sample.image, answer, masks, text))

    def diagnostics(self) -> Diagnostics | None:
        """Return ``None``: the layout has one format of boxes and masks."""
        return None

    def reference_answers(self, file: Path, dataset: Dataset) -> Sequence[Any]:
        """Read the source framework's masks (:func:`.read_mask_results`)."""
        from utils.tasks.instance_segmentation.results import read_mask_results

        return read_mask_results(file, dataset, self.labels)

    def agreement(self, prediction: Any, answer: Any) -> float:
        """Return the agreement of two sets of objects, by the overlaps of their masks."""
        from utils.metrics.detection.agreement import agreement
        from utils.tasks.instance_segmentation.results import instance_overlaps

        return agreement(prediction, answer, instance_overlaps)

    def prediction_writer(self, path: Path, dataset: Dataset) -> PredictionWriter:
        """Return a writer of COCO's results format."""
        from utils.tasks.instance_segmentation.results import MaskResults

        return MaskResults(path, dataset, self.labels)
