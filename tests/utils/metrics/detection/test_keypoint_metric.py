"""The average precision of key points compared with pycocotools: all ten figures, for any number of points."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from engine import ConfigError, InputError
from utils.datasets.image.objects import Objects
from utils.metrics.detection.keypoints import COCO_SIGMAS, KeypointAveragePrecision, similarity, usual_sigmas
from utils.postprocess.image.poses import Poses

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools' own

NAMES = ("a", "b")
STATS = ("AP", "AP50", "AP75", "AP_medium", "AP_large", "AR", "AR50", "AR75", "AR_medium", "AR_large")
"""The figures of ``COCOeval.summarize`` for key points, in its order."""

Scene = tuple[Poses, Objects]


def scene(seed: int, number: int, points: int, objects: int, extra: int) -> Scene:
    """Objects with points that are not labelled, crowds and ties; poses near them, and ``extra`` others."""
    rng = np.random.default_rng([seed, number])
    corner, side = rng.integers(0, 300, (objects, 2)), rng.integers(0, 160, (objects, 2))
    boxes = np.concatenate([corner, corner + side], axis=1).astype(float)
    places = corner[:, None] + rng.integers(0, 161, (objects, points, 2)) % (side[:, None] + 1.0)
    hidden = rng.random((objects, points)) < rng.choice([0.2, 0.6, 1.0], (objects, 1), p=[0.5, 0.3, 0.2])
    wanted = np.where(hidden[..., None], np.nan, places)
    area = np.where(rng.random(objects) < 0.7, side.prod(axis=1) * 0.6, rng.choice([0.0, 1024, 9216, 5e4], objects))
    kinds, crowd = rng.integers(0, 2, objects), rng.random(objects) < 0.15
    near = np.repeat(places, 2, axis=0) + rng.normal(0, 1, (2 * objects, points, 2)) * rng.choice(
        [0, 3, 15], (2 * objects, 1, 1)
    )
    other = rng.uniform(0, 400, (extra, points, 2))
    found = np.concatenate([near, other])
    labels = np.concatenate([np.repeat(kinds, 2), rng.integers(0, 2, extra)])
    flat = np.concatenate([found.min(axis=1), found.max(axis=1)], axis=1)
    scores = rng.integers(1, 9, len(found)) / 8
    return (
        Poses(flat, scores, labels.astype(np.int64), found, np.ones(found.shape[:2])),
        Objects(boxes, kinds.astype(np.int64), crowd, NAMES, area, number, wanted),
    )


def reference(made: list[Scene], sigmas: tuple[float, ...]) -> list[float]:
    real, found = [], []
    for image, (guess, truth) in enumerate(made, start=1):
        for place, box in enumerate(truth.boxes.tolist()):
            points = [[x, y, 2] if x == x else [0, 0, 0] for x, y in truth.points[place].tolist()]
            real.append(
                {
                    "id": len(real) + 1, "image_id": image, "category_id": int(truth.classes[place]),
                    "bbox": [*box[:2], box[2] - box[0], box[3] - box[1]], "iscrowd": int(truth.crowd[place]),
                    "area": float(truth.areas[place]), "keypoints": [n for one in points for n in one],
                    "num_keypoints": sum(one[2] > 0 for one in points),
                }
            )  # fmt: skip
        for points, score, label in zip(
            guess.points.tolist(), guess.scores.tolist(), guess.classes.tolist(), strict=True
        ):
            values = [number for x, y in points for number in (x, y, 1)]
            found.append({"image_id": image, "category_id": label, "keypoints": values, "score": score})
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {
            "info": {},
            "images": [{"id": place + 1, "width": 900, "height": 900} for place in range(len(made))],
            "annotations": real,
            "categories": [{"id": label, "name": name} for label, name in enumerate(NAMES)],
        }
        truth.createIndex()
        run = COCOeval(truth, truth.loadRes(found), "keypoints")
        run.params.kpt_oks_sigmas = np.array(sigmas)
        run.evaluate()
        run.accumulate()
        run.summarize()
    return np.asarray(run.stats).tolist()


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from([1, 3, 17]), st.integers(1, 4), st.integers(0, 5), st.integers(0, 25))
def test_every_figure_equals_pycocotools(seed: int, points: int, images: int, objects: int, extra: int) -> None:
    """The order of the images does not matter."""
    made = [scene(seed, number, points, objects, extra) for number in range(images)]
    assume(any(len(found.scores) for found, _ in made) and any((~real.crowd).any() for _, real in made))
    sigmas = usual_sigmas(points)
    metric = KeypointAveragePrecision(NAMES, sigmas=sigmas)
    for found, real in reversed(made):
        metric.update([found], [real])
    ours = {"AP": metric.compute(), **metric.secondary()}
    for name, value in zip(STATS, reference(made, sigmas), strict=True):
        mine = ours.get(name, -1.0)
        assert (-1.0 if np.isnan(mine) else mine) == pytest.approx(value, abs=1e-9), name


def test_similarity_by_hand() -> None:
    """exp(-d^2 / (2 s^2 (2 sigma)^2)), the mean over labelled points; without any, the distance to the tripled box."""
    wanted, box = np.array([[10.0, 10], [20, 10], [np.nan, np.nan]]), np.array([10.0, 10, 20, 30])
    found = similarity(np.array([[[10.0, 13], [20, 10], [0, 0]]]), wanted, box, 100.0, (0.1, 0.1, 0.1))
    assert found[0] == pytest.approx((np.exp(-9 / (2 * 100 * 0.04)) + 1) / 2)
    nothing = np.full((1, 2), np.nan)
    inside, outside = similarity(np.array([[[29.0, 49]], [[30.0, 53]]]), nothing, box, 100.0, (0.1,))
    assert inside == 1
    assert outside == pytest.approx(np.exp(-9 / 8))


def test_sigmas() -> None:
    assert usual_sigmas(17) == COCO_SIGMAS
    assert usual_sigmas(4) == (0.25,) * 4
    with pytest.raises(ConfigError):
        KeypointAveragePrecision(sigmas=[0.1, 0.0])


def test_other_numbers_of_points_are_refused() -> None:
    found, real = scene(0, 0, 3, 2, 1)
    with pytest.raises(InputError, match="3 key points"):
        KeypointAveragePrecision(NAMES).update([found], [real._replace(points=real.points[:, :2])])
    with pytest.raises(InputError, match="2 sigmas"):
        KeypointAveragePrecision(NAMES, sigmas=[0.1, 0.1]).update([found], [real])
    with pytest.raises(InputError, match="N x K x 2"):
        KeypointAveragePrecision(NAMES).update([found._replace(points=found.points[..., 0])], [real])


def test_images_without_points_count_as_images(tmp_path: Any) -> None:
    """Poses in an image without objects are wrong, those near an object without labelled points are ignored."""
    found, real = scene(3, 0, 3, 4, 0)
    labelled = real._replace(points=np.zeros_like(real.points) + found.points[::2], crowd=np.zeros(4, bool))
    best = found._replace(points=np.repeat(labelled.points, 2, axis=0)).at(np.arange(0, 8, 2))
    perfect = KeypointAveragePrecision(NAMES)
    perfect.update([best], [labelled])
    none = labelled._replace(points=None)
    perfect.update([best], [none._replace(number=1)])
    assert perfect.compute() == pytest.approx(1)
    empty = Objects(np.zeros((0, 4)), np.zeros(0, np.int64), np.zeros(0, bool), NAMES, None, 2, None)
    perfect.update([best._replace(scores=best.scores + 2)], [empty])
    assert perfect.compute() < 0.9
