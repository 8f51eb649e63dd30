from __future__ import annotations

import numpy as np
import pytest

from engine import InputError
from engine.random_arrays import MOST, random_array


def test_numbers_are_seeded_and_of_their_dtype() -> None:
    first, second = (random_array(np.random.default_rng(0), (2, 3), np.dtype("float16")) for _ in range(2))
    assert first.dtype == np.float16
    np.testing.assert_array_equal(first, second)
    assert set(random_array(np.random.default_rng(0), (50,), np.dtype("int64")).tolist()) == {0, 1}


@pytest.mark.parametrize("lean", [False, True])
def test_too_many_elements_are_refused_at_once(lean: bool) -> None:
    shape = (1, 4 * MOST + 1)
    with pytest.raises(InputError, match=r"shape 1x2147483649 has 2147483649 elements"):
        random_array(np.random.default_rng(0), shape, np.dtype("float32"), lean=lean)
