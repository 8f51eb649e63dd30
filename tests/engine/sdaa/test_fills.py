"""A mask of float32's lowest value stays finite in float16, as in PyTorch; overflows do not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from engine.backends import HostSession
from engine.sdaa import float16_storage

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\ng (bool[2,3] m, float[2,3] x) => (float[2,3] y) '
MASK = np.array([[True, False, False], [False, False, False]])
X = np.array([[1, 2, 3], [1, 2, 3]], np.float16)

FORMS = {
    "initialiser": "<float f = {-3.4028235e38}> { s = Where(m, x, f) y = Softmax<axis=1>(s) }",
    "node": "{ f = Constant<value = float {-3.4028235e38}>() s = Where(m, x, f) y = Softmax<axis=1>(s) }",
    "added": "<float f = {-3.4028235e38}, float z = {0}> { w = Where(m, z, f) s = Add(x, w) y = Softmax<axis=1>(s) }",
}


def on_card(text: str) -> np.ndarray:
    model = float16_storage(onnx.parser.parse_model(HEAD + text))
    return np.asarray(HostSession(model).run([MASK, X])[0])


@pytest.mark.parametrize("form", FORMS)
def test_a_fully_masked_row_is_not_nan(form: str) -> None:
    found = on_card(FORMS[form])
    assert np.array_equal(found[0], [1, 0, 0])
    assert np.allclose(found[1].sum(), 1, atol=1e-3)  # was NaN


def test_infinities_in_the_file_are_kept() -> None:
    filled = on_card("{ f = Constant<value = float {-inf}>() y = Where(m, x, f) }")
    assert np.array_equal(filled == -np.inf, ~MASK)


def test_computed_numbers_overflow() -> None:
    found = on_card("<float[1,3] f = {3e38, 3e38, 3e38}> { y = Add(x, f) }")
    assert np.isposinf(found).all()
