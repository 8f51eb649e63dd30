"""The detection metric compared with pycocotools and faster-coco-eval (all twelve figures), and VOC's definition."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from utils.datasets.image.objects import Objects
from utils.metrics.detection.metric import MeanAveragePrecision
from utils.postprocess.image.nms import Detections

NAMES = ("a", "b", "c", "d")
STATS = (
    *("mAP", "mAP50", "mAP75", "mAP_small", "mAP_medium", "mAP_large"),
    *("AR1", "AR10", "AR100", "AR_small", "AR_medium", "AR_large"),
)
"""The figures of ``COCOeval.summarize``, in its order."""

Scene = tuple[Detections, Objects]
whole = st.integers(0, 24)
sides = st.integers(0, 14)
halves = st.integers(0, 48).map(lambda number: number / 2)  # exact in binary: overlaps are equal bit for bit


@st.composite
def boxes(draw: st.DrawFn, most: int) -> np.ndarray:
    corner = st.tuples(halves, whole, sides, sides)
    made = np.array(draw(st.lists(corner, max_size=most)), float).reshape(-1, 4)
    made[:, 2:] += made[:, :2]
    return made * draw(st.sampled_from([1, 4, 16]))


@st.composite
def scenes(draw: st.DrawFn) -> list[Scene]:
    """Images with crowds, empty boxes, duplicates, stated areas, several classes, and scores with many ties."""
    made = []
    for number in range(draw(st.integers(1, 4))):
        real = draw(boxes(5))
        real = np.concatenate([real, real[: draw(st.integers(0, 2))]])
        count = len(real)
        kinds = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
        crowd = draw(st.lists(st.sampled_from([False, False, True]), min_size=count, max_size=count))
        exact = (real[:, 2:] - real[:, :2]).prod(axis=1)
        stated = st.sampled_from([None, 0.0, 100.5, 1024.0, 5000.0, 9216.0, 20000.0])
        areas = [
            own if area is None else area
            for own, area in zip(exact.tolist(), draw(st.lists(stated, min_size=count, max_size=count)), strict=True)
        ]
        moves = draw(st.lists(st.integers(0, 3), max_size=3))
        found = np.concatenate([np.empty((0, 4)), *(real + move for move in moves), draw(boxes(4))])
        guesses = (kinds * 3)[: len(found)] + [draw(st.integers(0, 3)) for _ in range(len(found) - 3 * count)]
        guesses += [0] * (len(found) - len(guesses))
        scores = draw(st.lists(st.integers(1, 6), min_size=len(found), max_size=len(found)))
        made.append(
            (
                Detections(found, np.array(scores, float) / 8, np.array(guesses, np.int64)),
                Objects(real, np.array(kinds, np.int64), np.array(crowd, bool), NAMES, np.array(areas), number),
            )
        )
    return made


def measured(made: list[Scene], **options: Any) -> MeanAveragePrecision:
    metric = MeanAveragePrecision(NAMES, **options)
    for found, real in reversed(made):  # the order of the images does not matter
        metric.update([found], [real])
    return metric


def dataset(made: list[Scene]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the scenes in COCO's format: the annotations, and the detections."""
    real, found = [], []
    for image, (guess, truth) in enumerate(made, start=1):
        for place, box in enumerate(truth.boxes.tolist()):
            entry = {"id": len(real) + 1, "image_id": image, "category_id": int(truth.classes[place])}
            entry |= {"bbox": [*box[:2], box[2] - box[0], box[3] - box[1]], "iscrowd": int(truth.crowd[place])}
            real.append({**entry, "area": float(truth.areas[place])})
        for box, score, label in zip(*(column.tolist() for column in guess), strict=True):
            size = [*box[:2], box[2] - box[0], box[3] - box[1]]
            found.append({"image_id": image, "category_id": label, "bbox": size, "score": score})
    return {
        "info": {},
        "images": [{"id": place + 1, "width": 900, "height": 900} for place in range(len(made))],
        "annotations": real,
        "categories": [{"id": label, "name": name} for label, name in enumerate(NAMES)],
    }, found


def evaluated(made: list[Scene], package: str) -> Any:
    """Return a package's evaluation of the scenes, accumulated and summarized."""
    content, found = dataset(made)
    with contextlib.redirect_stdout(io.StringIO()):
        if package == "pycocotools":
            coco, evaluation = (pytest.importorskip(f"pycocotools.{name}") for name in ("coco", "cocoeval"))
            truth = coco.COCO()
            truth.dataset = content
            truth.createIndex()
            run = evaluation.COCOeval(truth, truth.loadRes(found), "bbox")
        else:
            faster = pytest.importorskip("faster_coco_eval")
            truth = faster.COCO(content)
            run = faster.COCOeval_faster(truth, truth.loadRes(found), iouType="bbox")
        run.evaluate()
        run.accumulate()
        run.summarize()
    return run


def usable(made: list[Scene]) -> bool:
    """Return whether there are objects and detections, which both packages need."""
    return any(len(found.scores) for found, _ in made) and any((~real.crowd).any() for _, real in made)


def check(made: list[Scene], package: str) -> None:
    metric = measured(made)
    run = evaluated(made, package)
    ours = {"mAP": metric.compute(), **metric.secondary()}
    for name, value in zip(STATS, np.asarray(run.stats).tolist(), strict=False):
        assert ours.get(name, -1.0) == pytest.approx(value, abs=1e-9), name
    rows = metric.per_class()
    precision = np.asarray(run.eval["precision"]).reshape(10, 101, len(NAMES), 4, 3)[:, :, :, 0, 2]
    for place, name in enumerate(NAMES):
        mine = precision[:, :, place]
        if (mine < 0).any():
            assert name not in rows
        else:
            assert rows[name]["AP"] == pytest.approx(mine.mean(), abs=1e-9)
            assert rows[name]["AP50"] == pytest.approx(mine[0].mean(), abs=1e-9)
            assert rows[name]["AP75"] == pytest.approx(mine[5].mean(), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("package", ["pycocotools", "faster_coco_eval"])
def test_every_figure_equals_the_reference(package: str) -> None:
    pytest.importorskip(package)

    @settings(deadline=None, max_examples=60)
    @given(scenes())
    def compare(made: list[Scene]) -> None:
        assume(usable(made))
        check(made, package)

    compare()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("package", ["pycocotools", "faster_coco_eval"])
def test_every_figure_equals_the_reference_extensively(package: str) -> None:
    pytest.importorskip(package)

    @settings(deadline=None, max_examples=250)
    @given(scenes())
    def compare(made: list[Scene]) -> None:
        assume(usable(made))
        check(made, package)

    compare()


@pytest.mark.parametrize("package", ["pycocotools", "faster_coco_eval"])
@pytest.mark.parametrize("seed", [0, 1])
def test_many_detections_of_any_coordinates(package: str, seed: int) -> None:
    """More than 100 detections of a class in an image, coordinates that are not exact in binary, and crowds."""
    pytest.importorskip(package)
    rng = np.random.default_rng(seed)
    made = []
    for number in range(6):
        corners = rng.uniform(0, 400, (30, 2))
        real = np.concatenate([corners, corners + rng.uniform(1, 150, (30, 2))], axis=1)
        near = np.repeat(real, 12, axis=0) + rng.normal(0, 3, (360, 4))
        near[:, 2:] = np.maximum(near[:, 2:], near[:, :2])
        kinds = rng.integers(0, 2, 30)
        scores = rng.integers(0, 1000, 360) / 1000
        found = Detections(near, scores, np.repeat(kinds, 12))
        areas = (real[:, 2:] - real[:, :2]).prod(axis=1) * rng.uniform(0.5, 1, 30)
        made.append((found, Objects(real, kinds, rng.random(30) < 0.1, NAMES, areas, number)))
    check(made, package)


def voc(made: list[Scene], label: int, year: str) -> float | None:
    """Return the average precision of a class, computed step by step as in the development kit's VOCevaldet.m."""
    order = sorted(
        ((-found.scores[i], number, i) for number, (found, _) in enumerate(made) for i in range(len(found.scores)))
    )
    total = sum(int(((real.classes == label) & ~real.crowd).sum()) for _, real in made)
    if not total:
        return None
    taken: set[tuple[int, int]] = set()
    right, wrong, curve = 0, 0, []
    for _, number, i in order:
        found, real = made[number]
        if found.classes[i] != label:
            continue
        best, share = -1, -1.0
        for place in np.flatnonzero(real.classes == label).tolist():
            a, b = found.boxes[i], real.boxes[place]
            width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
            if width > 0 and height > 0:
                common = width * height
                one = common / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common)
                best, share = (place, one) if one > share else (best, share)
        if share >= 0.5:
            if real.crowd[best]:
                continue
            right, wrong = (right, wrong + 1) if (number, best) in taken else (right + 1, wrong)
            taken.add((number, best))
        else:
            wrong += 1
        curve.append((right / total, right / (right + wrong)))
    if year == "2007":
        levels = np.linspace(0, 1, 11)
        return float(np.mean([max((p for r, p in curve if r >= level), default=0.0) for level in levels]))
    area, before = 0.0, 0.0
    for recall, _ in curve:
        area += (recall - before) * max(p for r, p in curve if r >= recall)
        before = recall
    return area


@pytest.mark.slow
@pytest.mark.parametrize("year", ["2007", "2012"])
def test_vocs_rules(year: str) -> None:
    @settings(deadline=None, max_examples=60)
    @given(scenes())
    def compare(made: list[Scene]) -> None:
        assume(usable(made))
        metric = measured(made, rules=f"voc{year}")
        wanted = {name: voc(made, label, year) for label, name in enumerate(NAMES)}
        known = {name: value for name, value in wanted.items() if value is not None}
        assert {name: row["AP"] for name, row in metric.per_class().items()} == pytest.approx(known, abs=1e-9)
        assert metric.compute() == pytest.approx(np.mean(list(known.values())), abs=1e-9)
        assert metric.secondary() == {}

    compare()
