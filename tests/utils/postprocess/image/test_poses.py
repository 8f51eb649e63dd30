"""Key points of rows: of objects, and of an image without any."""

from __future__ import annotations

import numpy as np
import pytest

from utils.postprocess.image.poses import poses_of_ends, poses_of_rows


@pytest.mark.parametrize("dims", [2, 3])
def test_an_image_without_objects(dims: int) -> None:
    rows = np.zeros((4 + 1 + 5 * dims, 7), np.float32)
    ends = np.zeros((7, 6 + 5 * dims), np.float32)
    for found in (poses_of_rows(rows, 1, 0.5, dims), poses_of_ends(ends, 0.5, dims)):
        assert found.boxes.shape == (0, 4)
        assert found.points.shape == (0, 5, 2)
        assert found.sure.shape == (0, 5)


def test_one_object() -> None:
    rows = np.zeros((4 + 1 + 6, 2), np.float32)
    rows[:, 1] = [10, 20, 4, 6, 0.9, 9, 19, 0.5, 11, 21, 0.25]
    found = poses_of_rows(rows, 1, 0.5, 3)
    assert found.boxes.tolist() == [[8, 17, 12, 23]]
    assert found.points.tolist() == [[[9, 19], [11, 21]]]
    assert found.sure.tolist() == [[0.5, 0.25]]
