"""Tracking of detections from frame to frame: SORT with a motion model of constant velocity.

The rules are those of Bewley et al., "Simple Online and Realtime Tracking", 2016: a Kalman filter predicts the box of
each track, and predicted and found boxes are assigned so that the sum of their overlaps (intersection over union) is
the largest one, by the Hungarian method. Three choices differ. Only boxes of the same class are assigned. The filter
has centre, width and height as states, each with its velocity and independent of the others. A track is numbered when
its first box is found, and remembered for :data:`LONGEST` frames without one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from engine import Array, InputError
from tecoinfer_modelzoo.extra import extra
from utils.postprocess.image.nms import overlaps

LEAST = 0.2
"""Least overlap of a predicted and a found box of one track."""

LONGEST = 30
"""Number of frames without a box after which a track ends."""

FOUND, MOVED, TURNED = 1 / 20, 1 / 40, 1 / 80
"""Standard deviations in units of the box's size: of a found box; per frame, of the position and of the velocity."""


def assigned(scores: Array) -> list[tuple[int, int]]:
    """Return the pairs of rows and columns with the largest sum of scores, M x N, each in at most one pair.

    Only positive scores are paired. Raises ConfigError if scipy is not installed.
    """
    with extra("--track", "video"):
        from scipy.optimize import linear_sum_assignment
    rows, columns = linear_sum_assignment(scores, maximize=True)
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return [(row, column) for row, column in pairs if scores[row, column] > 0]


class _Motion:
    """Kalman filter of a box: centre, width and height, each with a velocity per frame.

    The four have the same noise, so they share one covariance of position and velocity, 2 x 2.
    """

    def __init__(self, box: Array) -> None:
        self.place, self.velocity = _centred(box), np.zeros(4)
        size = self._size()
        self.spread = np.diag([(FOUND * size) ** 2, (FOUND * size) ** 2 * 10])

    def _size(self) -> float:
        return float(max(np.sqrt(max(self.place[2], 1.0) * max(self.place[3], 1.0)), 1.0))

    def predict(self) -> None:
        """Move on by one frame."""
        step, size = np.array([[1.0, 1.0], [0.0, 1.0]]), self._size()
        self.place = self.place + self.velocity
        noise = np.diag([(MOVED * size) ** 2, (TURNED * size) ** 2])
        self.spread = step @ self.spread @ step.T + noise

    def correct(self, box: Array) -> None:
        """Take in a found box."""
        gain = self.spread[:, 0] / (self.spread[0, 0] + (FOUND * self._size()) ** 2)
        error = _centred(box) - self.place
        self.place, self.velocity = self.place + gain[0] * error, self.velocity + gain[1] * error
        self.spread = self.spread - np.outer(gain, self.spread[0])

    def box(self) -> Array:
        """Return left, top, right and bottom."""
        half = np.maximum(self.place[2:], 1.0) / 2
        return np.concatenate([self.place[:2] - half, self.place[:2] + half])


def _centred(box: Array) -> Array:
    sides = box[2:] - box[:2]
    return np.concatenate([box[:2] + sides / 2, sides])


@dataclass
class _Track:
    number: int
    label: str
    motion: _Motion
    missed: int = 0


@dataclass
class Tracker:
    """Tracks of the objects in a sequence of frames.

    Attributes:
        least: least overlap of a predicted and a found box of one track.
        longest: number of frames without a box after which a track ends.
    """

    least: float = LEAST
    longest: int = LONGEST
    _tracks: list[_Track] = field(default_factory=list)
    _last: int = 0

    def update(self, boxes: Array, labels: list[str]) -> list[int]:
        """Return the numbers of the tracks of the boxes of the next frame, from 1 in order of appearance.

        Args:
            boxes: N x 4 float64: left, top, right, bottom in pixels. labels: class of each.

        Raises:
            InputError: the arguments have other lengths. ConfigError: scipy is not installed.
        """
        boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
        if len(boxes) != len(labels):
            raise InputError(f"{len(boxes)} boxes and {len(labels)} labels; pass a label for each box")
        for track in self._tracks:
            track.motion.predict()
            track.missed += 1
        numbers = [0] * len(boxes)
        for row, column in assigned(self._scores(boxes, labels)):
            track = self._tracks[row]
            track.motion.correct(boxes[column])
            track.missed, numbers[column] = 0, track.number
        for place, number in enumerate(numbers):
            if not number:
                self._last += 1
                numbers[place] = self._last
                self._tracks.append(_Track(self._last, labels[place], _Motion(boxes[place])))
        self._tracks = [track for track in self._tracks if track.missed <= self.longest]
        return numbers

    def _scores(self, boxes: Array, labels: list[str]) -> Array:
        """Return the overlaps of tracks and boxes, 0 for pairs that cannot be the same object."""
        predicted = np.array([track.motion.box() for track in self._tracks]).reshape(-1, 4)
        found = overlaps(predicted, boxes)
        same = np.array([[track.label == label for label in labels] for track in self._tracks], bool)
        return np.where(same.reshape(found.shape) & (found >= self.least), found, 0.0)
