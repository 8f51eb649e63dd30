"""Precision, recall, average precision, landmark errors and false alarms of faces."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import numpy as np
import pytest

from engine import ConfigError, DataError, InputError
from utils.datasets.image.objects import Objects
from utils.metrics.detection.faces import FaceAveragePrecision
from utils.metrics.detection.metric import MeanAveragePrecision
from utils.postprocess.image.faces import Faces


def faces(*found: tuple[float, float, float, float, float], points: np.ndarray | None = None) -> Faces:
    """Return faces of score, left, top, width and height."""
    rows = np.array(found, np.float32).reshape(-1, 5)
    boxes = np.concatenate([rows[:, 1:3], rows[:, 1:3] + rows[:, 3:]], axis=1)
    places = np.zeros((len(rows), 5, 2), np.float32) if points is None else points.astype(np.float32)
    return Faces(boxes, rows[:, 0], places)


def truth(*boxes: tuple[float, float, float, float], crowd: int = 0, points: np.ndarray | None = None) -> Objects:
    """Return faces of left, top, width and height, the last ``crowd`` of them not evaluated."""
    rows = np.array(boxes, np.float64).reshape(-1, 4)
    hard = np.arange(len(rows)) >= len(rows) - crowd
    corners = np.concatenate([rows[:, :2], rows[:, :2] + rows[:, 2:]], axis=1)
    return Objects(corners, np.zeros(len(rows), np.int64), hard, ("face",), None, 0, points)


def test_figures_by_hand() -> None:
    metric = FaceAveragePrecision(score=0.5)
    found = [
        faces((0.9, 0, 0, 10, 10), (0.8, 50, 50, 10, 10), (0.4, 20, 20, 10, 10)),
        faces((0.7, 0, 0, 10, 10), (0.6, 40, 40, 10, 10)),
        faces((0.55, 0, 0, 5, 5), (0.3, 9, 9, 5, 5)),
        faces(),
    ]
    right = [
        truth((0, 0, 10, 10), (20, 20, 10, 10)),
        truth((1, 0, 10, 10), (40, 40, 10, 10), crowd=1),
        truth(),
        truth(),
    ]
    metric.update(found, right)
    figures = metric.secondary()
    # of 0.9 right, 0.8 wrong, 0.7 right, 0.6 ignored, 0.55 wrong; three faces
    assert figures == {"precision": 2 / 4, "recall": 2 / 3, "F1": 4 / 7, "false_alarms": 1 / 2, "faceless_pictures": 2}
    # precisions at the three recalls: 1, 2/3, 3/5
    assert metric.compute() == pytest.approx((1 + 2 / 3 + 3 / 5) / 3)
    assert (metric.name, metric.per_class()) == ("AP50", {})


def test_average_precision_of_voc() -> None:
    chance = np.random.default_rng(0)
    found, right = [], []
    for _ in range(40):
        boxes = np.concatenate([chance.integers(0, 60, (4, 2)), chance.integers(8, 30, (4, 2))], axis=1)
        moved = boxes[chance.permutation(4)[:3]] + chance.integers(-3, 4, (3, 4))
        scores = np.sort(chance.random(3))[::-1]
        found.append(faces(*((score, *row) for score, row in zip(scores, moved, strict=True))))
        right.append(truth(*map(tuple, boxes), crowd=int(chance.integers(0, 2))))
    ours, theirs = FaceAveragePrecision(), MeanAveragePrecision(["face"], rules="voc2012")
    ours.update(found, right)
    theirs.update(found, right)
    assert ours.compute() == theirs.compute()
    assert 0 < ours.compute() < 1


def test_replay_merge_weights_and_pickling() -> None:
    found = [faces((0.9, 0, 0, 10, 10)), faces((0.8, 0, 0, 9, 9), (0.7, 30, 30, 9, 9)), faces((0.6, 0, 0, 5, 5))]
    right = [truth((0, 0, 10, 10), points=np.ones((1, 5, 2))), truth((0, 0, 10, 10)), truth()]
    whole, one, two = FaceAveragePrecision(), FaceAveragePrecision(), FaceAveragePrecision()
    records = whole.update(found, right)
    one.update(found[:1], right[:1])
    two.update(found[1:], right[1:])
    one = pickle.loads(pickle.dumps(one))  # noqa: S301
    two.merge(one)
    again = FaceAveragePrecision()
    again.replay(records)
    assert two.compute() == whole.compute() == again.compute()
    assert two.secondary() == whole.secondary() == again.secondary()
    values = records.values
    assert whole.weighing(values)(np.ones(len(values))) == whole.compute()
    with pytest.raises(ConfigError, match="cannot merge"):
        whole.merge(FaceAveragePrecision(score=0.6))


def test_landmark_error() -> None:
    wanted = np.array([[[2, 2], [8, 2], [5, 5], [3, 8], [np.nan, np.nan]]], float)
    points = np.where(np.isnan(wanted), 0, wanted) + np.array([3, 4])
    metric = FaceAveragePrecision()
    found = faces((0.9, 50, 50, 9, 9), (0.8, 0, 0, 20, 10), points=np.concatenate([points * 9, points]))
    metric.update([found, faces((0.9, 0, 0, 9, 9))], [truth((0, 0, 20, 10), points=wanted), truth((0, 0, 10, 10))])
    assert metric.secondary()["landmark_error"] == pytest.approx(5 / np.sqrt(200), rel=1e-6)
    bare = FaceAveragePrecision()
    bare.update([found], [truth((0, 0, 20, 10))])
    assert "landmark_error" not in bare.secondary()
    with pytest.raises(InputError, match=r"\(2, 5, 2\).*1, 7, 2"):
        bare.update([found], [truth((0, 0, 20, 10), points=np.zeros((1, 7, 2)))])


def test_images_without_faces() -> None:
    metric = FaceAveragePrecision()
    metric.update([faces((0.9, 0, 0, 5, 5)), faces()], [truth(), truth((0, 0, 9, 9), crowd=1)])
    with pytest.raises(DataError, match=r"2 images 1 faces .*0\.5"):
        metric.compute()
    assert metric.secondary() == {"precision": 0, "false_alarms": 1, "faceless_pictures": 1}
    with pytest.raises(ConfigError, match="from 0 to 1"):
        FaceAveragePrecision(score=2)


def test_other_categories() -> None:
    target = Objects(np.array([[0, 0, 9, 9], [20, 20, 29, 29.0]]), np.array([0, 1]), np.zeros(2, bool), ("dog", "face"))
    metric = FaceAveragePrecision(common=True)
    metric.update([faces((0.9, 20, 20, 9, 9))], [target])
    assert metric.compute() == 1
    dogs = target._replace(boxes=target.boxes[:1], classes=target.classes[:1], crowd=target.crowd[:1])
    metric.update([faces((0.8, 0, 0, 9, 9))], [dogs])
    assert metric.secondary()["faceless_pictures"] == 1
    assert metric.secondary()["false_alarms"] == 1
    with pytest.raises(DataError, match="dog"):
        FaceAveragePrecision().update([faces()], [target])


@dataclass
class Bare:
    """Boxes of a detector without landmarks."""

    boxes: np.ndarray
    scores: np.ndarray
    classes: np.ndarray


def test_a_detector_without_landmarks_and_labels() -> None:
    metric = FaceAveragePrecision()
    metric.update([Bare(np.array([[0, 0, 9, 9.0]]), np.array([0.9]), np.array([0]))], [truth((0, 0, 9, 9))])
    assert metric.compute() == 1
