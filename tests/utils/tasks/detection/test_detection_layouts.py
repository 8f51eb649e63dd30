"""Layouts of outputs: boxes that are written into one come back from it, and each is told apart from the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from constructed_models import options
from hypothesis import given, settings, strategies as st

from engine import Array, ConfigError, InputError, ModelError, TensorSpec
from utils.postprocess.image.layouts import TABLE
from utils.postprocess.image.layouts.yolo import V5_ANCHORS, V7_ANCHORS
from utils.postprocess.image.nms import Detections
from utils.preprocess.image.letterbox import fit, to_input
from utils.tasks.detection.task import Detection
from utils.tasks.model import Model

FLOAT = np.dtype(np.float32)
HEIGHT, WIDTH, STRIDES = 64, 96, (8, 16, 32)
CELLS = [(HEIGHT // stride, WIDTH // stride) for stride in STRIDES]
COUNT = sum(rows * columns for rows, columns in CELLS)
LABELS = ("cat", "dog", "fox")
Found = list[tuple[int, int, tuple[float, float, float, float], float]]
"""Place among the cells, class, corners in pixels of the input, score."""


def model(names: tuple[str, ...], labels: tuple[str, ...] | None = LABELS, **note: Any) -> Model:
    metadata = {"detection": json.dumps(note)} if note else {}
    if labels is not None:
        metadata["names"] = str(dict(enumerate(labels)))
        metadata["stride"] = "32"
    image = TensorSpec("images", FLOAT, (None, 3, HEIGHT, WIDTH))
    return Model(Path("m.onnx"), (image,), tuple(TensorSpec(n, FLOAT, (None,)) for n in names), metadata=metadata)


@st.composite
def objects(draw: st.DrawFn) -> Found:
    """Draw objects at cells of their own, a row's width apart in class or place, so that none suppresses another."""
    places = draw(st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=3, unique=True))
    found = []
    for label, place in enumerate(places):  # each of a class of its own
        left, top = draw(st.integers(0, 60)), draw(st.integers(0, 40))
        width, height = draw(st.integers(3, 30)), draw(st.integers(3, 20))
        score = draw(st.integers(30, 99)) / 100
        found.append((place, label, (left, top, left + width, top + height), score))
    return found


def centres(box: tuple[float, float, float, float]) -> list[float]:
    left, top, right, bottom = box
    return [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]


def rows_v5(found: Found, kinds: int = 3) -> list[Array]:
    made = np.zeros((1, kinds * COUNT, 5 + len(LABELS)), np.float32)
    for place, label, box, score in found:
        made[0, place, :5] = [*centres(box), 0.99]
        made[0, place, 5 + label] = score / 0.99
    return [made]


def columns_v8(found: Found) -> list[Array]:
    made = np.zeros((1, 4 + len(LABELS), COUNT), np.float32)
    for place, label, box, score in found:
        made[0, :4, place], made[0, 4 + label, place] = centres(box), score
    return [made]


def cell(place: int) -> tuple[int, int, int, int]:
    """Return level, row, column and stride of a place among all cells."""
    for level, (rows, columns) in enumerate(CELLS):
        if place < rows * columns:
            return level, place // columns, place % columns, STRIDES[level]
        place -= rows * columns
    raise AssertionError(place)


def rows_x(found: Found) -> list[Array]:
    (made,) = rows_v5(found, kinds=1)
    for place, *_ in found:
        _, row, column, stride = cell(place)
        made[0, place, :2] = made[0, place, :2] / stride - [column, row]
        made[0, place, 2:4] = np.log(made[0, place, 2:4] / stride)
    return [made]


def logits(shares: Any) -> Any:
    shares = np.clip(shares, 1e-6, 1 - 1e-6)
    return np.log(shares / (1 - shares))


def maps(anchors: Any, joined: bool) -> Callable[[Found], list[Array]]:
    """Return what writes objects into raw maps; what a cell cannot say is brought to what it can."""

    def write(found: Found) -> list[Array]:
        made = [np.full((1, 3, *grid, 5 + len(LABELS)), -20, np.float32) for grid in CELLS]
        for i, (place, label, box, score) in enumerate(found):
            level, row, column, stride = cell(place)
            x, y, width, height = centres(box)
            share = (np.array([x, y]) / stride - [column, row] + 0.5) / 2
            size = np.sqrt(np.array([width, height]) / anchors[level][1]) / 2
            share, size = np.clip(share, 0.05, 0.95), np.clip(size, 0.05, 0.95)
            made[level][0, 1, row, column, :5] = [*logits(share), *logits(size), logits(0.99)]
            made[level][0, 1, row, column, 5 + label] = logits(score / 0.99)
            middle = (share * 2 - 0.5 + [column, row]) * stride
            half = (size * 2) ** 2 * anchors[level][1] / 2
            found[i] = (place, label, (*(middle - half), *(middle + half)), score)
        if joined:
            return [one.transpose(0, 1, 4, 2, 3).reshape(1, -1, *one.shape[2:4]) for one in made]
        return made

    return write


def rows_end(found: Found) -> list[Array]:
    made = np.zeros((1, 300, 6), np.float32)
    for i, (_, label, box, score) in enumerate(found):
        made[0, i] = [*box, score, label]
    return [made]


def efficient(found: Found) -> list[Array]:
    boxes, scores = np.full((1, 9, 4), 7, np.float32), np.full((1, 9), 0.9, np.float32)
    classes = np.zeros((1, 9), np.int32)
    for i, (_, label, box, score) in enumerate(found):
        boxes[0, i], scores[0, i], classes[0, i] = box, score, label
    return [np.array([[len(found)]], np.int32), boxes, scores, classes]


def selected(found: Found) -> list[Array]:
    boxes, scores = np.zeros((1, 9, 4), np.float32), np.zeros((1, len(LABELS), 9), np.float32)
    for i, (_, label, box, score) in enumerate(found):
        boxes[0, i], scores[0, label, i] = box, score
    picks = [[0, label, i] for i, (_, label, *_) in enumerate(found)]
    return [np.array([*picks, [1, 0, 0]], np.int64), boxes, scores]  # the last is of an image that filled the batch up


def rows_seven(found: Found) -> list[Array]:
    return [np.array([[0, *box, label, score] for _, label, box, score in found], np.float32)]


WRITERS: dict[str, Callable[[Found], list[Array]]] = {
    "yolov5": rows_v5,
    "yolov6": lambda found: rows_v5(found, kinds=1),
    "yolov8": columns_v8,
    "yolov10": rows_end,
    "yolox": rows_x,
    "yolov5_maps": maps(V5_ANCHORS, joined=False),
    "yolov7_maps": maps(V7_ANCHORS, joined=True),
    "efficient_nms": efficient,
    "onnx_nms": selected,
    "yolov7_rows": rows_seven,
}
TOLD = ("yolov5", "yolov8", "yolov10", "efficient_nms", "onnx_nms", "yolov7_rows")
"""Layouts that names and shapes tell."""


@pytest.mark.parametrize("name", WRITERS)
@settings(max_examples=30)
@given(found=objects())
def test_encoded_boxes_are_decoded(name: str, found: Found) -> None:
    outputs = WRITERS[name](found)
    names = tuple(f"output{i}" for i in range(len(outputs)))
    geometry = fit(192, 128, (HEIGHT, WIDTH))
    (got,) = decode(outputs, [geometry], model(names), options_of(None if name in TOLD else name))
    wanted = sorted(found, key=lambda one: -one[3])
    assert len(got.scores) == len(found)
    np.testing.assert_allclose(got.scores, [one[3] for one in wanted], atol=1e-5)
    boxes = np.clip([np.array(one[2]) * 2 for one in wanted], 0, [192, 128, 192, 128])
    order, other = np.argsort(got.classes), np.argsort([one[1] for one in wanted])
    np.testing.assert_array_equal(got.classes[order], sorted(one[1] for one in wanted))
    np.testing.assert_allclose(got.boxes[order], boxes[other], atol=2e-2)


def decode(outputs: Any, contexts: Any, known: Model, opt: Any) -> Any:
    """Decode with a model that is described, not opened."""
    return Detection(opt).bind(known).decode(outputs, contexts)


def options_of(layout: str | None, **given: Any) -> Any:
    return options(Detection, layout=layout, score_threshold=given.pop("score_threshold", 0.25), **given)


@settings(max_examples=40)
@given(st.integers(8, 400), st.integers(8, 400), objects())
def test_boxes_of_an_image_survive_the_letterbox(width: int, height: int, found: Found) -> None:
    geometry = fit(width, height, (HEIGHT, WIDTH))
    share = np.array([width / 96, height / 64] * 2)
    own = [np.clip(np.array(box) * share, 0, [width, height] * 2) for *_, box, _ in found]
    laid = to_input(np.array(own), geometry)
    moved = [(place, label, tuple(box), score) for (place, label, _, score), box in zip(found, laid, strict=True)]
    (got,) = decode(columns_v8(moved), [geometry], model(("output0",)), options_of(None))
    order = np.argsort(got.classes)
    np.testing.assert_allclose(got.boxes[order], own, atol=1e-3 * max(width, height))


FITTING = [
    ([(2, 3 * COUNT, 8)], LABELS, "yolov5"),
    ([(2, 7, COUNT)], LABELS, "yolov8"),
    ([(2, 7, COUNT)], None, "yolov8"),
    ([(2, 300, 6)], LABELS, "yolov10"),
    ([(2, 300, 6)], None, "yolov10"),
    ([(2, COUNT, 4), (2, COUNT, 3)], None, "boxes"),
]


@pytest.mark.parametrize(("shapes", "labels", "name"), FITTING)
def test_layout_is_detected_by_shapes(shapes: list[Any], labels: Any, name: str) -> None:
    outputs = [np.zeros(shape, np.float32) for shape in shapes]
    names = tuple(f"output{i}" for i in range(len(shapes)))
    geometry = [fit(96, 64, (HEIGHT, WIDTH))] * 2
    assert all(len(one.scores) == 0 for one in decode(outputs, geometry, model(names, labels), options_of(None)))
    fitting = [one.name for one in TABLE.values() if one.fits and one.fits(_seen(outputs, names, labels))]
    assert fitting == [name]


def _seen(outputs: list[Array], names: tuple[str, ...], labels: Any) -> Any:
    from utils.tasks.detection.heads import as_outputs

    contexts = [fit(96, 64, (HEIGHT, WIDTH))] * 2
    return as_outputs(outputs, contexts, model(names, labels), options_of(None), (HEIGHT, WIDTH))


AMBIGUOUS = [
    (("output",), [(1, COUNT, 8)], "fit yolov6 and yolox; .*--layout"),
    (("a", "b", "c"), [(1, 3, *grid, 8) for grid in CELLS], "fit yolov5_maps and yolov7_maps"),
    (("logits", "pred_boxes"), [(1, 9, 5), (1, 9, 4)], "fit detr and rtdetr"),
]


@pytest.mark.parametrize(("names", "shapes", "said"), AMBIGUOUS)
def test_ambiguous_layout_is_one_line(names: Any, shapes: Any, said: str) -> None:
    outputs = [np.zeros(shape, np.float32) for shape in shapes]
    unnamed = model(names, None if "logits" in names else LABELS)
    with pytest.raises(ModelError, match=said):
        decode(outputs, [fit(96, 64, (HEIGHT, WIDTH))], unnamed, options_of(None))


def test_labels_distinguish_detr_and_rtdetr() -> None:
    outputs = [np.zeros((1, 9, 4), np.float32), np.zeros((1, 9, 4), np.float32)]
    geometry = [fit(96, 64, (HEIGHT, WIDTH))]
    (found,) = decode(outputs, geometry, model(("logits", "pred_boxes")), options_of(None))  # three labels: softmax
    assert found.scores.tolist() == pytest.approx([0.25] * 9)
    outputs[0] = outputs[0][..., :3]
    (found,) = decode(outputs, geometry, model(("logits", "pred_boxes")), options_of(None))
    assert found.scores.tolist() == pytest.approx([0.5] * 9)


def test_flags_override_metadata() -> None:
    found: Found = [(3, 1, (10, 10, 30, 30), 0.8)]
    geometry = [fit(96, 64, (HEIGHT, WIDTH))]
    stored = model(("output",), layout="yolox")
    (got,) = decode(rows_x(found), geometry, stored, options_of(None))
    np.testing.assert_allclose(got.boxes, [[10, 10, 30, 30]], atol=1e-4)
    (got,) = decode(rows_v5(found, 1), geometry, stored, options_of("yolov6"))
    np.testing.assert_allclose(got.boxes, [[10, 10, 30, 30]], atol=1e-4)
    with pytest.raises(ConfigError, match=r"--layout yolo9: .*did you mean"):
        decode(rows_x(found), geometry, stored, options_of("yolo9"))
    with pytest.raises(ModelError, match="layout 'yolo9' is not one of"):
        decode(rows_x(found), geometry, model(("output",), layout="yolo9"), options_of(None))
    segment = model(("output",))
    segment.metadata["task"] = "segment"  # type: ignore[index]
    with pytest.raises(ModelError, match="task 'segment'"):
        decode(rows_x(found), geometry, segment, options_of(None))


@pytest.mark.parametrize("name", [name for name in TABLE if name != "boxes"])
def test_outputs_that_contradict_the_layout_are_one_line(name: str) -> None:
    stored = {"sizes": [[8]], "stride": 8, "aspect_ratios": [1.0], "scales": [0.1, 0.2], "grids": [[2, 2]]}
    with pytest.raises((InputError, ModelError)) as refused:
        decode(
            [np.zeros((1, 2, 3), np.float32)] * 2, [fit(9, 9, (64, 96))], model(("a", "b"), **stored), options_of(name)
        )
    assert "\n" not in str(refused.value)


def test_a_box_may_be_of_its_best_class_only() -> None:
    outputs = columns_v8([(0, 0, (10, 10, 30, 30), 0.9)])
    outputs[0][0, 5, 0] = 0.8
    geometry = [fit(96, 64, (HEIGHT, WIDTH))]
    (every,) = decode(outputs, geometry, model(("output0",)), options_of(None))
    (best,) = decode(outputs, geometry, model(("output0",)), options_of(None, best_class=True))
    assert (every.classes.tolist(), best.classes.tolist()) == ([0, 1], [0])


def test_nan_is_not_a_candidate(recwarn: pytest.WarningsRecorder) -> None:
    geometry = [fit(96, 64, (HEIGHT, WIDTH))]
    for name, write in WRITERS.items():
        outputs = write([(0, 0, (10, 10, 30, 30), 0.9), (1, 1, (10, 10, 30, 30), 0.9)])
        outputs = [one if one.dtype.kind == "i" else np.full_like(one, np.nan) for one in outputs]
        names = tuple(f"output{i}" for i in range(len(outputs)))
        (found,) = decode(outputs, geometry, model(names), options_of(name))
        assert found.scores.tolist() == [], name


def test_thresholds_are_the_flags_else_the_stored_ones() -> None:
    outputs = columns_v8([(0, 0, (10, 10, 30, 30), 0.9), (1, 0, (12, 10, 32, 30), 0.8), (2, 0, (60, 40, 70, 50), 0.01)])
    geometry = [fit(96, 64, (HEIGHT, WIDTH))]

    def count(opt: Any, **note: Any) -> int:
        return len(decode(outputs, geometry, model(("output0",), **note), opt)[0].scores)

    valid = options_of("yolov8", script="valid", score_threshold=None)
    assert count(valid) == 2
    assert count(valid, iou_threshold=0.9) == 3
    assert count(valid, score_threshold=0.05) == 1
    assert count(valid, max_detections=1) == 1
    assert count(options_of("yolov8", script="single", score_threshold=None), score_threshold=0.001) == 1
    assert count(options_of("yolov8", iou_threshold=0.9, score_threshold=0.0001), iou_threshold=0.1) >= 3
    with pytest.raises(ModelError, match="iou_threshold 'x' must be from 0 to 1"):
        count(valid, iou_threshold="x")


def test_candidates_per_class_are_limited() -> None:
    from utils.postprocess.image.layouts.base import highest_per_class

    rng = np.random.default_rng(0)
    found = Detections(rng.random((50, 4)), rng.random(50), rng.integers(0, 3, 50))
    kept = highest_per_class(found, 4)
    for label in range(3):
        own = np.sort(found.scores[found.classes == label])[::-1][:4]
        np.testing.assert_array_equal(kept.scores[kept.classes == label], own)
