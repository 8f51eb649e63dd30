"""The mean average precision of masks compared with pycocotools: all twelve figures."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from pycocotools import mask as api
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from engine import InputError
from utils.datasets.image.objects import Objects
from utils.datasets.image.regions import text_of_runs
from utils.metrics.detection.masks import MaskAveragePrecision
from utils.postprocess.image.instances import Instances, Mask, compact, mask_overlaps

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools' own

NAMES = ("a", "b")
STATS = (
    *("mask_mAP", "mAP50", "mAP75", "mAP_small", "mAP_medium", "mAP_large"),
    *("AR1", "AR10", "AR100", "AR_small", "AR_medium", "AR_large"),
)
SIDE = 120
"""Height and width of the images; objects are of all three sizes."""

Scene = tuple[Instances, Objects]


def blobs(rng: np.random.Generator, count: int) -> list[np.ndarray]:
    """Ellipses with holes; the last one may be empty."""
    rows, columns = np.mgrid[:SIDE, :SIDE]
    found = []
    for _ in range(count):
        (y, x), (a, b) = rng.integers(0, SIDE, 2), rng.integers(0, rng.choice([8, 30, 90]), 2) + 1
        far = ((rows - y) / a) ** 2 + ((columns - x) / b) ** 2
        found.append((far <= 1) & (far >= rng.choice([0, 0.3])))
    return found


def scene(seed: int, number: int, objects: int, extra: int) -> Scene:
    """Objects with crowds and stated areas; masks near them, and others."""
    rng = np.random.default_rng([seed, number])
    real = blobs(rng, objects)
    kinds, crowd = rng.integers(0, 2, objects), rng.random(objects) < 0.2
    moves = rng.integers(0, 4, (objects, 2))
    near = [np.roll(mask, tuple(move), (0, 1)) for mask, move in zip(real, moves.tolist(), strict=True)]
    found = real + near + blobs(rng, extra)
    labels = np.concatenate([kinds, kinds, rng.integers(0, 2, extra)]).astype(np.int64)
    scores = rng.integers(1, 9, len(found)) / 8
    areas = [float(mask.sum()) if rng.random() < 0.7 else float(rng.choice([0, 1024, 9216, 20000])) for mask in real]
    masks = tuple(map(compact, found))
    boxes = np.array([box_of(mask) for mask in masks]).reshape(-1, 4)
    corners = np.array([box_of(compact(mask)) for mask in real]).reshape(-1, 4)
    return (
        Instances(boxes, scores, labels, masks, (SIDE, SIDE)),
        Objects(
            corners, kinds.astype(np.int64), crowd, NAMES, np.array(areas), number, None, tuple(map(compact, real))
        ),
    )


def box_of(mask: Mask) -> list[float]:
    return [mask.left, mask.top, mask.left + mask.bits.shape[1], mask.top + mask.bits.shape[0]]


def reference(made: list[Scene]) -> list[float]:
    real, found = [], []
    for image, (guess, truth) in enumerate(made, start=1):
        for place, mask in enumerate(truth.masks or ()):
            code = {"size": [SIDE, SIDE], "counts": text_of_runs(mask.whole((SIDE, SIDE)))}
            left, top, right, bottom = truth.boxes[place].tolist()
            real.append(
                {
                    "id": len(real) + 1, "image_id": image, "category_id": int(truth.classes[place]),
                    "segmentation": code, "iscrowd": int(truth.crowd[place]), "area": float(truth.areas[place]),
                    "bbox": [left, top, right - left, bottom - top],
                }
            )  # fmt: skip
        for place, mask in enumerate(guess.masks):
            code = {"size": [SIDE, SIDE], "counts": text_of_runs(mask.whole((SIDE, SIDE)))}
            entry = {"image_id": image, "category_id": int(guess.classes[place]), "segmentation": code}
            found.append({**entry, "score": float(guess.scores[place])})
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {
            "info": {},
            "images": [{"id": place + 1, "width": SIDE, "height": SIDE} for place in range(len(made))],
            "annotations": real,
            "categories": [{"id": label, "name": name} for label, name in enumerate(NAMES)],
        }
        truth.createIndex()
        run = COCOeval(truth, truth.loadRes(found), "segm")
        run.evaluate()
        run.accumulate()
        run.summarize()
    return np.asarray(run.stats).tolist()


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(0, 5), st.integers(0, 8))
def test_every_figure_equals_pycocotools(seed: int, images: int, objects: int, extra: int) -> None:
    made = [scene(seed, number, objects, extra) for number in range(images)]
    assume(any(len(found.scores) for found, _ in made) and any((~real.crowd).any() for _, real in made))
    metric = MaskAveragePrecision(NAMES)
    for found, real in reversed(made):
        metric.update([found], [real])
    ours = {"mask_mAP": metric.compute(), **metric.secondary()}
    for name, value in zip(STATS, reference(made), strict=True):
        mine = ours.get(name, -1.0)
        assert (-1.0 if np.isnan(mine) else mine) == pytest.approx(value, abs=1e-9), name


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(0, 5), st.integers(0, 5))
def test_overlaps_and_run_lengths_equal_pycocotools(seed: int, one: int, other: int) -> None:
    rng = np.random.default_rng(seed)
    found, objects, crowd = blobs(rng, one), blobs(rng, other), rng.random(other) < 0.3
    codes, theirs = ([api.encode(np.asfortranarray(mask.astype(np.uint8))) for mask in m] for m in (found, objects))
    assert [text_of_runs(mask) for mask in found] == [code["counts"].decode() for code in codes]
    shares = mask_overlaps(list(map(compact, found)), list(map(compact, objects)), crowd)
    if one and other:
        np.testing.assert_allclose(shares, api.iou(codes, theirs, crowd.astype(int).tolist()), atol=1e-12)


def test_objects_without_masks_are_refused() -> None:
    found, real = scene(1, 0, 3, 1)
    with pytest.raises(InputError, match="without masks"):
        MaskAveragePrecision(NAMES).update([found], [real._replace(masks=None)])
    with pytest.raises(InputError, match="2 masks for"):
        MaskAveragePrecision(NAMES).update([found._replace(masks=found.masks[:2])], [real])
