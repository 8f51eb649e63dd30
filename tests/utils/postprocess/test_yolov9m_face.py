"""YOLOv9's historical interface: its metric equals the zoo's own on the same detections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from engine import ConfigError, DataError, InputError
from utils.coco_classes import NAMES
from utils.datasets.image.objects import Objects
from utils.metrics.detection.metric import MeanAveragePrecision
from utils.postprocess.image.nms import Detections
from utils.postprocess.pytorch import detection, yolov9m
from utils.postprocess.pytorch.yolov9m import get_metrics, get_stats, postprocess

IOUV = np.linspace(0.5, 0.95, 10)
THREE = {"names": ["cat", "dog", "cow"], "nc": 3}
IMAGES = np.zeros((1, 3, 64, 64), np.float32)


def output(rows: list[tuple[float, ...]], boxes: int = 12) -> np.ndarray:
    """Return 1 x 7 x A: rows of centre, width, height and three scores, then boxes without detections."""
    made = np.zeros((1, 7, boxes), np.float32)
    for place, row in enumerate(rows):
        made[0, :, place] = row
    return made


NEAR = [(20, 20, 10, 20, 0.9, 0.6, 0.0), (21, 20, 10, 20, 0.5, 0.0, 0.0), (40, 40, 8, 8, 0.0, 0.0, 0.3)]


def test_all_classes_of_a_box_for_a_metric() -> None:
    targets, preds = postprocess(IMAGES, output(NEAR), THREE, np.array([[0, 2, 0.5, 0.25, 0.5, 1]]))
    np.testing.assert_allclose(targets, [[0, 2, 32, 16, 32, 64]])
    wanted = [[15, 10, 25, 30, 0.9, 0], [15, 10, 25, 30, 0.6, 1], [36, 36, 44, 44, 0.3, 2]]
    np.testing.assert_allclose(preds[0], wanted, rtol=1e-6)
    assert (len(preds), preds[0].dtype, postprocess(IMAGES, output(NEAR), THREE)[0]) == (1, np.float32, None)


def test_thresholds_and_limits() -> None:
    assert len(postprocess(IMAGES, output(NEAR), THREE, conf_thres=0.4)[1][0]) == 2
    assert len(postprocess(IMAGES, output(NEAR), THREE, iou_thres=0.9)[1][0]) == 4
    assert len(postprocess(IMAGES, output(NEAR), THREE, max_det=1)[1][0]) == 1


@pytest.mark.parametrize("form", ["array", "list", "nested", "float16"])
def test_the_first_output_is_read(form: str) -> None:
    made = output(NEAR)
    given: Any = {"array": made, "list": [made, -made], "nested": ([made, 3], 4), "float16": made.astype(np.float16)}
    _, preds = postprocess(IMAGES, given[form], THREE)
    np.testing.assert_allclose(preds[0], postprocess(IMAGES, made, THREE)[1][0], atol=1e-3)


@pytest.mark.torch
def test_tensors_assigned_into_the_engines_output() -> None:
    torch = pytest.importorskip("torch")
    wanted = postprocess(IMAGES, output(NEAR), THREE)[1][0]
    several, single = [output(NEAR), output([])], output(NEAR)
    for prec in (several, single):  # type: Any
        prec[0] = torch.from_numpy(prec[0])
        targets, preds = postprocess(torch.from_numpy(IMAGES), prec, THREE, torch.tensor([[0.0, 1, 0.5, 0.5, 1, 1]]))
        assert torch.equal(targets, torch.tensor([[0.0, 1, 32, 32, 64, 64]]))
        np.testing.assert_allclose(np.asarray(preds[0]), wanted)
        assert isinstance(preds[0], torch.Tensor)
        shapes = (((64, 64), ((1.0, 1.0), (0, 0))),)
        stats, seen = get_stats(IMAGES, preds, ["a"], shapes, [], targets, 10, torch.linspace(0.5, 0.95, 10), 0)
        assert (stats[0].correct.shape, seen) == ((3, 10), 1)


@pytest.mark.parametrize("kind", ["array", "image"])
def test_an_answer_is_in_pixels_of_the_image(kind: str) -> None:
    source: Any = np.zeros((64, 128, 3), np.uint8)  # lies in rows 16 to 48 of the input, at half its size
    source = source if kind == "array" else Image.fromarray(source)
    _, answer = postprocess(IMAGES, output(NEAR), THREE, source_image=source, conf_thres=0.1)
    assert str(answer) == "1: cat 0.90 at (30.0, 0.0, 50.0, 28.0)\n2: cow 0.30 at (72.0, 40.0, 88.0, 56.0)"
    assert answer[0]["label"] == "cat"
    assert answer[0]["box"] == pytest.approx([30, 0, 50, 28])
    assert str(postprocess(IMAGES, output([]), THREE, source_image=source)[1]) == "no object"


def test_coco_names_without_a_data_config() -> None:
    made = np.zeros((1, 84, 10), np.float32)
    made[0, :4, 0], made[0, 4 + 16, 0] = (20, 40, 8, 8), 0.9
    _, answer = detection.postprocess(IMAGES, made, source_image=np.zeros((64, 64)))
    assert [one["label"] for one in answer] == [NAMES[16]] == ["dog"]
    _, answer = detection.postprocess(IMAGES, output(NEAR), source_image=np.zeros((64, 64)))
    assert answer[0]["label"] == "0"


# ------------------------------------------------------------------------------------------------------ the metric

side = st.integers(4, 20)
box = st.tuples(st.integers(0, 40), st.integers(0, 40), side, side)


@st.composite
def scenes(draw: st.DrawFn) -> list[tuple[np.ndarray, np.ndarray]]:
    """Per image objects (class, box) and detections (box, score, class) in pixels of the input; scores differ."""
    order = iter(draw(st.permutations(range(1, 80))))
    made = []
    for _ in range(draw(st.integers(1, 4))):
        real = draw(st.lists(st.tuples(st.integers(0, 2), box), max_size=4))
        moved = [(c, tuple(edge + draw(st.integers(0, 2)) for edge in one)) for c, one in real]
        rows = moved + draw(st.lists(st.tuples(st.integers(0, 2), box), max_size=4))
        found = [(x, y, x + w, y + h, next(order) / 80, c) for c, (x, y, w, h) in rows]
        objects = [(c, x, y, x + w, y + h) for c, (x, y, w, h) in real]
        made.append((np.array(objects, float).reshape(-1, 5), np.array(found, float).reshape(-1, 6)))
    return made


@given(scenes())
@settings(max_examples=50)
def test_metric_equals_the_zoos(images: list[tuple[np.ndarray, np.ndarray]]) -> None:
    own = MeanAveragePrecision(("cat", "dog", "cow"))
    targets = []
    for number, (objects, found) in enumerate(images):
        real = np.clip((objects[:, 1:] - 8) * 2, 0, 80)  # the image of 80 x 80 lies at half its size, 8 from the edges
        seen = np.clip((found[:, :4] - 8) * 2, 0, 80)
        labels = objects[:, 0].astype(np.int64)
        right = Objects(real, labels, np.zeros(len(labels), bool), (), None, number)
        own.update([Detections(seen, found[:, 4], found[:, 5].astype(np.int64))], [right])
        middle, sides = (objects[:, 1:3] + objects[:, 3:]) / 2, objects[:, 3:] - objects[:, 1:3]
        targets.append(np.column_stack([np.full(len(objects), number), objects[:, :1], middle, sides]))
    shapes = [((80, 80), ((0.5, 0.5), (8, 8)))] * len(images)
    preds = [found for _, found in images]
    stats, seen_count = get_stats(IMAGES, preds, [""] * 4, shapes, [], np.concatenate(targets), 10, IOUV, 5)
    assert seen_count == 5 + len(images)
    if not any(len(objects) for objects, _ in images):
        with pytest.raises(DataError, match="images have no objects"):
            get_metrics(stats, THREE)
        return
    made = get_metrics(stats, THREE)
    assert made.map == pytest.approx(own.compute())
    assert made.map50 == pytest.approx(own.secondary()["mAP50"]) == pytest.approx(made.ap50.mean())
    assert (
        made.nt.tolist() == np.bincount(np.concatenate([o[:, 0] for o, _ in images]).astype(int), minlength=3).tolist()
    )
    np.testing.assert_allclose(made.r, made.tp / made.nt[made.nt > 0])
    assert (made.mp, made.mr) == (pytest.approx(made.p.mean()), pytest.approx(made.r.mean()))
    assert detection.get_metrics(stats).map == made.map


def test_subsets_of_the_ten_thresholds() -> None:
    target = np.array([[0, 1, 20, 20, 10, 10]])
    pred = np.array([[15, 15, 25, 23, 0.9, 1]])  # overlaps by 0.8
    shapes = [((64, 64), ((1, 1), (0, 0)))]
    stats, _ = get_stats(IMAGES, [pred], [""], shapes, [], target, 3, [0.5, 0.75, 0.9], 0)
    assert stats[0].correct.tolist() == [[True, True, False]]
    with pytest.raises(InputError, match="niou 2 and iouv"):
        get_stats(IMAGES, [pred], [""], shapes, [], target, 2, [0.5, 0.77], 0)
    with pytest.raises(InputError, match="0 predictions for 1"):
        get_stats(IMAGES, [], [""], shapes, [], target, 10, IOUV, 0)


# ------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((1, 10, 7), np.float32), "of 6 classes, .*data_config .* has 3"),
        (np.zeros((7, 10), np.float32), "pass floats N x"),
        (output([(20, 20, 10, 20, 7.0, -3.0, 0.0)]), "not probabilities; .*sigmoid"),
        ([], "outputs is empty"),
    ],
)
def test_invalid_outputs(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        postprocess(IMAGES, given, THREE)


def test_invalid_arguments() -> None:
    with pytest.raises(ConfigError, match="conf_thres 2"):
        postprocess(IMAGES, output(NEAR), THREE, conf_thres=2)
    with pytest.raises(InputError, match="targets are 1x5"):
        postprocess(IMAGES, output(NEAR), THREE, np.zeros((1, 5)))
    with pytest.raises(InputError, match="images are 3x64x64"):
        postprocess(IMAGES[0], output(NEAR), THREE)
    with pytest.raises(InputError, match=r"source_image .* for 2"):
        postprocess(IMAGES, np.repeat(output(NEAR), 2, axis=0), THREE, source_image=np.zeros((9, 9)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file"),
        ("names: [a, b\n", "is not YAML"),
        ("[1, 2]", "mapping"),
        ("nc: 4\nnames: [a, b, c]", "nc is 4 and there are 3 names"),
        ("names: 5", "write names, a list"),
    ],
)
def test_an_unreadable_data_config(text: str | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "coco.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(DataError, match=f"coco.yaml.*{message}"):
        postprocess(IMAGES, output(NEAR), file)
    with pytest.raises(DataError, match="data_config 5 is neither"):
        postprocess(IMAGES, output(NEAR), 5)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["names: [a, b, c]", "nc: 3\nnames: {0: a, 1: b, 2: c}", "nc: 3"])
def test_a_data_config_names_the_classes(text: str, tmp_path: Path) -> None:
    file = tmp_path / "coco.yaml"
    file.write_text(text)
    wanted = ["0", "1", "2"] if text == "nc: 3" else ["a", "b", "c"]
    assert list(yolov9m.names_of(str(file), 3)) == wanted
