"""Image classification; the metric is top-k accuracy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from engine import Array, ConfigError
from utils.datasets.base import Dataset
from utils.datasets.loading import load_dataset
from utils.metrics.classification import ClassFolders, TopK, check_topk
from utils.outputs import LABELS, refuse_topk
from utils.postprocess.pytorch.classification import answers, only_output, scores
from utils.preprocess.image.classification import ImagePreprocessor
from utils.preprocess.image.forms import image_form
from utils.preprocess.image.modes import DECODES
from utils.tasks import Diagnostics, Flag, Model, Prepared, Rendering, at_least, str2bool
from utils.tasks.classification import settings
from utils.tasks.common.image_input import ImageTask, save_lines
from utils.tasks.common.outputs import KIND_FLAG, class_rows
from utils.tasks.templates import sample_images

LISTED = 5
"""Number of classes in the summary of a folder."""

SHIFTS = (1, -1)

SAMPLES, CLASSES = 15, 4
"""Minimum numbers of samples, and of their classes, that must be right with a shift: a network that always predicts one
class is right for all samples of a neighbouring class."""

TIMES = 4
"""Minimum ratio of samples that are right with the shift to those without."""


class Classification(ImageTask):
    """Models with one input, and one output of N x C scores or N labels."""

    name = "classification"
    domain = "classification"
    domain_default = True
    template = sample_images.CLASSIFICATION
    channels = None
    data_help = "image, folder, label file (val.txt) or .npz"
    flags = (
        Flag("--input_size", "height (and width) of the input in pixels", [224], int, nargs="+"),
        Flag("--topk", "answers per sample; the metric is top-k accuracy", 1, int),
        Flag("--skip_postprocess", "use the raw outputs", False, str2bool, nargs="?"),
        KIND_FLAG,
        *settings.FLAGS,
        Flag("--decode", "exact, or a faster mode that changes pixels slightly", "exact", choices=DECODES,
             scripts=("valid",), exact="exact"),
    )  # fmt: skip
    export_settings, metadata_key = settings.EXPORT_SETTINGS, settings.NOTE
    advice: ClassVar[Mapping[str, str]] = {
        "disk": "keep the images on a faster disk, or in memory",
        "decode": "--decode reduced, or more cores",
        "preprocess": "--decode fused, or more cores",
    }

    def check(self) -> None:
        """Check ``--topk``, ``--resize`` and ``--input_size``."""
        at_least(self.options, topk=1)
        way = getattr(self.options, "resize", None)  # a derived task may leave the flag out
        if way is not None:
            settings.resize_way(str(way))
        super().check()

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Load an image, a folder, class folders, a label file or an ``.npz``."""
        if set(paths) != {"data"}:
            raise ConfigError("classification takes one data path: --data_path PATH")
        return load_dataset(paths["data"])

    def prepare(self, samples: Sequence[Any], *, out: Array | None = None) -> Prepared:
        """Decode, resize, crop and normalise as the export stored it; one array as the model takes it."""
        return Prepared([self._images(samples, out=out)])

    def bind(self, model: Model) -> Any:
        """Take the opened model, whose input decides how images are prepared."""
        vars(self).pop("_images", None)
        return super().bind(model)

    @cached_property
    def _images(self) -> Callable[..., Array]:
        """Function from images to the input's array; the export's settings are checked once per run."""
        model, opt = self.model, self.options
        form = image_form(model.inputs[0], model.ckpt, model.dtype) if model.inputs else None
        stored = model.stored.image.scaled(self.given_size)
        how = settings.adjusted(stored, model, opt, 3 if form is None else form.channels)
        if form is None or form.plain:
            return settings.in_order(ImagePreprocessor(model.dtype, **how, decode=opt.decode), form, model, opt)
        how |= form.scale(how["mean"], how["std"], model.ckpt)
        found = partial(form.convert, ImagePreprocessor("float32", **how, decode=opt.decode))
        return settings.in_order(found, form, model, opt)

    def decode(self, outputs: Any, contexts: Any) -> Sequence[Any] | Array:
        """Return probabilities, N x C, in ``valid``; in other scripts a list of answers per sample.

        Logits go through a softmax; probabilities and labels stay (:mod:`utils.outputs`).

        Raises:
            ConfigError: ``--topk`` is the number of classes, so that the metric is always 1, or the model outputs
                labels and ``--topk`` is above 1.
        """
        model, opt = self.model, self.options
        if opt.script == "valid" and opt.skip_postprocess:
            found = np.asarray(outputs)
            if found.ndim == 2:  # the metric raises for other shapes
                check_topk(opt.topk, found.shape[1], model.ckpt)
            return found
        rows = class_rows(only_output(outputs), model, opt)
        if rows.are_labels:
            refuse_topk(opt.topk, model.ckpt)
        if opt.script != "valid":
            return self._best(rows.values, are_logits=rows.are_logits, are_labels=rows.are_labels)
        check_topk(opt.topk, rows.values.shape[1], model.ckpt)
        return scores(rows.values) if rows.are_logits else rows.values.astype(np.float32)

    def _best(self, rows: Array, *, are_logits: bool = False, are_labels: bool) -> list[Any]:
        best = answers(rows, self.options.topk, self.model.stored.labels, are_logits=are_logits)
        return [[{**one, "score": None} for one in each] for each in best] if are_labels else list(best)

    def metric(self, dataset: Dataset) -> TopK:
        """Return top-k accuracy; class folders are matched with the model's labels by name."""
        found, stored = TopK(self.options.topk), self.model.stored
        names = dataset.notes.get("classes")
        if names is not None:
            found.folders = ClassFolders(names, stored.labels, stored.json("class_ids"))
        return found

    def diagnostics(self) -> Diagnostics:
        """Return the check for labels that are off by one."""
        return ShiftedClasses()

    def show(self, sample: Any, prediction: Any) -> Rendering:
        """Return labels and scores; saving draws them in a band below the image."""
        if self.options.script == "valid":  # there a row of scores
            (prediction,) = self._best(
                np.asarray(prediction)[None], are_labels=self.model.form(self.options).kind == LABELS
            )
        lines = [
            answer["label"] if answer["score"] is None else f"{answer['label']}  {answer['score']:.3f}"
            for answer in prediction
        ]
        save = partial(save_lines, sample, lines) if isinstance(sample, Path) else None
        return Rendering("  ".join(lines), prediction, save)

    def summary(self, predictions: Sequence[Any]) -> str:
        """Return how often each class came first."""
        found = Counter(answers[0]["label"] for answers in predictions).most_common()
        listed = ", ".join(f"{label} x {count}" for label, count in found[:LISTED])
        return listed + (f", and {len(found) - LISTED} more classes" if len(found) > LISTED else "")


class ShiftedClasses:
    """Diagnostics for labels that differ by one from the model's classes.

    Label lists that count from 1, and networks whose output 0 is the background (TensorFlow's with 1001 classes), give
    a metric near 0 without an error, as all labels are valid classes of the model. Counts the samples that are right
    unchanged, and with every label one higher or lower.
    """

    def __init__(self) -> None:
        self.samples = self.right = 0
        self.hits = dict.fromkeys(SHIFTS, 0)
        self.classes: dict[int, set[int]] = {shift: set() for shift in SHIFTS}

    def see(self, outputs: Any, contexts: Any, targets: Any) -> None:
        """Add a batch: scores N x C, and the class of each sample."""
        scores, labels = _score_rows(outputs), np.asarray(targets)
        if scores is None or labels.dtype.kind not in "iu" or labels.shape != scores.shape[:1]:
            return
        found = scores.argmax(axis=1)
        self.samples += len(labels)
        self.right += int((found == labels).sum())
        for shift in SHIFTS:
            hit = labels[found == labels + shift]
            self.hits[shift] += len(hit)
            if len(self.classes[shift]) < CLASSES:
                self.classes[shift].update(hit.tolist())

    def hints(self) -> Sequence[str]:
        """Return a line if most samples are right with labels that are one higher or lower."""
        return [
            f"the classes look shifted: {count} of {self.samples} samples are right if every label is one "
            f"{'higher' if shift > 0 else 'lower'}, {self.right} without the shift: do the labels count from "
            f"{1 if shift < 0 else 0} and the model's classes from {0 if shift < 0 else 1}? correct the labels"
            for shift, count in self.hits.items()
            if count >= SAMPLES and count >= TIMES * max(self.right, 1) and len(self.classes[shift]) >= CLASSES
        ]


def _score_rows(outputs: Any) -> Array | None:
    """Return the only output if it is N x C real numbers."""
    found = outputs[0] if isinstance(outputs, (list, tuple)) and len(outputs) == 1 else outputs
    fits = isinstance(found, np.ndarray) and found.ndim == 2 and found.dtype.kind in "fiu" and found.shape[1] > 0
    return found if fits else None
