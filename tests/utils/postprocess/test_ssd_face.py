"""SSD's historical interface: selection of boxes, and the metric of VOC 2007."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import ConfigError, DataError, InputError
from utils.datasets.image.objects import Objects
from utils.postprocess.pytorch.ssd import IOU, MOST, Found, get_metrics, postprocess

NAMES = ("a", "b", "c")


def iou(one: Sequence[float], other: Sequence[float]) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    common = max(width, 0.0) * max(height, 0.0)
    union = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)) - common
    return common / union if union > 0 else 0.0


# ------------------------------------------------------------------------------------------------- selection


def raw(seed: int, boxes: int = 40, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and boxes of two images, crowded."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(2, boxes, classes))
    scores = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    corner, side = random.uniform(0, 0.4, (2, boxes, 2)), random.uniform(0.2, 0.6, (2, boxes, 2))
    return scores.astype(np.float32), np.concatenate([corner, corner + side], axis=2).astype(np.float32)


def plainly(scores: np.ndarray, boxes: np.ndarray, size: int, least: float) -> list[tuple[int, float, list[float]]]:
    """Return class, score and box of one image's selected candidates, one by one."""
    pixels = boxes.astype(float) * size
    waiting = [
        (float(scores[a, c]), a, c)
        for a in range(len(scores))
        for c in range(1, scores.shape[1])
        if scores[a, c] >= least
    ]
    kept: list[tuple[float, int, int]] = []
    for score, a, c in sorted(waiting, key=lambda one: -one[0]):
        if all(c != other or iou(pixels[a], pixels[b]) <= IOU for _, b, other in kept):
            kept.append((score, a, c))
    return [(c, score, pixels[a].tolist()) for score, a, c in kept[:MOST]]


@pytest.mark.parametrize(("size", "least"), [(320, 0.01), (300, 0.4)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_selection_by_the_rules(seed: int, size: int, least: float) -> None:
    scores, boxes = raw(seed)
    for found, *image in zip(postprocess((scores, boxes), size, least), scores, boxes, strict=True):
        wanted = plainly(*image, size, least)
        assert found["labels"].tolist() == [label for label, _, _ in wanted]
        np.testing.assert_allclose(found.scores, [score for _, score, _ in wanted], rtol=1e-6)
        np.testing.assert_allclose(found.boxes, [box for _, _, box in wanted], atol=1e-3)
        assert (found.img_width, found["img_height"]) == (size, size)


def test_limit_of_objects() -> None:
    corners = np.linspace(0, 0.9, 200)
    boxes = np.stack([corners, corners * 0, corners + 0.001, corners * 0 + 1], axis=1)[None]
    scores = np.stack([corners * 0, np.linspace(0.2, 0.9, 200)], axis=1)[None]
    found = postprocess((scores, boxes))[0]
    assert len(found.scores) == MOST
    assert found.scores.min() > 0.5


def test_nan_and_background_are_dropped() -> None:
    scores, boxes = np.zeros((1, 3, 21)), np.tile([0.1, 0.1, 0.5, 0.5], (1, 3, 1))
    scores[0, :, 0] = 1
    scores[0, 1, 4] = np.nan
    scores[0, 2, 4] = 0.9
    boxes[0, 2, 0] = np.nan
    found = postprocess((scores, boxes))[0]
    assert (found.boxes.shape, found.labels.shape, found.scores.shape) == ((0, 4), (0,), (0,))


@pytest.mark.torch
def test_tensors_give_tensors() -> None:
    torch = pytest.importorskip("torch")
    scores, boxes = raw(3)
    plain = postprocess((scores, boxes))
    made = postprocess((torch.from_numpy(scores), torch.from_numpy(boxes)))
    for one, other in zip(plain, made, strict=True):
        for name in ("boxes", "labels", "scores"):
            assert isinstance(other[name], torch.Tensor)
            np.testing.assert_array_equal(one[name], other[name].numpy())


def test_a_result_is_a_mapping_and_has_attributes() -> None:
    found = postprocess(raw(0))[0]
    assert set(found) == {"boxes", "labels", "scores", "img_width", "img_height"}
    assert found.boxes is found["boxes"]
    np.testing.assert_allclose(found.resize((640, 160)).boxes, found.boxes * [2, 0.5, 2, 0.5], rtol=1e-6)
    with pytest.raises(AttributeError, match="no 'masks'; it has boxes"):
        _ = found.masks


SCORES, BOXES = raw(0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (SCORES, r"pass \(scores, boxes\)"),
        ((SCORES, BOXES[:, :3]), "scores are 2x40x4 and boxes 2x3x4"),
        ((SCORES[..., :1], BOXES), "background's column first"),
        ((SCORES * 9, BOXES), "not probabilities; .*softmax"),
        ((SCORES, BOXES * 320), "not relative to the input"),
        ((SCORES > 0.5, BOXES), "scores have dtype bool"),
    ],
)
def test_invalid_outputs(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        postprocess(given)


@pytest.mark.parametrize(("size", "least"), [(0, 0.1), ((3, 4, 5), 0.1), (320, 1.5)])
def test_invalid_arguments(size: Any, least: float) -> None:
    with pytest.raises(ConfigError):
        postprocess((SCORES, BOXES), size, least)


@pytest.mark.torch
@pytest.mark.slow
def test_selection_equals_torchvision() -> None:
    torch = pytest.importorskip("torch")
    try:
        from torchvision.ops import batched_nms

        batched_nms(torch.zeros(1, 4), torch.zeros(1), torch.zeros(1), 0.5)
    except (ImportError, RuntimeError, NotImplementedError) as error:
        pytest.skip(f"torchvision's compiled suppression is missing: {error}")
    for seed in range(20):
        scores, boxes = raw(seed, 400, 21)
        for found, *image in zip(postprocess((scores, boxes), 320, 0.1), scores, boxes, strict=True):
            places, labels = np.nonzero(image[0][:, 1:] >= 0.1)
            pixels, sure = torch.from_numpy(image[1][places] * 320), torch.from_numpy(image[0][places, labels + 1])
            kept = batched_nms(pixels, sure, torch.from_numpy(labels), IOU)[:MOST].numpy()
            assert found.labels.tolist() == (labels[kept] + 1).tolist()
            np.testing.assert_allclose(found.boxes, pixels[kept], rtol=1e-6)


# ------------------------------------------------------------------------------------------------------ the metric


def data(objects: Sequence[Objects], size: tuple[int, int] = (64, 64)) -> Any:
    """Return a data set for the metric."""

    class Images(SimpleNamespace):
        def __len__(self) -> int:
            return len(self.objects)

    return Images(root_dir=Path("VOC2007"), names=NAMES, objects=list(objects), size_of=lambda place: size)


def found(rows: Sequence[tuple[Sequence[float], int, float]], side: int = 64) -> Found:
    """Return detections: box, class from 0 on, score."""
    boxes = np.array([box for box, _, _ in rows], np.float32).reshape(-1, 4)
    labels, scores = np.array([c + 1 for _, c, _ in rows], np.int64), np.array([s for _, _, s in rows], np.float32)
    return Found(boxes=boxes, labels=labels, scores=scores, img_width=side, img_height=side)


def objects_of(rows: Sequence[tuple[Sequence[float], int, bool]], number: int) -> Objects:
    boxes = np.array([box for box, _, _ in rows], float).reshape(-1, 4)
    classes, hard = np.array([c for _, c, _ in rows], np.int64), np.array([h for _, _, h in rows], bool)
    return Objects(boxes, classes, hard, NAMES, None, number)


def eleven_points(images: Sequence[tuple[Any, Any]], label: int) -> float | None:
    """Return a class's average precision by the development kit's VOCevaldet, with 11 recalls."""
    waiting = sorted(
        (
            (-score, number, place, box)
            for number, (_, rows) in enumerate(images)
            for place, (box, c, score) in enumerate(rows)
            if c == label
        ),
        key=lambda one: one[:3],
    )
    real = {(n, i): hard for n, (rows, _) in enumerate(images) for i, (_, c, hard) in enumerate(rows) if c == label}
    count = sum(not hard for hard in real.values())
    if not count:
        return None
    taken: set[tuple[int, int]] = set()
    right = wrong = 0
    curve = []
    for _, number, _, box in waiting:
        near = [(iou(box, images[number][0][i][0]), (n, i)) for n, i in real if n == number]
        best, met = max(near, key=lambda one: one[0], default=(0.0, (-1, -1)))
        if best >= 0.5 and real[met]:
            continue
        right += best >= 0.5 and met not in taken
        wrong += best < 0.5 or met in taken
        if best >= 0.5:
            taken.add(met)
        curve.append((right / count, right / (right + wrong)))
    levels = np.linspace(0, 1, 11)
    return sum(max((p for r, p in curve if r >= level), default=0.0) for level in levels) / 11


whole = st.integers(0, 12)


@st.composite
def scenes(draw: st.DrawFn) -> list[tuple[Any, Any]]:
    """Images: objects with their classes, some difficult; detections near them and elsewhere, no two scores equal."""
    box = st.tuples(whole, whole, st.integers(4, 12), st.integers(4, 12)).map(
        lambda one: (one[0], one[1], one[0] + one[2], one[1] + one[3])
    )
    order = iter(draw(st.permutations(range(1, 64))))
    made = []
    for _ in range(draw(st.integers(1, 3))):
        real = draw(st.lists(st.tuples(box, st.integers(0, 2), st.booleans()), max_size=4))
        near = [(tuple(edge + draw(st.integers(0, 3)) for edge in one), c) for one, c, _ in real]
        rest = draw(st.lists(st.tuples(box, st.integers(0, 2)), max_size=4))
        made.append((real, [(one, c, next(order) / 64) for one, c in near + rest]))
    return made


@given(scenes())
@settings(max_examples=40)
def test_metric_equals_voc_2007(images: list[tuple[Any, Any]]) -> None:
    wanted = [eleven_points(images, label) for label in range(3)]
    dataset = data([objects_of(rows, number) for number, (rows, _) in enumerate(images)])
    predictions = {number: found(rows) for number, (_, rows) in enumerate(images)}
    if wanted == [None] * 3:
        with pytest.raises(DataError, match=r"no object|no records"):
            get_metrics(dataset, predictions)
        return
    metrics = get_metrics(dataset, predictions)["metrics"]
    assert metrics["mAP"] == pytest.approx(np.mean([one for one in wanted if one is not None]))
    for name, one in zip(NAMES, wanted, strict=True):
        assert np.isnan(metrics[name]) if one is None else metrics[name] == pytest.approx(one)


ONE = objects_of([((10, 10, 30, 40), 1, False)], 0)


def test_boxes_are_scaled_to_each_image() -> None:
    box = np.array([10, 10, 30, 40]) * np.array([320 / 200, 320 / 100] * 2)
    figures = get_metrics(data([ONE], (200, 100)), {0: found([(box, 1, 0.9)], 320)}, iteration=7)
    assert figures["metrics"]["mAP"] == 1
    assert figures["iteration"] == 7


def test_images_without_a_prediction_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="1 of 2 images"):
        figures = get_metrics(data([ONE, ONE]), {0: found([((10, 10, 30, 40), 1, 0.9)])})
    assert figures["metrics"]["mAP"] == 1


def test_predictions_in_a_list() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert get_metrics(data([ONE]), [found([])])["metrics"]["mAP"] == 0


def test_invalid_predictions() -> None:
    with pytest.raises(InputError, match=r"image_id 3 .* data set of 1"):
        get_metrics(data([ONE]), {3: found([])})
    with pytest.raises(DataError, match="none of its 1 images"):
        get_metrics(data([ONE]), {})
    with pytest.raises(InputError, match=r"image 0 .* scores, img_width, img_height"):
        get_metrics(data([ONE]), {0: {"boxes": [], "labels": []}})
    with pytest.raises(InputError, match="image 0 has no boxes, labels"):
        get_metrics(data([ONE]), {0: None})
