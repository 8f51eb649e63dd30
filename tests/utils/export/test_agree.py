"""Relative error of a file to its source model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from utils.export.agree import relative_error


class TestRelativeError:
    @pytest.mark.parametrize(
        ("got", "wanted", "error"),
        [
            ([1.0, 2.0], [1.0, 2.0], 0.0),
            ([1.0, 2.5], [1.0, 2.0], 0.25),
            ([0.0], [0.0], 0.0),
            ([1e-9], [0.0], np.inf),
            ([np.inf, np.nan, 1.0], [np.inf, np.nan, 2.0], 0.5),
            ([np.inf], [1.0], np.inf),
            ([1.0], [np.inf], np.inf),
            ([np.nan], [1.0], np.inf),
            ([1.0], [np.nan], np.inf),
            ([np.inf], [-np.inf], np.inf),
            ([], [], 0.0),
        ],
    )
    def test_formula(self, got: list[float], wanted: list[float], error: float) -> None:
        assert relative_error([np.array(got)], [np.array(wanted)]) == error

    def test_maximum_over_the_outputs(self) -> None:
        one = np.ones(2, np.float32)
        assert relative_error([one, one * 3], [one, one * 2]) == 0.5

    def test_other_shapes_or_outputs_are_infinite(self) -> None:
        assert relative_error([np.ones((2, 1))], [np.ones(2)]) == np.inf
        assert relative_error([], [np.ones(2)]) == np.inf

    @given(hnp.arrays(np.float32, st.integers(1, 20), elements=st.floats(-1e6, 1e6, width=32)), st.floats(0, 10))
    def test_scaling_everything_by_1_plus_e_gives_e(self, wanted: np.ndarray, error: float) -> None:
        wanted = wanted.astype(np.float64)
        found = relative_error([wanted * (1 + error)], [wanted])
        assert found == pytest.approx(error if wanted.any() else 0.0, rel=1e-9, abs=1e-12)
