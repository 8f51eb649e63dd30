"""Dynamic axes, and the inputs that a dynamic file is checked on."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from small_models import X, linear

from engine import ConfigError
from utils.export.dynamic import check_dynamic, dynamic_axes, dynamic_inputs


class TestDynamicInputs:
    def test_batch_and_other_axes_are_tried(self) -> None:
        image, mask = np.arange(2 * 3 * 4).reshape(2, 3, 4), np.arange(2)
        tried = dynamic_inputs([image, mask], [{0: "batch", 2: "width"}, {0: "batch"}])
        assert [[x.shape for x in case] for case in tried] == [
            [(2, 3, 4), (2,)],
            [(5, 3, 4), (5,)],
            [(2, 3, 8), (2,)],
        ]

    def test_axes_with_one_name_grow_alike(self) -> None:
        tried = dynamic_inputs([np.zeros((2, 5)), np.zeros((5, 2))], [{0: "n"}, {1: "n"}])
        assert [x.shape for x in tried[1]] == [(5, 5), (5, 5)]

    def test_masks_are_not_reversed(self) -> None:
        """Causal models are undefined for padding in front."""
        ids, mask = np.array([[5, 6, 7]]), np.array([[1, 1, 0]])
        _, batch, longer = dynamic_inputs([ids, mask], [{0: "batch", 1: "seq"}] * 2)
        assert [x.tolist() for x in batch] == [[[5, 6, 7], [7, 6, 5], [5, 6, 7]], [[1, 1, 0]] * 3]
        assert [x.tolist() for x in longer] == [[[5, 6, 7, 7, 6, 5]], [[1, 1, 0, 0, 1, 1]]]

    def test_scalars_stay_scalars(self) -> None:
        x, scale = dynamic_inputs([np.zeros((2, 3)), np.float32(2)], [{0: "batch"}, {}])[1]
        assert (x.shape, scale.shape) == ((5, 3), ())

    def test_inputs_without_dynamic_axes(self) -> None:
        assert len(dynamic_inputs([X], [{}])) == 1

    @given(hnp.arrays(np.int64, hnp.array_shapes(min_dims=1, max_dims=3, max_side=4), elements=st.integers(-9, 9)))
    def test_new_samples_have_only_values_of_the_example(self, x: np.ndarray) -> None:
        grown = dynamic_inputs([x], [{0: "batch"}])[1][0]
        assert grown.shape == (2 * len(x) + 1, *x.shape[1:])
        assert grown.dtype == x.dtype
        assert set(grown.ravel()) <= set(x.ravel())
        np.testing.assert_array_equal(grown[: len(x)], x)

    def test_axes_default_to_the_batch(self) -> None:
        assert dynamic_axes([X, np.float32(1)], ["x", "s"], ["y"], None) == [{0: "batch"}, {}]

    @pytest.mark.parametrize(
        ("names", "dynamic", "message"),
        [
            (["x", "y"], None, "1 example inputs and 2 input_names"),
            (["x"], {"z": {0: "batch"}}, r"dynamic names \['z'\]"),
            (["x"], {"x": {2: "width"}}, "axes 0 to 1"),
            (["x"], {"x": {-1: "width"}}, "axes 0 to 1"),
        ],
    )
    def test_invalid_axes_raise(self, names: list[str], dynamic: dict[str, dict[int, str]], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            dynamic_axes([X], names, ["output"], dynamic)

    def test_constant_axis_is_reported(self) -> None:
        model = linear()
        assert check_dynamic(model, [{0: "batch"}]) is model
        error = check_dynamic(model, [{0: "batch", 1: "width"}])
        assert str(error).startswith("axis 1 of input 'input' became the constant 3 ")

    def test_one_name_has_one_size(self) -> None:
        ids, mask, other = np.zeros((2, 5)), np.zeros((2, 5)), np.zeros((2, 7))
        axes = {name: {0: "batch", 1: "seq"} for name in ("ids", "mask")}
        assert dynamic_axes([ids, mask], ["ids", "mask"], [], axes) == list(axes.values())
        with pytest.raises(ConfigError) as caught:
            dynamic_axes([ids, other], ["ids", "mask"], [], axes)
        assert re.search(r"'seq'.* 5 .*axis 1 .*'ids'.* 7 .*axis 1 .*'mask'", str(caught.value))
        with pytest.raises(ConfigError, match=r"'batch'.* 2 .*axis 0 .*'x'.* 3 .*axis 0 .*'s'"):
            dynamic_axes([np.zeros(2), np.zeros(3)], ["x", "s"], [], None)


def test_row_indices_stay_in_their_column() -> None:
    example = np.array([[1, 20, 300], [2, 10, 100]])
    (_, grown) = dynamic_inputs([example], [{0: "batch"}])
    assert grown[0].tolist() == [[1, 20, 300], [2, 10, 100], [2, 10, 100], [1, 20, 300], [1, 20, 300]]
    (_, tokens, _) = dynamic_inputs([example], [{0: "batch", 1: "length"}])
    assert tokens[0].tolist()[2] == [100, 10, 2]
