"""Diagnostics of a detector: boxes in another format, classes that are off by a constant, logits as probabilities.

A hint needs many more matches with the other setting than with the current one, so that a detector that is weak or has
random weights gives no hint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from engine import Array, InputError, TecoInferError
from utils.metrics.class_names import places
from utils.postprocess.image.box_forms import BOX_FORMATS, BOX_UNITS, COCO91, BoxForm, labelled, probabilities, reformed
from utils.postprocess.image.layouts.base import highest
from utils.postprocess.image.nms import Detections, overlaps
from utils.preprocess.image.letterbox import Geometry, to_image
from utils.tasks import Model, Options
from utils.tasks.detection.choices import box_form, chosen
from utils.tasks.detection.heads import least_score, raw_candidates

IMAGES, CANDIDATES = 64, 100
"""Number of first images, and of candidates with the highest scores per image, that are examined."""

OBJECTS = 15
"""Minimum number of objects found with the other setting."""

TIMES = 4
"""Minimum ratio of objects found with the other setting to those found now."""

NEAR = 0.5
"""Minimum intersection over union of a found object."""

LOWEST, FEW = -1e30, 0.05
"""Score below that of every candidate, and share of negative scores above which they are not due to rounding."""

SURE = 0.25
"""Minimum score of detections whose class is examined."""

OUTSIDE = 1e-3
"""Tolerance of shares and probabilities outside of 0..1, for rounding."""

TWICE = (0.5, 0.7311)
"""Sigmoids of 0 and 1: the range of all scores if a sigmoid was applied to probabilities."""

MANY, NOTHING = 200, 0.01
"""Minimum number of scores in that range, and distance to its lower end of at least half of them (empty places)."""


class DetectionDiagnostics:
    """Diagnostics of the first images of an evaluation; ``size``: of the input, ``None`` if it differs by batch."""

    def __init__(self, model: Model, options: Options, size: tuple[int, int] | None) -> None:
        self.model, self.options, self.size = model, options, size
        self.form = box_form(chosen(model, options))
        self.images = self.objects = 0
        self.hits: dict[tuple[str, str], int] = {}
        self.classes: list[tuple[int, int]] = []
        self.scores: list[Array] = []
        self.final = False
        self.negative = 0.0
        self.highest = self.categories = 0

    def see(self, outputs: Any, contexts: Sequence[Geometry], targets: Sequence[Any]) -> None:
        """Add a batch."""
        if self.images >= IMAGES:
            return
        try:
            found, layout = raw_candidates(outputs, contexts, self.model, self.options, self.size, self.form)
            self.final |= layout.final
            if not self.images and self.form.score_form == "probability":
                self._look_below(outputs, contexts)
            for raw, geometry, target in zip(found, contexts, targets, strict=True):
                self.images += 1
                self._note_highest(raw, target)
                best = highest(raw, CANDIDATES)
                self.scores.append(probabilities(raw.scores, self.form))
                self._look(best, layout.box_format, geometry, target)
        except (TecoInferError, LookupError):  # a model whose task decodes in another way
            self.images = IMAGES

    def _note_highest(self, raw: Detections, target: Any) -> None:
        """Note the highest class that is found, and how many there are by the model's labels, or by the data set."""
        known = self.model.stored.labels or target.categories
        if known:
            self.categories = len(known)
            found = labelled(raw.classes[raw.scores >= SURE], self.form)
            self.highest = max(self.highest, int(found.max(initial=0)))

    def _look_below(self, outputs: Any, contexts: Sequence[Geometry]) -> None:
        """Look at all scores of the first batch, those too that are too low for a candidate."""
        with np.errstate(all="ignore"):
            every, _ = raw_candidates(outputs, contexts, self.model, self.options, self.size, self.form, LOWEST)
        scores = np.concatenate([np.zeros(0), *(one.scores for one in every)])
        self.negative = float((scores < -OUTSIDE).mean()) if scores.size else 0.0

    def _look(self, raw: Detections, native: str, geometry: Geometry, target: Any) -> None:
        real = ~np.asarray(target.crowd, bool)
        objects = np.asarray(target.boxes, np.float64)[real]
        if not len(objects) or not len(raw.scores):
            return
        self.objects += len(objects)
        for box_format, box_units in product(BOX_FORMATS, BOX_UNITS):
            form = BoxForm(box_format, box_units)
            try:
                boxes = to_image(reformed(raw, form, native, self.size).boxes, geometry)
            except InputError:  # shares of an input whose size is open
                continue
            shares = overlaps(objects, boxes)
            key = box_format, box_units
            self.hits[key] = self.hits.get(key, 0) + int((shares.max(axis=1) >= NEAR).sum())
            if key == (self.form.box_format, self.form.box_units):
                self._note_classes(shares, raw, target, real)

    def _note_classes(self, shares: Array, raw: Detections, target: Any, real: Array) -> None:
        """Record the class of the best candidate at each found object, and the target class."""
        right = np.asarray(target.classes, np.int64)[real]
        if target.categories:  # else the data set has class numbers only, which are the model's
            right = places(target.categories, self.model.stored.labels)[right]
        near = np.where(shares >= NEAR, raw.scores[None], -np.inf)
        for row, one in zip(near, right.tolist(), strict=True):
            if np.isfinite(row.max()):
                self.classes.append((int(raw.classes[int(row.argmax())]), one))

    def hints(self) -> list[str]:
        """Return one line per problem."""
        return [*self._boxes(), *self._classes(), *self._scores(), *self._more_classes()]

    def _more_classes(self) -> Iterator[str]:
        if self.highest >= self.categories > 0 and not any(True for _ in self._classes()):
            whose = "the data set has" if self.model.stored.labels is None else "the model stores labels of"
            yield (
                f"the model finds class {self.highest}, and {whose} {self.categories} classes (0 to "
                f"{self.categories - 1}): try --class_offset {COCO91} or 1, or store all labels in the model"
            )

    def _boxes(self) -> Iterator[str]:
        now = self.form.box_format, self.form.box_units
        best = max(self.hits, key=lambda key: self.hits[key], default=now)
        found, ours = self.hits.get(best, 0), self.hits.get(now, 0)
        if found >= OBJECTS and found >= TIMES * max(ours, 1):
            flags = f"--box_format {best[0]}" if best[0] != now[0] else ""
            flags += f" --box_units {best[1]}" if best[1] != now[1] else ""
            yield (
                f"the boxes look like another format: {found} of {self.objects} objects are found with "
                f"{flags.strip()}, {ours} with the current one"
            )

    def _classes(self) -> Iterator[str]:
        if len(self.classes) < OBJECTS:
            return
        given, right = (np.array(column) for column in zip(*self.classes, strict=True))
        ours = int((labelled(given, self.form) == right).sum())
        counts: dict[int | str, int] = {
            offset: int((labelled(given, BoxForm(class_offset=offset)) == right).sum()) for offset in (1, -1, 0)
        }
        counts[COCO91] = int((labelled(given, BoxForm(class_offset=COCO91)) == right).sum())
        best = max(counts, key=lambda key: counts[key])
        if counts[best] >= OBJECTS and counts[best] >= TIMES * max(ours, 1):
            yield (
                f"the classes look shifted: {counts[best]} of {len(given)} found objects have the right class with "
                f"--class_offset {best}, {ours} with the current one"
            )

    def _scores(self) -> Iterator[str]:
        scores = np.concatenate([np.zeros(0), *self.scores])
        if not scores.size:
            return
        low, high = float(scores.min()), float(scores.max())
        if high > 1 + OUTSIDE or self.negative > FEW:
            what = f"go up to {high:.3g}" if high > 1 + OUTSIDE else f"are below 0 for {self.negative:.0%}"
            yield f"scores {what}, outside the range 0 to 1 of probabilities: are they logits? try --score_form logit"
        least = least_score(self.model, self.options)
        between = low >= TWICE[0] - OUTSIDE and high <= TWICE[1] + OUTSIDE
        between &= float((scores <= TWICE[0] + NOTHING).mean()) > 0.5
        if between and scores.size >= MANY and least < TWICE[0] - 0.1 and not self.final:
            yield "all scores lie from 0.5 to 0.731, as after a sigmoid of probabilities: try --score_form twice"
