"""Composed lines of digits: reproducible, from the sources of one part, with visible ink."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("skimage")

from utils.datasets.synthetic.digit_lines import CONTRAST, DIGITS, HEIGHTS, compose, training_batches
from utils.datasets.synthetic.digit_scenes import sources


def test_a_line_depends_only_on_seed_and_number():
    made_of = sources("val")
    for varied in (False, True):
        one, again, other = (compose(made_of, 5, number, varied=varied) for number in (3, 3, 4))
        assert one.text == again.text
        assert np.array_equal(one.image, again.image)
        assert one.image.shape != other.image.shape or not np.array_equal(one.image, other.image)


def test_sizes_and_lengths_are_in_range():
    made_of = sources("val")
    lines = [compose(made_of, 1, number) for number in range(40)]
    assert all(HEIGHTS[0] <= line.image.shape[0] <= HEIGHTS[1] for line in lines)
    assert {len(line.text) for line in lines} <= set(range(DIGITS[0], DIGITS[1] + 1))
    assert all(line.image.dtype == np.uint8 and np.ptp(line.image) > CONTRAST[0] / 2 for line in lines)


def test_training_batches_are_reproducible_with_new_lines():
    batches, again = training_batches(2, 3), training_batches(2, 3)
    first, second = next(batches), next(batches)
    assert [line.text for line in first] == [line.text for line in next(again)]
    assert not any(np.array_equal(a.image, b.image) for a, b in zip(first, second, strict=True))
