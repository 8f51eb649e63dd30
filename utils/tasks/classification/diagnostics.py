"""Diagnostics of a classifier: its classes and the data set's labels differ by one.

Label lists that count from 1, and networks whose output 0 is the background (TensorFlow's with 1001 classes), give a
metric near 0 without an error, as all labels are valid classes of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine import Array

SHIFTS = (1, -1)

SAMPLES, CLASSES = 15, 4
"""Minimum numbers of samples, and of their classes, that must be right with a shift: a network that always predicts one
class is right for all samples of a neighbouring class."""

TIMES = 4
"""Minimum ratio of samples that are right with the shift to those without."""


class ShiftedClasses:
    """Counts of samples that are right as they are, and with every label one higher or lower."""

    def __init__(self) -> None:
        self.samples = self.right = 0
        self.hits = dict.fromkeys(SHIFTS, 0)
        self.classes: dict[int, set[int]] = {shift: set() for shift in SHIFTS}

    def see(self, outputs: Any, contexts: Any, targets: Any) -> None:
        """Add a batch: scores N x C, and the class of each sample."""
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
        """Return a line if most samples are right with labels that are one higher or lower."""
        return [
            f"the classes look shifted: {count} of {self.samples} samples are right if every label is one "
            f"{'higher' if shift > 0 else 'lower'}, {self.right} without the shift: do the labels count from "
            f"{1 if shift < 0 else 0} and the model's classes from {0 if shift < 0 else 1}? correct the labels"
            for shift, count in self.hits.items()
            if count >= SAMPLES and count >= TIMES * max(self.right, 1) and len(self.classes[shift]) >= CLASSES
        ]


def _array(outputs: Any) -> Array | None:
    """Return the only output if it is N x C real numbers."""
    found = outputs[0] if isinstance(outputs, (list, tuple)) and len(outputs) == 1 else outputs
    fits = isinstance(found, np.ndarray) and found.ndim == 2 and found.dtype.kind in "fiu" and found.shape[1] > 0
    return found if fits else None
