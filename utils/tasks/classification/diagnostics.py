"""A hint while a classifier is evaluated: its classes and the data set's labels are off by one.

Lists that count from 1, and networks whose first output is the background (TensorFlow's of 1001 classes), give a metric
near 0 without an error, as all labels are classes of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine import Array

SHIFTS = (1, -1)

SAMPLES, CLASSES = 15, 4
"""How many samples, and of how many classes, must be right with a shift before it is reported: a network that answers
one class alone is right for all samples of the class beside it."""

TIMES = 4
"""How many times as many samples must be right with the shift as without."""


class ShiftedClasses:
    """Counts how many samples are right as they are, and if every label were one higher or lower."""

    def __init__(self) -> None:
        self.samples = self.right = 0
        self.hits = dict.fromkeys(SHIFTS, 0)
        self.classes: dict[int, set[int]] = {shift: set() for shift in SHIFTS}

    def see(self, outputs: Any, contexts: Any, targets: Any) -> None:
        """Take in a batch: scores N x C, and the class of each sample."""
        scores, labels = _array(outputs), np.asarray(targets)
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
        """Return a line where nearly all that is right is so with labels that are one higher or lower."""
        return [
            f"the classes look shifted: {count} of {self.samples} samples are right if every label is one "
            f"{'higher' if shift > 0 else 'lower'}, {self.right} as they are: do the labels count from "
            f"{1 if shift < 0 else 0} and the model's classes from {0 if shift < 0 else 1}? correct the labels"
            for shift, count in self.hits.items()
            if count >= SAMPLES and count >= TIMES * max(self.right, 1) and len(self.classes[shift]) >= CLASSES
        ]


def _array(outputs: Any) -> Array | None:
    """Return the only output where it is N x C real numbers."""
    found = outputs[0] if isinstance(outputs, (list, tuple)) and len(outputs) == 1 else outputs
    fits = isinstance(found, np.ndarray) and found.ndim == 2 and found.dtype.kind in "fiu" and found.shape[1] > 0
    return found if fits else None
