"""The 95 % bound of mean average precision on other images: it holds, and 300 images bound a deviation of float16."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom

from engine import Array
from model_config.judge.bound import Estimate, Valued, estimate, values_of
from model_config.judge.pairs import Pairs
from utils.metrics.detection.average_precision import RECORD
from utils.metrics.detection.matching import IOU_THRESHOLDS
from utils.metrics.detection.metric import MeanAveragePrecision

TOLERANCE = 0.001
RUNS = 200
ENOUGH = int(binom.ppf(1e-4, RUNS, 0.95))
DEVIATIONS: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "normal": lambda rng, size: rng.normal(size=size),
    "heavy tail": lambda rng, size: rng.standard_t(2, size),
    "constant": lambda rng, size: np.ones(size),
}

QUALITY = {"spread": (2.3, 1.0), "at the last threshold": (2.9, 0.4), "poor": (0.8, 0.8)}
"""Mean and standard deviation of the logit of a detection's overlap: 0.91, 0.948 and 0.69 in the middle."""


def drawn(
    rng: np.random.Generator, images: int, scale: float, deviation: str, quality: str = "spread", group: int = 1
) -> Pairs:
    """Two runs of a detector of four classes over images with some four objects, in units of ``group`` images.

    Objects are found once or twice, or missed; there are as many wrong detections. Overlaps deviate by ``scale``, more
    where they are small, and the scores' logits by four times as much; a constant deviation is to the worse.
    """
    units = np.arange(images) // group
    counts = 1 + rng.poisson(3, images)
    owners = np.repeat(np.arange(images), counts)
    labels = rng.choice(4, len(owners), p=[0.4, 0.3, 0.2, 0.1])
    hard = rng.normal(size=units[-1] + 1)[units]
    middle, width = QUALITY[quality]
    kept = rng.random(len(owners)) < 0.95
    once = np.flatnonzero(kept)
    twice = once[rng.random(len(once)) < 0.1]
    wrong = rng.integers(0, images, rng.poisson(3 * images))
    first = middle + width * (rng.normal(size=len(once)) - 0.4 * hard[owners[once]])
    second = middle - 1.5 + width * rng.normal(size=len(twice))
    overlap = np.concatenate([1 / (1 + np.exp(-np.concatenate([first, second]))), np.zeros(len(wrong))])
    logit = np.concatenate(
        [
            1.5 + 0.5 * (first - middle) + rng.normal(size=len(once)),
            rng.normal(-1, 1, len(twice)),
            rng.normal(-1, 1.2, len(wrong)),
        ]
    )
    owner = np.concatenate([owners[once], owners[twice], wrong])
    label = np.concatenate([labels[once], labels[twice], rng.integers(0, 4, len(wrong))])
    place = np.concatenate([once, twice, np.full(len(wrong), -1)])  # the object
    true = place >= 0
    moved = scale * DEVIATIONS[deviation](rng, len(overlap)) * (0.4 + 5 * (1 - overlap)) * true
    other = np.clip(overlap - moved, 0, 1)
    shift = 4 * scale * DEVIATIONS[deviation](rng, len(logit))
    records = [
        found(owner, label, place, one, score, owners, labels)
        for one, score in ((other, logit - np.where(true, shift, -shift)), (overlap, logit))
    ]
    codes = [units[one["image"]] for one in records]
    target, baseline = records
    return Pairs(target, baseline, "mAP", units=(codes[0], codes[1]), count=int(units[-1]) + 1, samples=images)


def found(
    owner: Array, label: Array, place: Array, overlap: Array, logit: Array, owners: Array, labels: Array
) -> Array:
    """Return the records of detections and objects: the first detection of an object by score has it where it can."""
    size = len(owner)
    rows = np.zeros(size + len(owners), RECORD)
    rows["image"], rows["label"] = np.append(owner, owners), np.append(label, labels)
    rows["score"] = np.append(logit, np.full(len(owners), np.nan))
    order = np.lexsort((-logit, place))
    again = order[1:][(np.diff(place[order]) == 0) & (place[order][1:] >= 0)]
    before = order[:-1][(np.diff(place[order]) == 0) & (place[order][1:] >= 0)]
    taken = np.zeros(size)
    taken[again] = overlap[before]  # at most two detections of an object
    right = (overlap[:, None] >= IOU_THRESHOLDS) & (taken[:, None] < IOU_THRESHOLDS)
    rows["right"][:size, 0] = right @ (1 << np.arange(len(IOU_THRESHOLDS)))
    rows["overlap"][:size], rows["taken"][:size] = overlap, taken
    return rows


def estimated(pairs: Pairs) -> Estimate:
    one = estimate(pairs, Valued(pairs, MeanAveragePrecision()), TOLERANCE)
    assert one is not None
    assert one.method == "differences"
    return one


def values(pairs: Pairs) -> tuple[float, float]:
    return values_of(pairs, MeanAveragePrecision())(np.ones(pairs.total))


def change_of(*case: object) -> float:
    """Return the mean relative change over as many data sets of the same size, of the metric itself."""
    both = [values(drawn(np.random.default_rng(10**6 + run), *case)) for run in range(2 * RUNS)]  # type: ignore[arg-type]
    return float(abs(np.mean([(target - baseline) / baseline for target, baseline in both])))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("deviation", DEVIATIONS)
@pytest.mark.parametrize(
    ("size", "group", "quality"), [(30, 1, "at the last threshold"), (300, 1, "spread"), (300, 5, "poor")]
)
def test_the_bound_of_mean_average_precision_holds(size: int, group: int, quality: str, deviation: str) -> None:
    for scale in (0.001, 0.01):
        case = size, scale, deviation, quality, group
        change = change_of(*case)
        bounds = [estimated(drawn(np.random.default_rng(run), *case)).bound for run in range(RUNS)]
        assert sum(bound >= change for bound in bounds) >= ENOUGH, scale


@pytest.mark.slow
def test_300_images_bound_a_deviation_of_float16() -> None:
    found = [estimated(drawn(np.random.default_rng(run), 300, 0.001, "normal")) for run in range(20)]
    assert np.median([one.bound for one in found]) < 0.9 * TOLERANCE


def test_the_bound_is_not_below_the_observed_change() -> None:
    for run in range(10):
        pairs = drawn(np.random.default_rng(run), 60, 0.001, "normal")
        target, baseline = values(pairs)
        assert estimated(pairs).bound >= abs(target - baseline) / baseline


@pytest.mark.slow
@pytest.mark.long  # six seconds; test_bound.py has the same of another metric
def test_half_a_percent_is_detected_with_1000_images() -> None:
    found = [estimated(drawn(np.random.default_rng(run), 1000, 0.0014, "constant")) for run in range(10)]
    assert change_of(300, 0.0014, "constant") == pytest.approx(0.005, rel=0.1)
    assert all(one.bound > TOLERANCE for one in found)
