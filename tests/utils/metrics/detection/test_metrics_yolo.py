"""``ap_per_class`` compared with the definitions and with COCO's own evaluation."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import InputError
from utils.postprocess.pytorch.yolo_pt import ap_per_class

Array = np.ndarray[Any, np.dtype[Any]]


def average_precision(right: Array, objects: int) -> float:
    """Return the mean of the maximum precisions at or above 101 recalls, for detections by falling score."""
    total = 0.0
    for level in range(101):
        best = 0.0
        for count in range(1, len(right) + 1):
            hits = int(right[:count].sum())
            if hits * 100 >= level * objects:
                best = max(best, hits / count)
        total += best
    return total / 101


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), count=st.integers(0, 25), classes=st.integers(1, 4), objects=st.integers(1, 12))
def test_definitions(seed: int, count: int, classes: int, objects: int) -> None:
    random = np.random.default_rng(seed)
    tp = random.random((count, 3)) < [0.7, 0.5, 0.2]
    conf = random.permutation(np.linspace(0.01, 0.99, 40))[:count]
    predicted, wanted = random.integers(0, classes + 1, count), random.integers(0, classes, objects)
    for label in range(classes + 1):  # at most as many right detections as objects
        for column in tp.T:
            places = np.flatnonzero((predicted == label) & column)
            column[places[(wanted == label).sum() :]] = False
    found, wrong, p, r, f1, ap, labels = ap_per_class(tp, conf, predicted, wanted)
    assert labels.tolist() == sorted(set(wanted.tolist()))
    order = np.argsort(-conf)
    best, at = -1.0, None
    for level in np.linspace(0, 1, 1000):
        hits, shown = (
            np.array([((predicted == label) & (conf >= level) & own).sum() for label in labels])
            for own in (tp[:, 0], np.ones(count, bool))
        )
        totals = np.array([(wanted == label).sum() for label in labels])
        mean = float((2 * hits / (shown + totals)).mean())
        if mean > best + 1e-12:
            best, at = mean, (hits, shown, totals)
    assert at is not None
    hits, shown, totals = at
    np.testing.assert_allclose(found, hits)
    np.testing.assert_allclose(wrong, shown - hits)
    np.testing.assert_allclose(p, np.where(shown > 0, hits / np.maximum(shown, 1), np.isin(labels, predicted)))
    np.testing.assert_allclose(r, hits / totals)
    np.testing.assert_allclose(f1.mean(), best)
    for place, label in enumerate(labels):
        own = tp[order][predicted[order] == label]
        for column in range(3):
            assert ap[place, column] == pytest.approx(average_precision(own[:, column], int(totals[place])))


def test_average_precision_of_coco() -> None:
    """Images of one object, each found by at most one box of the same size, so that matching needs no rules."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    random = np.random.default_rng(0)
    shift = random.integers(0, 12, 60)  # boxes of 20 x 20, moved sideways
    labels, conf = random.integers(0, 3, 60), random.random(60)
    coco = COCO()
    coco.dataset = {
        "images": [{"id": n} for n in range(60)],
        "categories": [{"id": label} for label in range(3)],
        "annotations": [
            {
                "id": n + 1,
                "image_id": n,
                "category_id": int(labels[n]),
                "bbox": [5, 5, 20, 20],
                "area": 400,
                "iscrowd": 0,
            }
            for n in range(60)
        ],
    }
    with contextlib.redirect_stdout(io.StringIO()):
        coco.createIndex()
        answers = coco.loadRes(
            [
                {"image_id": n, "category_id": int(labels[n]), "bbox": [5 + int(shift[n]), 5, 20, 20], "score": conf[n]}
                for n in range(60)
            ]
        )
        evaluation = COCOeval(coco, answers, "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    overlap = (20 - shift) / (20 + shift)
    tp = overlap[:, None] >= np.linspace(0.5, 0.95, 10)
    ap = ap_per_class(tp, conf, labels, labels)[5]
    assert ap.mean() == pytest.approx(evaluation.stats[0])
    assert ap[:, 0].mean() == pytest.approx(evaluation.stats[1])


def test_perfect_and_missing_detections() -> None:
    tp, conf, labels = np.ones((4, 10), bool), np.array([0.9, 0.8, 0.7, 0.6]), np.array([0, 0, 2, 2])
    found, wrong, p, r, f1, ap, classes = ap_per_class(tp, conf, labels, labels)
    assert (found.tolist(), wrong.tolist(), classes.tolist()) == ([2, 2], [0, 0], [0, 2])
    assert p.tolist() == r.tolist() == f1.tolist() == [1, 1]
    assert (ap == 1).all()
    assert ap.shape == (2, 10)
    none = ap_per_class(np.zeros((0, 10), bool), [], [], [1.0, 1.0])
    assert (none[2].tolist(), none[3].tolist(), none[5].sum(), none[6].tolist()) == ([0], [0], 0, [1])
    assert ap_per_class(tp, conf, labels, np.array([], int))[5].shape == (0, 10)


@pytest.mark.torch
def test_tensors() -> None:
    torch = pytest.importorskip("torch")
    tp, conf, labels = np.array([[True], [False]]), np.array([0.9, 0.8]), np.array([1.0, 1.0])
    arrays = ap_per_class(tp, conf, labels, labels)
    tensors = ap_per_class(*(torch.from_numpy(value) for value in (tp, conf, labels, labels)))
    assert all(isinstance(one, np.ndarray) for one in tensors)
    assert all((one == other).all() for one, other in zip(arrays, tensors, strict=True))


def test_mismatched_arrays() -> None:
    tp, conf, labels = np.ones((4, 10), bool), np.full(4, 0.5), np.zeros(4)
    for wrong in ((tp, conf[:3], labels, labels), (tp, conf, labels[:2], labels), (tp, conf, labels, labels[None])):
        with pytest.raises(InputError, match="do not match"):
            ap_per_class(*wrong)
    with pytest.raises(InputError, match=r"1 of 4 .*NaN"):
        ap_per_class(tp, [0.5, np.nan, 0.1, 0.1], labels, labels)
    with pytest.warns(UserWarning, match="ap_per_class does not plot"):
        ap_per_class(tp, conf, labels, labels, plot=True, save_dir="x", names={0: "a"})
