"""Exports for other tasks, and channels that do not fit the labels, are refused; a detector's own outputs are not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from constructed_models import bound
from hypothesis import given, settings, strategies as st

from engine import Array, InputError, ModelError, TecoInferError, TensorSpec
from utils.datasets.image.objects import Objects
from utils.preprocess.image.letterbox import fit
from utils.tasks.detection.task import Detection
from utils.tasks.model import Model

FLOAT = np.dtype(np.float32)
SIDE = 128
COUNT = sum((SIDE // stride) ** 2 for stride in (8, 16, 32))


def model(names: tuple[str, ...], labels: int | None = None, **note: Any) -> Model:
    metadata = {"detection": json.dumps(note)}
    if labels is not None:
        metadata["class_labels"] = json.dumps([f"c{i}" for i in range(labels)])
    image = TensorSpec("images", FLOAT, (None, 3, SIDE, SIDE))
    return Model(Path("m.onnx"), (image,), tuple(TensorSpec(n, FLOAT, (None,)) for n in names), metadata=metadata)


def found(arrays: list[Array], labels: int | None = None, names: Any = None, **flags: Any) -> Any:
    names = names or tuple(f"output{i}" for i in range(len(arrays)))
    contexts = [fit(SIDE, SIDE, (SIDE, SIDE))] * len(arrays[0])
    note = {"layout": flags.pop("stored")} if "stored" in flags else {}
    return bound(Detection, model(names, labels, **note), **flags).decode(arrays, contexts)


def boxes(rng: np.random.Generator, count: int) -> Array:
    return np.concatenate([rng.uniform(0, SIDE, (count, 2)), rng.uniform(4, 30, (count, 2))], 1)


def probabilities(rng: np.random.Generator, count: int, classes: int) -> Array:
    return rng.beta(0.1, 2, (count, classes))


def pose(rng: np.random.Generator, count: int, points: int, size: int) -> Array:
    keypoints = rng.uniform(0, SIDE, (count, points, size))
    keypoints[..., 2:] = rng.uniform(0, 1, (count, points, size - 2))
    return np.concatenate([probabilities(rng, count, 1), keypoints.reshape(count, -1)], 1)


def segmentation(rng: np.random.Generator, count: int, classes: int, masks: int) -> Array:
    return np.concatenate([probabilities(rng, count, classes), rng.normal(0, 0.5, (count, masks))], 1)


def rotated(rng: np.random.Generator, count: int, classes: int) -> Array:
    return np.concatenate([probabilities(rng, count, classes), rng.uniform(-0.785, 2.356, (count, 1))], 1)


KINDS = {
    "pose": lambda rng, n: pose(rng, n, 17, 3),
    "pose of pairs": lambda rng, n: pose(rng, n, 17, 2),
    "pose of a face": lambda rng, n: pose(rng, n, 5, 3),
    "segmentation": lambda rng, n: segmentation(rng, n, 80, 32),
    "segmentation of one": lambda rng, n: segmentation(rng, n, 1, 32),
    "rotated": lambda rng, n: rotated(rng, n, 15),
    "logits": lambda rng, n: rng.normal(-4, 3, (n, 80)),
    "percent": lambda rng, n: 100 * probabilities(rng, n, 80),
}


@pytest.mark.parametrize("script", ["valid", "single"])
@pytest.mark.parametrize("layout", ["yolov5", "yolov6", "yolov8", "yolox"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_values_outside_probabilities_are_rejected(kind: str, layout: str, script: str) -> None:
    rng = np.random.default_rng(7)
    count = 3 * COUNT if layout == "yolov5" else COUNT
    rest = KINDS[kind](rng, count)
    middle = [] if layout == "yolov8" else [probabilities(rng, count, 1)]
    rows = np.concatenate([boxes(rng, count), *middle, rest], 1).astype(np.float32)[None]
    flags = {} if layout in ("yolov5", "yolov8") else {"stored": layout}
    with pytest.raises(InputError, match="score of") as caught:
        found([rows.transpose(0, 2, 1) if layout == "yolov8" else rows], script=script, **flags)
    said = str(caught.value)
    assert "output0" in said
    assert "--score_form" in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("kind", "word"),
    [("pose", "17 x 3"), ("pose of pairs", "17 x 2"), ("segmentation", "80 + 32"), ("rotated", "rotated")],
)
def test_the_kind_of_export_is_named(kind: str, word: str) -> None:
    rng = np.random.default_rng(7)
    rows = np.concatenate([boxes(rng, COUNT), KINDS[kind](rng, COUNT)], 1).astype(np.float32)[None]
    with pytest.raises(InputError, match=re.escape(word)):
        found([rows.transpose(0, 2, 1)])


@pytest.mark.parametrize("given", [{}, {"layout": "yolov8"}, {"stored": "yolov8"}])
@pytest.mark.parametrize("flipped", [False, True])
def test_prototypes_of_masks_are_named(given: dict[str, str], flipped: bool) -> None:
    outputs = [np.zeros((1, 4 + 80 + 32, COUNT), np.float32), np.zeros((1, 32, 32, 32), np.float32)]
    with pytest.raises(InputError, match="segmentation export with 32"):
        found(outputs[::-1] if flipped else outputs, **given)


@pytest.mark.parametrize(
    ("shape", "layout"),
    [((1, 56, COUNT), "yolov8"), ((1, 3 * COUNT, 57), "yolov5"), ((1, 4 + 91, COUNT), "yolov8")],
)
def test_channels_that_are_not_those_of_the_labels(shape: tuple[int, ...], layout: str) -> None:
    with pytest.raises(InputError, match=f"layout {layout} .* 80 labels"):
        found([np.zeros(shape, np.float32)], labels=80)


@pytest.mark.parametrize(
    ("names", "arrays", "layout"),
    [
        (("output0",), [np.full((1, 4 + 9, COUNT), 0.6)], "yolov8"),
        (("output0",), [np.full((1, 9, 6), 5.0) * [1, 1, 4, 4, 0.1, 1]], "yolov10"),
        (("logits", "pred_boxes"), [np.eye(9, 9)[None] * 9, np.full((1, 9, 4), 0.5)], "detr"),
        (("boxes", "scores"), [np.full((1, 9, 4), 9.0) * [1, 1, 4, 4], np.full((1, 9, 7), 0.6)], "boxes"),
    ],
)
def test_a_class_without_a_label_is_refused_or_reported(names: Any, arrays: list[Array], layout: str) -> None:
    arrays = [one.astype(np.float32) for one in arrays]
    for labels in (3, None):
        looking, contexts = (
            bound(Detection, model(names, labels), layout=layout).diagnostics(),
            [fit(SIDE, SIDE, (SIDE, SIDE))],
        )
        box = np.array([[1.0, 1, 3, 3]])
        real = Objects(box, np.array([0]), np.array([False]), ("c0", "c1", "c2"))
        looking.see(arrays, contexts, [real])
        (line,) = looking.hints()
        assert "--class_offset" in line
    (answer,) = found(arrays, 3, names, layout=layout, script="single")
    with pytest.raises(ModelError, match="stores 3 labels"):
        bound(Detection, model(names, 3)).show(Path("p.png"), answer)


@pytest.mark.parametrize(
    ("names", "arrays"),
    [
        (("output0",), [np.full((1, 9, 6), 64.0)]),
        (("boxes", "scores"), [np.full((1, 9, 4), 9.0), np.full((1, 9, 7), 64.0)]),
        (("scores", "boxes"), [np.full((1, 9, 7), -3.0), np.full((1, 9, 4), 9.0)]),
        (("n", "b", "s", "c"), [np.full((1, 1), 9), np.full((1, 9, 4), 9.0), np.full((1, 9), 64.0), np.zeros((1, 9))]),
        (("rows",), [np.full((9, 7), 64.0) * [0, 1, 1, 1, 1, 0, 1]]),
    ],
)
def test_scores_outside_probabilities_are_rejected_in_other_layouts(names: Any, arrays: list[Array]) -> None:
    with pytest.raises(InputError, match="score of"):
        found([one.astype(np.float32) for one in arrays], None, names)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 999),
    classes=st.integers(2, 30),
    labelled=st.booleans(),
    layout=st.sampled_from(["yolov5", "yolov8"]),
    dtype=st.sampled_from([np.float32, np.float16]),
)
def test_a_detector_is_never_refused(seed: int, classes: int, labelled: bool, layout: str, dtype: type) -> None:
    rng = np.random.default_rng(seed)
    count = 3 * COUNT if layout == "yolov5" else COUNT
    parts = [boxes(rng, count), *([probabilities(rng, count, 1)] if layout == "yolov5" else [])]
    rows = np.concatenate([*parts, probabilities(rng, count, classes)], 1).astype(dtype)[None]
    rows[0, :3, 4:] = np.nan  # no candidates
    try:
        answers = found([rows.transpose(0, 2, 1) if layout == "yolov8" else rows], classes if labelled else None)
    except TecoInferError as error:
        raise AssertionError(str(error)) from error
    assert len(answers[0].scores)


def test_logits_are_read_with_the_flag() -> None:
    rng = np.random.default_rng(1)
    rows = np.concatenate([boxes(rng, COUNT), rng.normal(-2, 3, (COUNT, 5))], 1).astype(np.float32)[None]
    (answer,) = found([rows.transpose(0, 2, 1)], score_form="logit")
    assert 0.5 < answer.scores.max() <= 1
