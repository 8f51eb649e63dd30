"""YOLO's historical postprocessing: layouts, candidates, suppression, and results for display."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings, strategies as st
from support import SaveOnnx

from engine import ConfigError, InputError
from utils.postprocess.pytorch.yolo_pt import CLASSES, CLASSES_ANIMAL, postprocess, xywh2xyxy
from utils.torch_array import TorchArray

Array = np.ndarray[Any, np.dtype[Any]]


def rows(seed: int, count: int, classes: int, masks: int = 0, images: int = 1) -> Array:
    """Return boxes in YOLOv5's layout that often overlap; scores are multiples of 1/64, so that some are equal."""
    random = np.random.default_rng(seed)
    made = np.empty((images, count, 5 + classes + masks), np.float32)
    made[..., :2] = random.integers(20, 60, (images, count, 2))
    made[..., 2:4] = random.integers(4, 40, (images, count, 2))
    made[..., 4:] = random.integers(0, 65, (images, count, 1 + classes + masks)) / 64
    return made


def iou(one: Array, two: Array) -> float:
    sides = np.minimum(one[2:], two[2:]) - np.maximum(one[:2], two[:2])
    common = float(np.prod(np.maximum(sides, 0)))
    return common / (float(np.prod(one[2:] - one[:2]) + np.prod(two[2:] - two[:2])) - common)


def reference(
    one: Array, conf: float, iou_thres: float, *, agnostic: bool, multi: bool, classes: list[int] | None, max_det: int
) -> list[list[float]]:
    """Suppress pair by pair, by the definition."""
    waiting = []
    for row in one.astype(np.float64):
        scores = row[5:] * row[4]
        corners = np.array([row[0] - row[2] / 2, row[1] - row[3] / 2, row[0] + row[2] / 2, row[1] + row[3] / 2])
        labels = range(len(scores)) if multi else [int(scores.argmax())]
        waiting += [
            (scores[label], label, corners)
            for label in labels
            if scores[label] > conf and (classes is None or label in classes)
        ]
    waiting.sort(key=lambda pair: -pair[0])
    stay: list[tuple[float, int, Array]] = []
    for score, label, corners in waiting:
        beaten = any((agnostic or other == label) and iou(corners, box) > iou_thres for _, other, box in stay)
        if not beaten and len(stay) < max_det:
            stay.append((score, label, corners))
    return [[*corners, score, label] for score, label, corners in stay]


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(100, 150),
    classes=st.integers(2, 4),
    conf=st.sampled_from([0.0, 0.1, 0.25, 0.5]),
    # no overlap of such boxes equals this, so rounding has no effect
    iou_thres=st.sampled_from([0.3001, 0.4501, 0.6503]),
    agnostic=st.booleans(),
    multi=st.booleans(),
    wanted=st.sampled_from([None, [0], [1, 3]]),
    max_det=st.sampled_from([0, 3, 300]),
)
def test_selection_equals_a_reference(
    seed: int,
    count: int,
    classes: int,
    conf: float,
    iou_thres: float,
    agnostic: bool,
    multi: bool,
    wanted: list[int] | None,
    max_det: int,
) -> None:
    made = rows(seed, count, classes)
    (found,) = postprocess(
        made, 1, conf, iou_thres, classes=wanted, agnostic=agnostic, multi_label=multi, max_det=max_det
    )
    right = reference(made[0], conf, iou_thres, agnostic=agnostic, multi=multi, classes=wanted, max_det=max_det)
    np.testing.assert_allclose(found, np.array(right).reshape(-1, 6), atol=1e-4)
    # the same boxes without an object score, in columns
    plain = np.concatenate([made[..., :4], made[..., 4:5] * made[..., 5:]], axis=2).transpose(0, 2, 1)
    (again,) = postprocess(
        plain, 1, conf, iou_thres, classes=wanted, agnostic=agnostic, multi_label=multi, max_det=max_det
    )
    np.testing.assert_array_equal(again, found)


@pytest.mark.slow
@pytest.mark.torch
def test_selection_equals_torchvision() -> None:
    torch = pytest.importorskip("torch")
    from utils.export.networks.torchvision_models import import_torchvision

    import_torchvision()
    from torchvision.ops import batched_nms

    try:
        batched_nms(torch.zeros(1, 4), torch.zeros(1), torch.zeros(1), 0.5)
    except (NotImplementedError, RuntimeError) as error:
        pytest.skip(f"torchvision's own suppression does not run here: {str(error)[:60]}")
    for seed in range(5):
        made = rows(seed, 500, 5)
        made[..., 4:] += np.random.default_rng(seed).random(made[..., 4:].shape, np.float32) / 64  # no equal scores
        one = torch.from_numpy(made[0])
        scores, labels = (one[:, 5:] * one[:, 4:5]).max(1)
        boxes = torch.from_numpy(np.asarray(xywh2xyxy(made[0, :, :4])))
        likely = scores > 0.1
        boxes, scores, labels = boxes[likely], scores[likely], labels[likely]
        kept = batched_nms(boxes, scores, labels, 0.4503)
        wanted = torch.cat([boxes[kept], scores[kept, None], labels[kept, None]], 1)
        (found,) = postprocess(made, 1, 0.1, 0.4503)
        np.testing.assert_allclose(found, wanted.numpy(), atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_selection_equals_onnxruntime(seed: int, save_onnx: SaveOnnx) -> None:
    """ONNX's operator suppresses within each class, with every class of a box."""
    path = save_onnx(
        """nms (float[1, A, 4] boxes, float[1, C, A] scores) => (int64[N, 3] kept)
        <int64 most = {1000}, float overlap = {0.4503}, float least = {0.1}> {
            kept = NonMaxSuppression <center_point_box = 1> (boxes, scores, most, overlap, least)
        }"""
    )
    made = rows(seed, 300, 4)
    scores = (made[..., 4:5] * made[..., 5:]).transpose(0, 2, 1)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (kept,) = session.run(None, {"boxes": made[..., :4], "scores": np.ascontiguousarray(scores)})
    (found,) = postprocess(made, 1, 0.1, 0.4503, multi_label=True, max_det=1000)
    corners = np.asarray(xywh2xyxy(made[0, :, :4]))
    wanted = sorted((*corners[box].tolist(), scores[0, label, box].item(), label) for _, label, box in kept.tolist())
    np.testing.assert_allclose(np.array(sorted(map(tuple, found.tolist()))), np.array(wanted), atol=1e-5)
    assert (np.diff(found[:, 4]) <= 0).all()


def test_arrays_give_arrays() -> None:
    found = postprocess(rows(0, 20, 3, images=3), 2)
    assert [type(one) for one in found] == [TorchArray, TorchArray]
    assert all(one.dtype == np.float32 and one.shape[1] == 6 for one in found)
    assert isinstance(found[0].clone(), np.ndarray)


@pytest.mark.torch
def test_tensors_give_tensors() -> None:
    torch = pytest.importorskip("torch")
    made = rows(0, 20, 3, images=2)
    for given_ in (
        torch.from_numpy(made),
        [torch.from_numpy(made), "feature maps"],
        (torch.from_numpy(made).double(),),
    ):
        found = postprocess(given_, 2)
        assert all(isinstance(one, torch.Tensor) for one in found)
        for one, other in zip(found, postprocess(made, 2), strict=True):
            np.testing.assert_allclose(one.numpy(), other)
    assert [len(one) for one in postprocess(torch.from_numpy(made).half(), 1)] == [len(postprocess(made, 1)[0])]


def test_padding_is_dropped() -> None:
    made = rows(1, 30, 3, images=4)
    assert len(postprocess(made, 3)) == 3
    assert len(postprocess(made, (2, 3, 64, 64))) == 2
    assert len(postprocess(made, None)) == 4
    assert len(postprocess(made, np.int64(1))) == 1
    assert postprocess(made, 0) == []
    assert len(postprocess(made[0], 1)) == 1
    with pytest.raises(InputError, match=r"padding_shape is 5 .*for 4"):
        postprocess(made, 5)
    with pytest.raises(InputError, match="padding_shape 'two' is not a number"):
        postprocess(made, "two")


def test_mask_coefficients_go_with_their_boxes() -> None:
    made = rows(2, 40, 3, masks=4)
    made[..., -4] = np.arange(40)  # each row's own number
    (found,) = postprocess(made, 1, nm=4)
    assert found.shape[1] == 10
    assert len(found) > 3
    for row in found:
        source = made[0, int(row[6])]
        np.testing.assert_allclose(row[:4], xywh2xyxy(source[:4]), atol=1e-4)
        np.testing.assert_allclose(row[6:], source[-4:])
        assert row[4] == pytest.approx(source[4] * source[5 + int(row[5])])
    columns = np.delete(made, 4, axis=2).transpose(0, 2, 1)
    assert postprocess(columns, 1, nm=4)[0].shape[1] == 10


def test_known_objects() -> None:
    made = rows(3, 120, 3)
    known = np.array([[2, 200, 210, 10, 20], [0, 40, 40, 8, 8]], np.float32)
    for prediction in (made, np.delete(made, 4, axis=2).transpose(0, 2, 1)):
        (found,) = postprocess(prediction, 1, labels=[known], multi_label=True)
        assert found[:2, 4].tolist() == [1, 1]
        assert [195, 200, 205, 220, 1, 2] in found.tolist()
    for wrong, message in (([known, known], "labels are for 2 images"), ([known[:, :4]], "are not objects")):
        with pytest.raises(InputError, match=message):
            postprocess(made, 1, labels=wrong)
    with pytest.raises(InputError, match=r"class 7; .*3 classes"):
        postprocess(made, 1, labels=[[[7, 1, 1, 1, 1]]])


def test_only_the_best_pairs_take_part() -> None:
    made = rows(4, 50, 3)
    (every,), (some,) = postprocess(made, 1, 0.01, 1.0), postprocess(made, 1, 0.01, 1.0, max_nms=7)
    assert len(every) > 7
    np.testing.assert_array_equal(some, every[:7])


def test_final_rows_are_not_suppressed() -> None:
    """YOLOv10's layout: corners, score, class."""
    answers = np.zeros((2, 300, 6), np.float32)
    answers[0, :3] = [[5, 5, 20, 20, 0.9, 0], [5, 5, 20, 21, 0.8, 0], [0, 0, 9, 9, 0.1, 1]]
    first, second = postprocess(answers, 2)
    np.testing.assert_array_equal(first, answers[0, :2])
    assert second.shape == (0, 6)
    assert postprocess(answers, 2, 0.05, classes=[1])[0][:, 5].tolist() == [1]
    assert postprocess(answers, 2, 0.05, classes=1)[0][:, 5].tolist() == [1]
    assert postprocess(answers, 2, 0.05, classes=[])[0].shape == (0, 6)
    with pytest.raises(InputError, match=r"0 shapes; .*image0_shapes"):
        postprocess(answers, 2, 0.05, image=np.zeros((2, 3, 64, 64)), image0_shapes=None)  # type: ignore[arg-type]
    # a model of one class gives six numbers too; its classes are scores
    (scored,) = postprocess(rows(5, 300, 1), 1, max_det=300)
    assert 0 < len(scored) < 300
    for count in (1, 20, 6300):  # nor are these final rows
        few = np.zeros((1, count, 6), np.float32)
        few[0, 0] = [50, 50, 100, 100, 0.9, 1]
        np.testing.assert_allclose(postprocess(few, 1)[0], [[0, 0, 100, 100, 0.9, 0]])


def test_the_number_of_names_distinguishes_layouts_of_few_boxes() -> None:
    few = rows(6, 12, 80)
    assert len(postprocess(few, 1)[0])
    np.testing.assert_array_equal(postprocess(few, 1)[0], postprocess(few, 1, class_name=["a"] * 5)[0])
    plain = np.concatenate([few[..., :4], few[..., 4:5] * few[..., 5:]], axis=2).transpose(0, 2, 1)  # 84 x 12
    np.testing.assert_array_equal(postprocess(plain, 1)[0], postprocess(few, 1)[0])
    assert postprocess(few[:, :3, :7], 1)[0].shape[1] == 6  # three boxes of two classes
    small = few[..., :8]  # 12 boxes of three classes; as columns, 7 x 12, by their scores alone
    plain = np.concatenate([small[..., :4], small[..., 4:5] * small[..., 5:]], axis=2).transpose(0, 2, 1)
    np.testing.assert_array_equal(postprocess(plain, 1)[0], postprocess(small, 1)[0])


def test_confidences_above_one_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    made = rows(8, 120, 3)
    made[..., 5:] *= 30
    assert postprocess(made, 1)[0][0, 4] > 1
    assert "not probabilities" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 3, 20, 20, 85), "export the model with its decoding inside"),
        ((1, 100, 5), "has 5 numbers for each box"),
        ((1, 4, 200), "has 4 numbers for each box"),
        ((100,), "is neither N x A x"),
    ],
)
def test_unknown_layouts(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        postprocess(np.zeros(shape, np.float32), 1)


def test_arguments_out_of_range_are_refused() -> None:
    with pytest.raises(InputError, match="outputs is empty"):
        postprocess([], 1)
    for wrong in ({"conf_thres": 1.5}, {"iou_thres": -0.1}, {"max_det": -1}, {"nm": -1}, {"max_nms": -1}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            postprocess(rows(0, 20, 3), 1, **wrong)


def test_nan_scores_are_dropped_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    made = rows(7, 30, 3)
    made[0, :4, 4], made[0, 4, 0] = np.nan, np.nan
    made[0, 5, 5:] = np.nan
    (found,) = postprocess(made, 1, 0.01, 1.0)
    assert len(found)
    assert not np.isnan(found).any()
    assert capsys.readouterr().err == "4 of 30 boxes have NaN scores and are left out\n"
    answers = np.tile(np.float32([5, 5, 20, 20, 0.9, 2]), (1, 300, 1))
    answers[0, :2, 4], answers[0, 2, 0] = np.nan, np.nan
    assert len(postprocess(answers, 1)[0]) == 297
    assert capsys.readouterr().err == "2 of 300 boxes have NaN scores and are left out\n"


def shown(names: Any = CLASSES) -> Any:
    """Return answers for two images of 200 x 100 and 50 x 50 pixels in an input of 64 x 64."""
    prediction = np.zeros((4, 40, 9), np.float32)
    prediction[0, 0] = [32, 32, 16, 8, 1, 0, 0.9, 0, 0]
    prediction[0, 1] = [10, 32, 4, 4, 0.9, 0, 0.9, 0, 0]
    prediction[0, 2] = [32, 32, 100, 100, 0.8, 0, 0, 0, 0.9]
    image = np.zeros((4, 3, 64, 64), np.float32)
    return postprocess(prediction, 2, image=image, image0_shapes=[(100, 200), (50, 50)], class_name=names)


def test_display_boxes_are_in_pixels_of_the_image() -> None:
    first, second = shown()
    assert second == {}
    assert list(first) == ["bicycle", "motorcycle"]
    assert first["bicycle"][0] == pytest.approx([75, 37.5, 125, 62.5])
    assert first["motorcycle"] == [[0, 0, 200, 100]]  # clipped to the image
    assert list(shown(None)[0]) == ["1", "3"]
    assert list(shown({1: "one", 3: "three"})[0]) == ["one", "three"]


def test_a_class_without_a_name_shows_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(shown(["a", "b"])[0]) == ["b", "3"]
    assert "class 3 has no name: class_name has 2 of them" in capsys.readouterr().err


def test_no_detections_are_an_empty_list() -> None:
    image = np.zeros((2, 3, 64, 64))
    none = np.zeros((2, 40, 9), np.float32)
    assert postprocess(none, 2, image=image, image0_shapes=[(9, 9), (9, 9)]) == []
    with pytest.raises(InputError, match=r"0 shapes; .*image0_shapes"):
        postprocess(none, 2, image=image)


def test_the_names() -> None:
    assert (len(CLASSES), CLASSES[0], CLASSES[79]) == (80, "person", "toothbrush")
    assert (len(CLASSES_ANIMAL), CLASSES_ANIMAL[0], CLASSES_ANIMAL[9]) == (10, "bird", "giraffe")
