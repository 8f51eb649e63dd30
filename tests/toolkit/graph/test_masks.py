"""Masked tensors of a graph, and their bounds from the baseline's values."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from toolkit.graph.masks import FAR, Masks, masks_of

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
FACE = "g (bool[4] keep, float[4] m, float[3, 4] s) => (float[3, 4] y)"
CONSTANTS = (
    "<float zero = {0.0}, float low = {-3.4e38}, float high = {3.4e38}, int64[1] axis = {0}, float by = {0.125}>"
)
SOFTMAX = "p = Softmax <axis = -1> (x) y = Mul(p, s)"


def found(body: str, face: str = FACE) -> Masks:
    return masks_of(onnx.parser.parse_model(f"{HEAD} {face} {CONSTANTS} {{ {body} }}"))


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (f"b = Where(keep, zero, low) x = Add(s, b) {SOFTMAX}", "b x low"),
        (f"x = Where(keep, s, low) {SOFTMAX}", "x low"),
        (f"x = Mul(s, low) {SOFTMAX}", "x"),
        (f"b = Where(keep, zero, low) u = Unsqueeze(b, axis) e = Identity(u) x = Add(e, s) {SOFTMAX}", "b u e x"),
        (
            f"b = Where(keep, zero, low) c = Cast <to = 1> (b) d = Concat <axis = 0> (c) x = Add(d, s) {SOFTMAX}",
            "b c d",
        ),
        (f"b = Where(keep, zero, low) t = Trilu <upper = 1> (s) x = Sum(b, t) {SOFTMAX}", "b t x"),
        (f"b = Where(keep, zero, low) c = Max(b, low) d = Min(c, zero) x = Add(d, s) {SOFTMAX}", "b c d"),
        (f"b = Where(keep, zero, low) t = Add(s, b) x = Mul(t, by) {SOFTMAX}", "b t x"),
        (f"b = Where(keep, zero, low) t = Add(s, b) r = Sqrt(m) x = Div(t, r) {SOFTMAX}", "b t x"),
        ("b = Where(keep, s, low) p = Sigmoid(b) y = Mul(p, s)", "b"),
        ("b = Where(keep, s, low) r = ReduceMax <keepdims = 1> (b) d = Sub(b, r) e = Exp(d) y = Mul(e, s)", "b d"),
        ("b = Where(keep, s, low) r = ReduceMax <keepdims = 1> (b) y = Add(r, s)", "b"),
        ("b = Where(keep, s, low) i = ArgMax <axis = -1> (b) f = Cast <to = 1> (i) y = Add(f, s)", "b"),
        (f"b = Where(keep, zero, low) e = Equal(b, zero) t = Where(e, s, low) x = Add(t, b) {SOFTMAX}", "b t x"),
    ],
)
def test_mask_before_softmax(body: str, names: str) -> None:
    masks = found(body).found
    assert masks.keys() >= set(names.split())
    assert {masks[name].sign for name in names.split()} == {-1}


def test_negation_changes_sign() -> None:
    masks = found(f"b = Where(keep, zero, high) x = Sub(s, b) {SOFTMAX}").found
    assert (masks["b"].sign, masks["high"].sign, masks["x"].sign) == (1, 1, -1)
    masks = found(f"b = Where(keep, zero, high) n = Neg(b) x = Add(s, n) {SOFTMAX}").found
    assert (masks["b"].sign, masks["n"].sign) == (1, -1)
    assert found(f"b = Where(keep, zero, high) n = Neg(b) t = Add(b, n) x = Add(s, t) {SOFTMAX}").found.keys() >= {"t"}
    assert "b" not in found(f"b = Where(keep, zero, high) n = Neg(b) t = Add(b, n) x = Add(s, t) {SOFTMAX}").found


@pytest.mark.parametrize(
    "body",
    [
        "b = Where(keep, s, low) y = LogSoftmax <axis = -1> (b)",  # it makes minus infinity of it
        "b = Where(keep, s, low) p = Softmax <axis = -1> (b) y = Mul(p, b)",  # used elsewhere
        "b = Where(keep, s, low) r = ReduceMean <keepdims = 1> (b) p = Sigmoid(r) y = Mul(p, s)",
        f"b = Where(keep, s, low) x = Mul(b, s) {SOFTMAX}",  # may become anything
        "b = Where(keep, s, low) i = IsInf(b) y = Where(i, s, zero)",
    ],
)
def test_other_reader_excludes_mask(body: str) -> None:
    assert "b" not in found(body).found


def test_output_is_not_a_mask() -> None:
    masks = found(
        "b = Where(keep, s, low) p = Softmax <axis = -1> (b) y = Mul(p, s)",
        "g (bool[4] keep, float[4] m, float[3, 4] s) => (float[3, 4] y, float[3, 4] b)",
    )
    assert "b" not in masks.found


def test_body_reader_excludes_mask() -> None:
    masks = found(
        "b = Where(keep, s, low) p = Softmax <axis = -1> (b) c = Greater(zero, zero) "
        "q = If (c) <then_branch = t () => (float[3, 4] u) { u = Neg(b) }, else_branch = e () => (float[3, 4] v) "
        "{ v = Neg(p) }> y = Add(p, q)"
    )
    assert "b" not in masks.found


def test_scale_raises_bound() -> None:
    masks = found(f"b = Where(keep, s, low) x = Mul(b, by) {SOFTMAX}").found
    assert (masks["x"].least, masks["b"].least) == (FAR, 8 * FAR)


def test_masked_elements_are_infinite_in_both() -> None:
    masks = found(f"x = Where(keep, s, low) {SOFTMAX}")
    reference, value = np.float32([-3.4e38, -3.4e38, 1, -3.4e38, 7e4]), np.float32([-np.inf, -5, 1, np.nan, np.inf])
    assert masks.found["x"].covers(reference, value).tolist() == [True, False, False, False, False]


def test_relevant_elements_are_not_masked() -> None:
    """Scores of -70000 in a row of larger ones become minus infinity in float16, and the softmax differs."""
    masks = found(f"x = Where(keep, s, low) {SOFTMAX}")
    x = np.float32([[-7e4, -7e4, -3.4e38], [-7e4, 0, -9e4]])
    masks.see({"x": x, "p": np.float32([[0.5, 0.5, 0], [0, 1, 0]])})
    mask = masks.of("x", x)
    assert mask is not None
    assert mask.covers(x).tolist() == [[False, False, True], [False, False, False]]
    assert masks.of("x", x[:, :2]) is None


def test_fully_masked_row_disables_mask() -> None:
    body = f"x = Where(keep, s, low) {SOFTMAX}"
    rows = {"one": np.float32([[-3.4e38, 0], [1, -3.4e38]]), "whole": np.float32([[-3.4e38, -3.4e38], [0, 1]])}
    for name, x in rows.items():
        powers = np.exp(x - x.max(axis=1, keepdims=True))
        masks = found(body)
        assert masks.of("x", x) is None  # no run was seen
        masks.see({"x": x, "p": powers / powers.sum(axis=1, keepdims=True)})
        assert (masks.of("x", x) is not None) == (name == "one")
        masks.forget()
        assert masks.of("x", x) is None
        assert Masks.read(masks.stored()).found == masks.found


def test_attention_mask() -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 23]> g (bool[1, 1, 2, 2] keep, float[1, 1, 2, 4] q) => '
        "(float[1, 1, 2, 4] y) <float zero = {0.0}, float low = {-3.4e38}> "
        "{ b = Where(keep, zero, low) y = Attention(q, q, q, b) }"
    )
    for row, harmless in (([0, -3.4e38], True), ([-3.4e38, -3.4e38], False)):
        masks = masks_of(onnx.parser.parse_model(text))
        b = np.float32([[[row, [0, 0]]]])
        masks.see({"b": b, "y": np.zeros((1, 1, 2, 4), np.float32)})
        assert (masks.of("b", b) is not None) == harmless
