"""Object detection; the metric is COCO's mAP."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from engine import Array, ConfigError, DataError, ModelError, TensorSpec, channels_last
from utils.datasets.base import Dataset
from utils.datasets.image.boxes import FORMATS, data_format, load_boxes
from utils.datasets.image.objects import CATEGORIES, COUNTS
from utils.datasets.sharding import rank_and_size
from utils.metrics.base import Metric
from utils.metrics.class_names import VOC_TO_COCO, found_places, unknown
from utils.postprocess.image.layouts import NOTE
from utils.postprocess.image.nms import Detections
from utils.preprocess.image.fits import Fit, fitted
from utils.preprocess.image.forms import ImageForm, image_form
from utils.preprocess.image.images import open_image
from utils.preprocess.image.letterbox import letterbox
from utils.tasks import Diagnostics, Flag, PredictionWriter, Prepared, Rendering, Template, at_least, str2bool
from utils.tasks.common.image_input import SIZE_FLAG, ImageTask
from utils.tasks.detection.choices import CHOICES, FIT, FLAGS as CHOSEN, box_form, check, chosen, laying, normalised
from utils.tasks.detection.heads import IOU, MOST, OTHERS_SCORE, VALID_SCORE, detections, note, shown
from utils.tasks.templates import sample_images

if TYPE_CHECKING:
    from utils.postprocess.image.tracking import Tracker

METRICS = ("coco", "voc2007", "voc2012")
"""Values of ``--metric`` (:data:`utils.metrics.detection.metric.RULES`)."""

DATA_FLAGS = (
    Flag("--data_format", "layout of the data; left out: detected from the path", None, data_format,
         choices=FORMATS),
    Flag("--labels", "file of the data set's class names that differ from the model's: 'aeroplane = airplane'",
         None, Path, metavar="FILE"),
    Flag("--common_classes", "leave out objects of classes that the model lacks", False, str2bool, nargs="?",
         scripts=("valid",)),
    Flag("--metric", "evaluation rules", "coco", choices=METRICS, scripts=("valid",)),
)  # fmt: skip


def check_classes(dataset: Dataset, labels: Sequence[str], common: bool) -> None:
    """Check that all objects have a class of the labels; with ``common`` (``--common_classes``) warn about others.
    Raises DataError if objects have other classes, and ``common`` is false."""
    names, counts = dataset.notes.get(CATEGORIES, ()), dataset.notes.get(COUNTS, ())
    if not names:
        if len(counts) > len(labels):
            raise DataError(
                f"the data set has a class {len(counts) - 1} and the model {len(labels)} labels; add class names to "
                "the data set (data.yaml, classes.txt), or use another model"
            )
        return
    places = found_places(names, labels).tolist()
    used = [(name, count, place) for name, count, place in zip(names, counts, places, strict=True) if count]
    missing = [name for name, _, place in used if place < 0]
    if not missing:
        return
    if not common or len(missing) == len(used):
        name = next((name for name in missing if VOC_TO_COCO.get(name) in labels), missing[0])
        line = f"{name} = {VOC_TO_COCO[name] if VOC_TO_COCO.get(name) in labels else 'LABEL'}"
        fix = (
            f"write lines such as '{line}' into a file and pass --labels FILE, or leave them out with --common_classes"
        )
        raise unknown(missing, labels, fix)
    if rank_and_size()[0] == 0:
        lost = sum(count for _, count, place in used if place < 0)
        warnings.warn(
            f"{len(missing)} of {len(used)} classes with {lost} objects are left out, as the model lacks them: "
            f"{', '.join(missing)}",
            stacklevel=2,
        )


SHOWN = 10
"""Number of objects on the answer's line; the JSON has all."""

MASK = "pixel_mask"
"""Input of DETR's exports: 1 for pixels of the image, 0 for padding."""


class Detection(ImageTask):
    """Detectors with any output layout of utils/postprocess/image/layouts.

    A model with other outputs overrides :meth:`decode`. Flags or metadata define the preprocessing and the output
    format (:mod:`utils.tasks.detection.choices`). Predictions are :class:`~utils.postprocess.image.nms.Detections` by
    falling score, in pixels of the image; the context of a sample is its placement in the input.
    """

    name = "detection"
    domain = "detection"
    domain_default = True
    template: ClassVar[Template | None] = sample_images.DETECTION
    data_help = "COCO's JSON, VOC's folder, YOLO's data.yaml, a folder of any of them or of images, or an image"
    flags: ClassVar[tuple[Flag, ...]] = (
        Flag("--score_threshold", f"detections below this score are dropped (default: {VALID_SCORE} in valid, else "
             f"{OTHERS_SCORE})", type=float),
        Flag("--iou_threshold", "of boxes of a class that overlap more than this, the best one stays (default: as "
             f"stored, or {IOU})", type=float),
        Flag("--max_detections", f"most detections in an image (default: as stored, or {MOST})", None, int),
        Flag("--layout", "format of the outputs (default: as stored, or detected)", None, metavar="NAME"),
        Flag("--best_class", "only the best class of each box", False, str2bool, nargs="?"),
        Flag("--track", "number the objects from image to image, which are the frames of a video", False, str2bool,
             nargs="?", scripts=("single", "multi")),
        *CHOSEN,
        SIZE_FLAG,
        *DATA_FLAGS,
    )  # fmt: skip
    export_settings = CHOICES
    metadata_key = NOTE
    writes = "the detections as a JSON file in COCO's results format"

    @property
    def labels(self) -> list[str] | None:
        """Names of the model's classes; ``None`` if not stored."""
        return self.model.stored.labels

    @property
    def image_specs(self) -> tuple[TensorSpec, ...]:
        """The image inputs: all."""
        return self.model.inputs

    @property
    def known_size(self) -> tuple[int, int] | None:
        """Height and width of the model's input; ``None`` if they differ by batch."""
        shape = self.model.inputs[0].shape if self.model.inputs else ()
        height, width = (shape[1:3] if channels_last(shape) else shape[2:]) if len(shape) == 4 else (None, None)
        return self.given_size or (None if height is None or width is None else (height, width))

    def check(self) -> None:
        """Check the options."""
        opt = self.options
        check(opt)
        for flag in ("score_threshold", "iou_threshold"):
            given = getattr(opt, flag)
            if given is not None and not 0 <= given <= 1:
                raise ConfigError(f"--{flag} {given} must be from 0 to 1")
        at_least(opt, max_detections=1)
        super().check()

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return the images, and their objects if known (:func:`.load_boxes`)."""
        found, labels = load_boxes(paths["data"], self.options.data_format), self.options.labels
        if labels is None:
            return found
        from utils.datasets.renaming import read_renames, renamed

        return renamed(found, read_renames(labels), labels)

    def prepare(self, samples: Sequence[Any], *, out: Array | None = None) -> Prepared:
        """Letterbox the images into the model's input, or resize them by the stored ``fit``.

        Args:
            samples: paths of images.
            out: an array of N x 3 x H x W to write into.

        Raises:
            DataError: An image cannot be read.
            ConfigError: The input does not take images, or its size is unknown.
        """
        model, found = self.model, chosen(self.model, self.options)
        if found["resize"] == FIT:
            return self._fitted(samples, found, out)
        form = self._form()
        height, width = self.given_size or form.size
        if height is None or width is None:
            raise ConfigError(f"{model.ckpt}: height and width of its input are open; pass --input_size")
        size, dtype = (height, width), model.dtype if form.plain else "float32"
        result = np.empty((len(samples), 3, *size), dtype) if out is None or not form.plain else out
        placed, contexts = laying(found), []
        for place, path in zip(result, samples, strict=True):
            image, geometry = letterbox(open_image(path), size, placed)
            place[...] = normalised(image.transpose(2, 0, 1), found, model)
            contexts.append(geometry)
        return Prepared([result if form.plain else form.given(result)], contexts)

    def _form(self) -> ImageForm:
        """Return the image format of the model's first input, N x 3 x H x W or N x H x W x 3."""
        model = self.model
        form = image_form(model.inputs[0], model.ckpt, model.dtype)
        if form.channels != 3:
            shape = list(model.inputs[0].shape)
            raise ConfigError(f"{model.ckpt}: its input is {shape}; expected N x 3 x H x W or N x H x W x 3")
        return form

    def _fitted(self, samples: Sequence[Path], found: Mapping[str, Any], out: Array | None) -> Prepared:
        """Put images into the first input by the stored ``fit``, and their masks into ``pixel_mask``.

        Padding is 0 after the normalisation. If the input's size is open, images keep their sizes, and ``collate`` pads
        them.

        Raises:
            ConfigError: The input's size is open and the fit needs it, or the model has further inputs.
        """
        model, size, (spec, *others) = self.model, self.known_size, self.image_specs
        other = [spec.name for spec in others if spec.name != MASK]
        if other:
            raise ConfigError(f"{model.ckpt}: its input {other[0]!r} does not take images; use a task that fills it")
        if not image_form(spec, model.ckpt, model.dtype).plain:
            raise ConfigError(
                f"{model.ckpt}: its input {spec.name!r} is {list(spec.shape)} {model.dtype}; the stored 'fit' supports "
                "N x 3 x H x W floats only: transpose and convert in the graph, or pass --resize"
            )
        fit, notes = Fit.read(note(model)[FIT], model.ckpt), model.stored.image
        images, masks, contexts = list[Array](), list[Array](), []
        for path in samples:
            pixels, geometry, canvas = fitted(open_image(path), fit, size, notes.interpolation)
            height, width = pixels.shape[1:]
            image, mask = np.zeros((3, *canvas), model.dtype), np.zeros(canvas, np.int64)
            image[:, :height, :width] = normalised(pixels, found, model)
            mask[:height, :width] = 1
            images.append(image)
            masks.append(mask)
            contexts.append(geometry)
        parts = [images, masks] if others else [images]
        if size is None:
            return Prepared(parts, contexts)
        shapes = ((3, *size), size)[: len(parts)]
        stacked = [np.stack(part) if part else np.empty((0, *one)) for part, one in zip(parts, shapes, strict=True)]
        if out is not None and len(stacked) == 1:
            out[...] = stacked[0]
            return Prepared([out], contexts)
        return Prepared(stacked, contexts)

    def decode(self, outputs: Any, contexts: Any) -> Sequence[Any]:
        """Return the detections of each image.

        The layout defines the meaning of the outputs (docs/reference/detection_layouts.md): that of ``--layout``, else
        the stored one, else the one that fits names and shapes. Every pair of box and class with a score of at least
        ``--score_threshold`` is a candidate, unless score or box have NaN; of candidates of a class that overlap by
        more than ``--iou_threshold`` the best stays, unless the layout's boxes are final; at most ``--max_detections``
        are returned.

        Raises:
            InputError: The outputs do not fit the layout, or a known one.
            ModelError: The outputs fit several layouts.
        """
        found = chosen(self.model, self.options)
        return detections(outputs, contexts, self.model, self.options, self.known_size, box_form(found), found["nms"])

    def metric(self, dataset: Dataset) -> Metric:
        """Return the mAP by the rules of ``--metric``; categories are matched with the labels, if stored.
        Raises DataError if the model lacks a class of the data set."""
        from utils.metrics.detection.metric import MeanAveragePrecision

        labels, opt, names = self.labels, self.options, dataset.notes.get(CATEGORIES, ())
        if labels is not None:
            check_classes(dataset, labels, opt.common_classes)
        elif len(names) > 1 and list(names) == sorted(names) and rank_and_size()[0] == 0:
            # XML files have names without numbers
            warnings.warn(
                f"the model has no stored labels: its classes are taken for the data set's in alphabetical order (0 "
                f"{names[0]}, 1 {names[1]}, ...); store the labels in the model if its order differs",
                stacklevel=2,
            )
        return MeanAveragePrecision(labels, categories=names, rules=opt.metric, common=opt.common_classes)

    def show(self, sample: Any, prediction: Any) -> Rendering:
        """Return the objects as text and as data; saving draws their boxes on the image."""
        names, columns = self.labels, shown(prediction, prediction.scores, self.options)
        if names is not None and max(prediction.classes.tolist(), default=-1) >= len(names):
            raise ModelError(
                f"{self.model.ckpt}: stores {len(names)} labels and found class {prediction.classes.max()}; "
                "export it with all labels"
            )
        answer = [
            {
                "label": names[label] if names else str(label),
                "score": round(score, 4),
                "box": [round(edge, 2) for edge in box],
            }
            for box, score, label in zip(*(column.tolist() for column in columns), strict=True)
        ]
        self.add_tracks(answer)
        text = in_words(answer, "object")
        return Rendering(text, answer, partial(save_boxes, sample, answer, text))

    def add_tracks(self, objects: Sequence[dict[str, Any]]) -> None:
        """With ``--track``, add ``track`` to each object of an image: a number, the same as in the image before.

        An object has ``box``, and ``label`` if there are several classes. Raises ConfigError if scipy is not installed.
        """
        if not self.options.track:
            return
        boxes = np.array([one["box"] for one in objects], np.float64)
        numbers = self._tracker.update(boxes, [one.get("label", "") for one in objects])
        for one, number in zip(objects, numbers, strict=True):
            one["track"] = number

    @cached_property
    def _tracker(self) -> Tracker:
        """The tracks of the run."""
        from utils.postprocess.image.tracking import Tracker

        return Tracker()

    def diagnostics(self) -> Diagnostics | None:
        """Return the check for boxes and classes of another format."""
        from utils.tasks.detection.diagnostics import DetectionDiagnostics

        return DetectionDiagnostics(self.model, self.options, self.known_size)

    def reference_answers(self, file: Path, dataset: Dataset) -> Sequence[Detections | None]:
        """Read the source framework's detections (:func:`.read_box_results`)."""
        from utils.tasks.detection.results import read_box_results

        return read_box_results(file, dataset, self.labels)

    def agreement(self, prediction: Any, answer: Any) -> float:
        """Return the agreement of two sets of detections (:func:`utils.metrics.detection.agreement.agreement`)."""
        from utils.metrics.detection.agreement import agreement

        return agreement(prediction, answer)

    def prediction_writer(self, path: Path, dataset: Dataset) -> PredictionWriter:
        """Return a writer of COCO's results format."""
        from utils.tasks.detection.results import BoxResults

        return BoxResults(path, dataset, self.labels)


def in_words(answer: Sequence[Mapping[str, Any]], what: str) -> str:
    """Return the number of objects, and label, score and box of the first ones."""
    parts = [
        (f"#{one['track']} " if "track" in one else "")
        + (f"{one['label']} " if "label" in one else "")
        + f"{one['score']:.2f} at {','.join(str(round(edge)) for edge in one['box'])}"
        for one in answer[:SHOWN]
    ]
    rest = [f"and {len(answer) - SHOWN} more"] if len(answer) > SHOWN else []
    head = f"{len(answer)} {what}{'' if len(answer) == 1 else 's'}"
    return f"{head}: {'; '.join(parts + rest)}" if parts else head


def save_boxes(sample: Path, objects: Sequence[Mapping[str, Any]], text: str, folder: Path) -> Path:
    """Draw boxes on an image into a folder, with a text below, and return the file."""
    from utils.draw import save_drawn
    from utils.postprocess.image.drawn_boxes import draw_boxes

    return save_drawn(sample, [text], folder, draw_boxes(open_image(sample), objects))
