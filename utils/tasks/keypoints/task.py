"""Key points of objects: of a detector of poses, or of a model of one object's points; the metric is COCO's OKS-AP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from engine import Array, ConfigError, DataError
from utils.datasets.base import Dataset
from utils.datasets.image.boxes import data_format
from utils.datasets.image.coco_keypoints import FORMATS, POINT_NAMES, Posed, PosedImages, load_keypoints
from utils.datasets.image.objects import CATEGORIES
from utils.metrics.base import Metric
from utils.postprocess.image.poses import ALIGNMENTS, REFINEMENTS, Poses
from utils.preprocess.image.images import open_image
from utils.tasks import Diagnostics, ExportSetting, Flag, PredictionWriter, Prepared, Rendering, Template
from utils.tasks.detection.choices import CHOICES, chosen, normalised
from utils.tasks.detection.heads import OTHERS_SCORE, least_score, most, overlap, shown
from utils.tasks.detection.task import Detection, check_classes, in_words, save_boxes
from utils.tasks.keypoints.crops import cut, of_crops
from utils.tasks.keypoints.heads import LAYOUTS, Points, decoded_points, decoded_rows, is_top_down, setting, sigmas_of
from utils.tasks.templates import sample_images

MOST = 20
"""Default of ``--max_detections``: COCO's evaluation of key points looks at no more."""

LEFT_OUT = ("best_class", "box_format", "box_units", "class_offset", "score_form", "nms", "metric")
"""Flags of detection that key points do not have."""

OWN = {
    "max_detections": Flag("--max_detections", f"most objects in an image (default: as stored, or {MOST})", None, int),
    "layout": Flag("--layout", "layout of the outputs (default: as stored, or by their shapes)", None, choices=LAYOUTS),
    "data_format": Flag(
        "--data_format", "layout of the data; left out: detected from the path", None, data_format, choices=FORMATS
    ),
}


class Keypoints(Detection):
    """Models with rows of boxes and points for each object (YOLO pose), or heat maps or SimCC's vectors of one object.

    Samples are :class:`.Posed`, predictions :class:`.Poses` in pixels of the image. A model of one object gets the
    annotated boxes, or the whole image if there are none.
    """

    name = "keypoints"
    domain_default = False
    template: ClassVar[Template | None] = sample_images.KEYPOINTS
    data_help = "COCO's JSON of key points, a folder with one, a folder of images, or an image"
    flags: ClassVar[tuple[Flag, ...]] = (
        *(OWN.get(flag.key, flag) for flag in Detection.flags if flag.key not in LEFT_OUT),
        Flag("--alignment", "place of a heat map's cells in the input (default: as stored, or corner)", None,
             choices=ALIGNMENTS),
        Flag("--refine", "part of a cell towards the higher neighbour in a heat map", REFINEMENTS[0],
             choices=REFINEMENTS),
        Flag("--box_scale", "factor by which an object's box is widened for a model of one object (default: as stored, "
             "or 1.25)", None, float),
        Flag("--sigmas", "deviation of each point in OKS, or one for all (default: as stored; COCO's for 17 points, "
             "else 1 / points)", None, float, nargs="+", scripts=("valid",)),
        Flag("--point_score", "points below this score are not shown", 0.3, float),
    )  # fmt: skip
    export_settings = (
        *(one for one in CHOICES if one.key not in LEFT_OUT),
        ExportSetting("--alignment", ALIGNMENTS, "decode", partial(setting, "alignment"), fine=True),
        ExportSetting("--box_scale", (1.25, 1.0, 1.1, 1.5), "prepare", partial(setting, "box_scale"), fine=True),
    )
    writes = "the points as a JSON file in COCO's results format"

    def check(self) -> None:
        """Check the options."""
        super().check()
        opt = self.options
        if opt.box_scale is not None and not 0.5 <= opt.box_scale <= 4:
            raise ConfigError(f"--box_scale {opt.box_scale} must be from 0.5 to 4")
        if opt.script == "valid" and opt.sigmas is not None and not all(0 < one < 10 for one in opt.sigmas):
            raise ConfigError(f"--sigmas {opt.sigmas} must be above 0, such as 0.05")

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return the images, and the points of their objects if known (:func:`.load_keypoints`)."""
        found, labels = load_keypoints(paths["data"], self.options.data_format), self.options.labels
        if labels is None:
            return self.selected(found)
        from utils.datasets.renaming import read_renames, renamed

        return self.selected(PosedImages(renamed(found.images, read_renames(labels), labels)))

    def prepare(self, samples: Sequence[Posed], *, out: Array | None = None) -> Prepared:
        """Return the images placed in the input, as for detection; or for a model of one object a crop per object.
        Raises DataError if an image cannot be read, and ConfigError if the input's size is unknown."""
        if not is_top_down(self.model, self.options):
            return super().prepare([one.image for one in samples], out=out)
        found, form, size = chosen(self.model, self.options), self._form(), self._size()
        scale = setting("box_scale", self.model, self.options)
        pairs = [cut(open_image(one.image), one.boxes, size, scale) for one in samples]
        arrays = [normalised(part.transpose(2, 0, 1), found, self.model) for parts, _ in pairs for part in parts]
        stacked = np.array(arrays, self.model.dtype if form.plain else np.float32)
        return Prepared([stacked if form.plain else form.given(stacked)], [context for _, context in pairs])

    def _size(self) -> tuple[int, int]:
        """Return height and width of the input. Raises ConfigError if they are open."""
        if self.known_size is None:
            raise ConfigError(f"{self.model.ckpt}: height and width of its input are open; pass --input_size")
        return self.known_size

    def decode(self, outputs: Any, contexts: Any) -> Sequence[Poses]:
        """Return the objects of each image by falling score.

        Of rows, the best class of each box is a candidate if its score is at least ``--score_threshold``; boxes that
        overlap a better one of their class by more than ``--iou_threshold`` are dropped. A model of one object gives
        each of them the mean score of its points above 0.2.

        Raises:
            InputError: the outputs do not fit the layout.
        """
        model, opt = self.model, self.options
        if is_top_down(model, opt):
            rows = sum(len(one.crops) for one in contexts)
            points, sure = decoded_points(outputs, rows, model, opt, self._size())
            starts = np.cumsum([0, *(len(one.crops) for one in contexts)])
            parts = zip(contexts, starts[:-1].tolist(), starts[1:].tolist(), strict=True)
            return [of_crops(one, points[a:b], sure[a:b]) for one, a, b in parts]
        found, final = decoded_rows(outputs, len(contexts), model, opt, least_score(model, opt))
        iou, limit = overlap(model, opt), most(model, opt, MOST)
        pairs = zip(found, contexts, strict=True)
        if final:
            return [one.at(np.arange(min(limit, len(one.scores)))).in_image(geometry) for one, geometry in pairs]
        return [one.suppressed(iou, limit).in_image(geometry) for one, geometry in pairs]

    def metric(self, dataset: Dataset) -> Metric:
        """Return COCO's average precision of key points.
        Raises DataError if the model lacks a class or has other points than the data set."""
        from utils.metrics.detection.keypoints import KeypointAveragePrecision

        labels, names, opt = self.labels, dataset.notes.get(CATEGORIES, ()), self.options
        points, known = dataset.notes.get(POINT_NAMES, ()), Points.of(self.model)
        if known.number and points and known.number != len(points):
            raise DataError(
                f"{self.model.ckpt.name} finds {known.number} key points, and the data set has {len(points)}; use data "
                "of the same points"
            )
        if labels is not None:
            check_classes(dataset, labels, opt.common_classes)
        elif len(names) > 1:
            raise DataError(
                f"the data set has {len(names)} categories and the model stores no labels; store them in the model, or "
                "use a data set of one category"
            )
        sigmas = sigmas_of(self.model, opt.sigmas, len(points)) if points else None
        return KeypointAveragePrecision(labels, categories=names, sigmas=sigmas, common=opt.common_classes)

    def show(self, sample: Posed, prediction: Poses) -> Rendering:
        """Return the objects as text and as data; saving draws boxes, points and skeletons on the image."""
        names, known, least = self.labels, Points.of(self.model), self.options.point_score
        others = 0.0 if is_top_down(self.model, self.options) else OTHERS_SCORE
        found = Poses(*shown(prediction, prediction.scores, self.options, others))
        boxes, scores, classes, points, sure = (column.tolist() for column in found)
        objects: list[dict[str, Any]] = [
            {
                "label": names[label] if names and label < len(names) else str(label),
                "score": round(score, 4),
                "box": [round(edge, 2) for edge in box],
            }
            for box, score, label in zip(boxes, scores, classes, strict=True)
        ]
        self.add_tracks(objects)
        rows = list(zip(objects, points, sure, strict=True))
        answer = [{**one, "points": known.table(places, certain)} for one, places, certain in rows]
        drawn = [{**one, **known.lines(places, certain, least)} for one, places, certain in rows]
        text = in_words(answer, "object")
        return Rendering(text, answer, partial(save_boxes, sample.image, drawn, text))

    def diagnostics(self) -> Diagnostics | None:
        """Return ``None``: the layout has one format of boxes and points."""
        return None

    def reference_answers(self, file: Path, dataset: Dataset) -> Sequence[Any]:
        """Read the source framework's points (:func:`.read_pose_results`)."""
        from utils.tasks.keypoints.results import read_pose_results

        return read_pose_results(file, dataset, self.labels)

    def agreement(self, prediction: Any, answer: Any) -> float:
        """Return the agreement of two sets of poses, by their similarity (OKS)."""
        from utils.metrics.detection.agreement import agreement
        from utils.tasks.keypoints.results import pose_overlaps

        return agreement(prediction, answer, pose_overlaps)

    def prediction_writer(self, path: Path, dataset: Dataset) -> PredictionWriter:
        """Return a writer of COCO's results format."""
        from utils.tasks.keypoints.results import PoseResults

        return PoseResults(path, dataset, self.labels)
