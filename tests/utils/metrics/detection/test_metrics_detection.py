"""mAP: golden values computed by hand, weights, records, merging and invalid input."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from engine import ConfigError, DataError, InputError
from utils.datasets.image.boxes import Objects
from utils.metrics.detection.metric import MOST, RECORD, MeanAveragePrecision
from utils.postprocess.image.nms import Detections

NAMES = ("a", "b", "c")


class Scene(NamedTuple):
    found: Detections
    real: Objects


def detections(boxes: Any, scores: Any, classes: Any) -> Detections:
    return Detections(np.array(boxes, float).reshape(-1, 4), np.array(scores, float), np.array(classes, np.int64))


def objects(boxes: Any, classes: Any, crowd: Any = None) -> Objects:
    flags = np.zeros(len(classes), bool) if crowd is None else np.array(crowd, bool)
    return Objects(np.array(boxes, float).reshape(-1, 4), np.array(classes, np.int64), flags, NAMES)


def measured(scenes: list[Scene]) -> MeanAveragePrecision:
    metric = MeanAveragePrecision(NAMES)
    metric.update([scene.found for scene in scenes], [scene.real for scene in scenes])
    return metric


@st.composite
def boxes(draw: st.DrawFn, count: int) -> np.ndarray:
    corner = st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(1, 12), st.integers(1, 12))
    made = np.array(draw(st.lists(corner, min_size=count, max_size=count)), float).reshape(-1, 4)
    made[:, 2:] += made[:, :2]
    return made


@st.composite
def scene(draw: st.DrawFn, crowds: bool = True) -> Scene:
    """Real boxes, and detections of which some are shifted real boxes; scores have ties."""
    real = draw(boxes(draw(st.integers(0, 4))))
    near = [real + draw(st.integers(0, 2)) for _ in range(draw(st.integers(0, 2)))]
    found = np.concatenate([np.empty((0, 4)), *near, draw(boxes(draw(st.integers(0, 3))))])
    labels = st.integers(0, 2)
    kinds = draw(st.lists(labels, min_size=len(real), max_size=len(real)))
    guesses = (kinds * 2 + draw(st.lists(labels, min_size=3, max_size=3)))[: len(found)]
    guesses += [0] * (len(found) - len(guesses))
    scores = draw(st.lists(st.integers(1, 9), min_size=len(found), max_size=len(found)))
    crowd = draw(st.lists(st.booleans() if crowds else st.just(False), min_size=len(real), max_size=len(real)))
    return Scene(detections(found, np.array(scores) / 10, guesses), objects(real, kinds, crowd))


scenes = st.lists(scene(), min_size=1, max_size=4)


BOX = [0, 0, 10, 10]


def test_golden_values() -> None:
    """Computed by hand from the definition."""
    perfect = Scene(detections([BOX], [0.9], [0]), objects([BOX], [0]))
    assert measured([perfect]).compute() == 1.0
    # 10 x 8 of 10 x 10: an overlap of 0.8 counts at 7 of 10 thresholds
    short = Scene(detections([[0, 0, 10, 8]], [0.9], [0]), objects([BOX], [0]))
    assert measured([short]).compute() == pytest.approx(0.7)
    # one of two found: precision 1 up to recall 0.5, so 51 of 101 recalls
    half = Scene(detections([BOX], [0.9], [0]), objects([BOX, [50, 50, 60, 60]], [0, 0]))
    assert measured([half]).compute() == pytest.approx(51 / 101)
    # a detection with a higher score is wrong: precision 1/2 everywhere
    wrong = Scene(detections([[50, 50, 60, 60], BOX], [0.9, 0.8], [0, 0]), objects([BOX], [0]))
    assert measured([wrong]).compute() == pytest.approx(0.5)
    # found twice: the second one is wrong, but comes after full recall
    twice = Scene(detections([BOX, BOX], [0.9, 0.8], [0, 0]), objects([BOX], [0]))
    assert measured([twice]).compute() == 1.0
    # two classes, one of them missed; a class without objects does not count
    other = Scene(detections([BOX, BOX], [0.9, 0.9], [0, 2]), objects([BOX, BOX], [0, 1]))
    assert measured([other]).compute() == pytest.approx(0.5)
    # a crowd takes any number of detections, which are neither right nor wrong
    crowd = Scene(
        detections([[1, 1, 4, 4], [5, 5, 8, 8], [20, 20, 30, 30]], [0.9, 0.9, 0.5], [0] * 3),
        objects([BOX, [20, 20, 30, 30]], [0, 0], [True, False]),
    )
    assert measured([crowd]).compute() == 1.0


def test_only_the_best_detections_of_an_image_count() -> None:
    wrong = np.tile([50.0, 50.0, 60.0, 60.0], (MOST, 1))
    found = detections(np.concatenate([wrong, [BOX]]), [0.9] * MOST + [0.1], [0] * (MOST + 1))
    assert measured([Scene(found, objects([BOX], [0]))]).compute() == 0.0


@settings(deadline=None, max_examples=50)
@given(scenes, st.data())
def test_weights_repeat_images(made: list[Scene], data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(0, 3), min_size=len(made), max_size=len(made)))
    repeated = [one for one, count in zip(made, counts, strict=True) for _ in range(count)]
    assume(any((~one.real.crowd).any() for one in repeated))
    metric = MeanAveragePrecision(NAMES)
    records = metric.records([one.found for one in made], [one.real for one in made])
    weighted = metric.value(records.values, np.array(counts, float)[records.samples])
    assert weighted == measured(repeated).compute()


@settings(deadline=None, max_examples=30)
@given(scenes, st.randoms(use_true_random=False))
def test_the_order_of_records_does_not_matter(made: list[Scene], chance: Any) -> None:
    assume(any((~one.real.crowd).any() for one in made))
    metric = MeanAveragePrecision(NAMES)
    values = metric.records([one.found for one in made], [one.real for one in made]).values
    order = list(range(len(values)))
    chance.shuffle(order)
    assert metric.value(values[order], np.ones(len(values))) == metric.value(values, np.ones(len(values)))


def test_equal_scores_are_ordered_by_image_number() -> None:
    """The image with the lower number decides, not the first one added."""
    right = Scene(detections([BOX], [0.9], [0]), objects([BOX], [0]))
    wrong = Scene(detections([[50, 50, 60, 60]], [0.9], [0]), objects([], []))

    def value(*made: Scene) -> float:
        return measured(list(made)).compute()

    def numbered(one: Scene, number: int) -> Scene:
        return one._replace(real=one.real._replace(number=number))

    for first, second in ((right, wrong), (wrong, right)):
        assert value(numbered(first, 0), numbered(second, 1)) == (1.0 if first is right else 0.5)
        assert value(numbered(first, 1), numbered(second, 0)) == (0.5 if first is right else 1.0)
        assert value(first, second) == 0.5  # without numbers the wrong one is first


@settings(deadline=None, max_examples=30)
@given(scenes)
def test_parts_merge_and_records_replay(made: list[Scene]) -> None:
    assume(any((~one.real.crowd).any() for one in made))
    whole, first, replayed = measured(made), measured(made[:1]), MeanAveragePrecision(NAMES)
    first.merge(measured(made[1:]))
    assert first.compute() == whole.compute()
    for one in made:
        records = MeanAveragePrecision(NAMES).update([one.found], [one.real])
        assert records.values.dtype == RECORD
        assert set(records.samples.tolist()) <= {0}
        replayed.replay(records)
    assert replayed.compute() == whole.compute()


def test_categories_are_matched_by_name() -> None:
    metric = MeanAveragePrecision(("c", "b", "a"))
    metric.update([detections([BOX], [0.9], [2])], [objects([BOX], [0])])
    assert metric.compute() == 1.0
    with pytest.raises(DataError, match=r"class 'a' .*2 labels"):
        MeanAveragePrecision(("b", "c")).update([detections([], [], [])], [objects([BOX], [0])])
    with pytest.raises(DataError, match=r"did you mean 'aa'\?"):
        MeanAveragePrecision(("aa", "b", "c")).update([detections([], [], [])], [objects([BOX], [0])])
    with pytest.raises(ConfigError, match="cannot merge mAP"):
        metric.merge(MeanAveragePrecision(NAMES))


def test_without_objects() -> None:
    with pytest.raises(DataError, match="no object to detect"):
        measured([Scene(detections([BOX], [0.9], [0]), objects([], []))]).compute()
    with pytest.raises(DataError, match="no records"):
        MeanAveragePrecision().compute()
    metric = MeanAveragePrecision(NAMES)
    records = metric.records([detections([BOX], [0.9], [0])], [objects([BOX], [0])])
    assert math.isnan(metric.value(records.values, np.zeros(2)))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (Detections(np.zeros((1, 3)), np.ones(1), np.zeros(1, int)), "expected N x 4, N and N"),
        (Detections(np.zeros((1, 4)), np.ones(1), np.zeros(1)), "classes have dtype float64"),
        (Detections(np.zeros((1, 4)), np.array([np.nan]), np.zeros(1, int)), "NaN"),
    ],
)
def test_invalid_predictions(found: Detections, message: str) -> None:
    with pytest.raises(InputError, match=message):
        MeanAveragePrecision().update([found], [objects([BOX], [0])])
    with pytest.raises(InputError, match=r"1 predictions .*2 targets"):
        MeanAveragePrecision().update([found], [objects([BOX], [0])] * 2)
