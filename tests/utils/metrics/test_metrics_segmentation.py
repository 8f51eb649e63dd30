"""Mean IoU and its secondary figures compared with scikit-learn and torchvision's reference."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, jaccard_score

from engine import DataError, InputError
from model_config.judge.gate import judge
from model_config.judge.pairs import Pairs
from utils.metrics.definition import metric_from_json, metric_to_json
from utils.metrics.segmentation import MeanIoU


class Reference:
    """torchvision's references/segmentation/utils.py, reimplemented: a matrix filled with bincount."""

    def __init__(self, classes: int) -> None:
        self.classes, self.matrix = classes, torch.zeros((classes, classes), dtype=torch.int64)

    def update(self, real: torch.Tensor, found: torch.Tensor) -> None:
        inside = (real >= 0) & (real < self.classes)
        places = self.classes * real[inside].to(torch.int64) + found[inside]
        self.matrix += torch.bincount(places, minlength=self.classes**2).reshape(self.classes, self.classes)

    def compute(self) -> tuple[float, torch.Tensor, torch.Tensor]:
        matrix = self.matrix.double()
        right = torch.diag(matrix)
        return (
            float(right.sum() / matrix.sum()),
            right / matrix.sum(1),
            right / (matrix.sum(1) + matrix.sum(0) - right),
        )


def images(seed: int, count: int, classes: int, *, ignored: float = 0.1) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return targets and predictions of images of several sizes; some target pixels are ignored."""
    rng = np.random.default_rng(seed)
    truths, found = [], []
    for _ in range(count):
        size = tuple(rng.integers(1, 12, 2))
        truth = rng.integers(0, classes, size).astype(np.int16)
        guess = np.where(rng.random(size) < 0.6, truth, rng.integers(0, classes, size)).astype(np.int16)
        truth[rng.random(size) < ignored] = -1
        truths.append(truth)
        found.append(guess)
    return truths, found


@settings(deadline=None, max_examples=40)
@example(3639, 1, 2, 0.5)  # only ignored pixels
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(2, 9), st.floats(0, 0.6))
def test_figures_equal_scikit_learn_and_torchvision(seed: int, count: int, classes: int, ignored: float) -> None:
    truths, found = images(seed, count, classes, ignored=ignored)
    metric, reference = MeanIoU(), Reference(classes)
    metric.update(found, truths)
    for truth, guess in zip(truths, found, strict=True):
        reference.update(torch.from_numpy(truth), torch.from_numpy(guess).long())
    real = np.concatenate([truth[truth >= 0] for truth in truths])
    guessed = np.concatenate([guess[truth >= 0] for truth, guess in zip(truths, found, strict=True)])
    if not real.size:
        with pytest.raises(DataError, match="no records"):
            metric.compute()
        return
    present = np.union1d(real, guessed)
    figures = metric.secondary()
    assert metric.compute() == pytest.approx(jaccard_score(real, guessed, labels=present, average="macro"), abs=1e-12)
    assert figures["dice"] == pytest.approx(f1_score(real, guessed, labels=present, average="macro"), abs=1e-12)
    assert figures["pixel_accuracy"] == pytest.approx(accuracy_score(real, guessed), abs=1e-12)
    labels = range(max(2, present[-1] + 1))  # scikit-learn warns about a single one
    matrix = confusion_matrix(real, guessed, labels=labels)
    np.testing.assert_array_equal(metric.confusion(), matrix[: present[-1] + 1, : present[-1] + 1])
    overall, accuracy, iou = reference.compute()
    assert figures["pixel_accuracy"] == pytest.approx(overall, abs=1e-12)
    assert figures["mean_accuracy"] == pytest.approx(float(accuracy[accuracy.isfinite()].mean()), abs=1e-12)
    assert metric.compute() == pytest.approx(float(iou[iou.isfinite()].mean()), abs=1e-12)
    shares = np.bincount(real, minlength=classes) / len(real)
    assert figures["fw_iou"] == pytest.approx(float((shares * np.nan_to_num(iou.numpy())).sum()), abs=1e-12)
    for place in present.tolist():
        one = metric.per_class()[str(place)]
        assert one["iou"] == pytest.approx(float(iou[place]), abs=1e-12)
        assert one["pixels"] == np.count_nonzero(real == place)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.data())
def test_weights_repeat_images_and_exact_merge(seed: int, count: int, data: st.DataObject) -> None:
    truths, found = images(seed, count, 5)
    whole = MeanIoU()
    records = whole.update(found, truths)
    drawn = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count).filter(any))
    again = MeanIoU()
    for place, times in enumerate(drawn):
        for _ in range(times):
            again.update(found[place : place + 1], truths[place : place + 1])
    weights = np.array(drawn, np.float64)[records.samples]
    assert whole.value(records.values, weights) == pytest.approx(again.compute(), abs=1e-13, nan_ok=True)
    parts = [MeanIoU(), MeanIoU()]
    for place in np.random.default_rng(seed).permutation(count):
        parts[place % 2].update(found[place : place + 1], truths[place : place + 1])
    parts[1].merge(parts[0])
    assert parts[1].compute() == whole.compute()
    assert parts[1].secondary() == whole.secondary()
    replayed = MeanIoU()
    replayed.replay(records)
    assert replayed.compute() == whole.compute()


def test_absent_classes_are_omitted() -> None:
    metric = MeanIoU(["sky", "road", "car", "tree"])
    metric.update([np.array([[0, 0, 3, 3]])], [np.array([[0, 0, 0, -1]])])
    assert metric.compute() == pytest.approx((2 / 3 + 0) / 2)
    assert list(metric.per_class()) == ["sky", "tree"]
    assert np.isnan(metric.per_class()["tree"]["accuracy"])
    assert metric.confusion().shape == (4, 4)
    unnamed = MeanIoU(["sky"])
    unnamed.update([np.array([[1]])], [np.array([[1]])])
    assert list(unnamed.per_class()) == ["1"]


def test_pixels_without_an_answer_are_wrong() -> None:
    metric = MeanIoU()
    metric.update([np.array([[0, -1], [1, 1]])], [np.array([[0, 0], [1, 1]])])
    assert metric.compute() == pytest.approx((0.5 + 1) / 2)
    assert metric.secondary()["pixel_accuracy"] == 0.75
    assert metric.confusion().tolist() == [[1, 0], [0, 2]]


def test_no_labelled_pixels() -> None:
    metric = MeanIoU()
    records = metric.update([np.zeros((2, 2), int)], [np.full((2, 2), -1)])
    assert not len(records.values)
    metric.update([np.zeros((2, 2), int)], [np.zeros((2, 2), int)])
    assert metric.compute() == 1
    assert np.isnan(MeanIoU().value(records.values, np.ones(0)))


def test_targets_in_the_context() -> None:
    metric = MeanIoU()
    metric.update([np.array([[1, 0]])], ["elsewhere"], [SimpleNamespace(truth=np.array([[1, 1]]))])
    assert metric.secondary()["pixel_accuracy"] == 0.5


@pytest.mark.parametrize(
    ("prediction", "target", "message"),
    [
        (np.zeros((2, 3), int), np.zeros((3, 2), int), "3x2 for a target of shape"),
        (np.zeros((2, 3)), np.zeros((2, 3), int), "dtype float64"),
        (np.zeros(3, int), np.zeros(3, int), r"shape \(3,\)"),
        (np.zeros((2, 3), int), np.zeros((2, 3)), "target dtype float64"),
    ],
)
def test_invalid_input(prediction: np.ndarray, target: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        MeanIoU().update([prediction], [target])


def test_many_classes_need_little_memory() -> None:
    truth = np.arange(40_000, dtype=np.int32).reshape(200, 200) % 30_000
    metric = MeanIoU()
    metric.update([truth], [truth])
    assert metric.compute() == 1


def test_definition_as_json(tmp_path: Path) -> None:
    made = metric_from_json(json.loads(json.dumps(metric_to_json(MeanIoU(["a", "b"])))), tmp_path)
    assert isinstance(made, MeanIoU)
    assert made.labels == ("a", "b")


@pytest.mark.parametrize("classes", [21, 150])
def test_the_gate_detects_a_worse_run(classes: int) -> None:
    """A worse run is detected for any number of classes."""
    rng = np.random.default_rng(0)
    truths, near, worse = [], [], []
    for _ in range(500):
        truth = rng.choice(rng.integers(0, classes, 6), (24, 24))
        wrong = rng.random(truth.shape)
        truths.append(truth)
        near.append(np.where(wrong < 0.1, rng.integers(0, classes), truth))
        worse.append(np.where(wrong < 0.3, rng.integers(0, classes), truth))
    runs = []
    for found in (near, worse):
        metric = MeanIoU()
        runs.append((metric, metric.update(found, truths)))
    (metric, ours), (other, theirs) = runs
    units = (theirs.samples, ours.samples)
    pairs = Pairs(theirs.values, ours.values, "mIoU", units=units, count=500, samples=500)
    result = judge(pairs, other.compute(), metric.compute(), metric_of=MeanIoU())
    assert result.verdict.name == "FAIL"
