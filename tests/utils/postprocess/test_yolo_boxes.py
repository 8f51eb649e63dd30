"""Box functions of YOLO's scripts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from engine import ConfigError, InputError
from utils.postprocess.pytorch.yolo_pt import box_iou, scale_boxes, xywh2xyxy, xyxy2xywh
from utils.preprocess.image.letterbox import letterbox, to_input

Array = np.ndarray[Any, np.dtype[Any]]

BOXES = hnp.arrays(np.float64, st.tuples(st.integers(0, 6), st.just(4)), elements=st.floats(-500, 500))


def test_the_conversions() -> None:
    np.testing.assert_array_equal(xywh2xyxy([[5, 6, 2, 4, 0.5]]), [[4, 4, 6, 8, 0.5]])
    np.testing.assert_array_equal(xyxy2xywh(np.array([4.0, 4.0, 6.0, 8.0])), [5, 6, 2, 4])
    assert xywh2xyxy(np.ones((1, 4), np.float16)).dtype == np.float16
    assert xywh2xyxy(np.ones((2, 3, 4), int)).dtype == np.float32


@given(boxes=BOXES)
def test_roundtrip_of_conversions(boxes: Array) -> None:
    given_ = boxes.copy()
    np.testing.assert_allclose(xyxy2xywh(xywh2xyxy(boxes)), boxes, atol=1e-9)
    np.testing.assert_array_equal(boxes, given_)


def test_overlaps() -> None:
    one = np.array([[0, 0, 10, 10], [5, 5, 5, 5]], np.float32)
    two = np.array([[0, 0, 10, 10], [5, 0, 15, 10], [20, 20, 30, 30]], np.float32)
    found = box_iou(one, two)
    np.testing.assert_allclose(found, [[1, 1 / 3, 0], [0, 0, 0]], rtol=1e-6)
    assert found.dtype == np.float32
    assert box_iou(one[:0], two).shape == (0, 3)
    for wrong in (one[0], one[:, :3], np.ones((2, 5))):
        with pytest.raises(InputError, match="of shape"):
            box_iou(wrong, two)


@given(
    width=st.integers(1, 700),
    height=st.integers(1, 700),
    size=st.tuples(st.integers(1, 10), st.integers(1, 10)),
    shares=hnp.arrays(np.float64, (5, 4), elements=st.floats(0, 1)),
)
def test_scaling_undoes_the_letterbox(width: int, height: int, size: tuple[int, int], shares: Array) -> None:
    sides = (32 * size[0], 32 * size[1])
    boxes = np.sort(shares.reshape(5, 2, 2), axis=1).reshape(5, 4) * [width, height, width, height]
    geometry = letterbox(Image.new("RGB", (width, height)), sides)[1]
    inside = np.concatenate([to_input(boxes, geometry), np.ones((5, 1))], axis=1)
    back = scale_boxes(sides, inside, (height, width))
    assert back is inside
    np.testing.assert_allclose(back[:, :4], boxes, atol=1e-6)
    assert (back[:, 4] == 1).all()


def test_scaling_with_a_loaders_geometry() -> None:
    boxes = np.array([[12, 24, 32, 64], [-5, -5, 900, 900]], np.float32)
    scale_boxes((100, 100), boxes, (80, 45, 3), ((0.5, 2.0), (10, 20)))
    np.testing.assert_allclose(boxes, [[1, 8, 11, 80], [0, 0, 45, 80]])
    for wrong in ({"img0_shape": (5,)}, {"ratio_pad": ((0, 1), (0, 0))}, {"img0_shape": (0, 5)}):
        with pytest.raises(ConfigError):
            scale_boxes(**{"img1_shape": (100, 100), "boxes": boxes, "img0_shape": (80, 45), **wrong})
    with pytest.raises(InputError, match="boxes of shape"):
        scale_boxes((10, 10), np.zeros((2, 3)), (10, 10))


@pytest.mark.torch
def test_tensors_give_tensors() -> None:
    torch = pytest.importorskip("torch")
    boxes = torch.tensor([[5.0, 6.0, 2.0, 4.0], [50.0, 60.0, 20.0, 40.0]])
    corners = xywh2xyxy(boxes)
    assert torch.equal(xyxy2xywh(corners), boxes)
    assert isinstance(box_iou(corners, np.asarray(corners)), torch.Tensor)
    assert isinstance(box_iou(np.asarray(corners), corners), torch.Tensor)
    rows = torch.cat([corners, torch.ones(2, 2)], 1)
    part = rows[:, :4]
    assert scale_boxes((100, 100), part, (50, 50)) is part
    assert rows[0].tolist() == [2, 2, 3, 4, 1, 1]  # in place
    assert box_iou(corners.double(), corners.double()).dtype == torch.float64
