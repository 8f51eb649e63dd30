"""Order of the search: overflowing nodes, isolated errors, and the resulting order."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from engine import Array, TensorSpec
from model_config.results import Accuracy, Verdict
from toolkit.fix.array_samples import ArraySamples
from toolkit.fix.columns import Columns
from toolkit.fix.guide import LARGEST, overflowing, peaks, ranked
from toolkit.fix.isolated import isolated_errors
from toolkit.fix.records import Feed, Outputs, RawMeasure, metric_named
from toolkit.fix.trials import Trial, Trials
from toolkit.fix.wide import float32_form
from toolkit.graph.nodes import Node, nodes_of


def model_of(text: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')


def parts(x: Array, size: int) -> list[Feed]:
    return [Feed([x[i : i + size]], None, ["s"] * len(x[i : i + size])) for i in range(0, len(x), size)]


def over(model: onnx.ModelProto, x: Array, keep: Sequence[str] = ()) -> set[str]:
    largest = peaks(model, parts(x, 2), 2)
    return overflowing(model, nodes_of(model), largest, lambda node: node.name in keep)


def test_order_is_overflow_then_error_then_unknown() -> None:
    nodes = [Node(i, name, "Add", (), (), "") for i, name in enumerate("abcdef")]
    errors = {"b": 0.1, "c": 0.3, "d": 0.3, "e": math.inf, "f": 0.2}
    assert ranked(nodes, errors, ["f", "b"]) == ["f", "b", "e", "c", "d", "a"]


def test_peaks_over_whole_data_set() -> None:
    model = model_of("g (float[N,1] x) => (float[N,1] y) { z = Neg(x)  y = Log(z) }")
    found = peaks(model, parts(np.float32([[-3], [-7], [0], [-2], [-1]]), 2), 2)
    assert found == {"z": 7.0, "y": pytest.approx(math.log(7))}  # Log(0) is excluded


SCALED = "g (float[N,2] x) => (float[N,2] y) <float[2] k = {0.5, 0.5}> { [up] z = Add(x, x) [down] y = Mul(z, k) }"


@pytest.mark.parametrize(("value", "found"), [(LARGEST / 2, set()), (LARGEST / 2 + 1, {"up", "down"})])
def test_value_above_limit_overflows_with_its_reader(value: float, found: set[str]) -> None:
    assert over(model_of(SCALED), np.full((3, 2), value, np.float32)) == found


def test_fused_value_is_not_stored() -> None:
    text = (
        "g (float[N,2] x) => (float[N,2] y) <float[2,2] w = {300, 0, 0, 300}>"
        "{ [product] z = MatMul(x, w) [%s] y = %s(z) }"
    )
    x = np.full((2, 2), 300, np.float32)
    assert over(model_of(text % ("sigmoid", "Sigmoid")), x) == set()
    assert over(model_of(text % ("relu", "Relu")), x) == {"product", "relu"}
    assert over(model_of(text % ("sigmoid", "Sigmoid")), x, keep=["sigmoid"]) == {"product", "sigmoid"}  # no kernel now


def test_isolated_error_is_relative_over_all_samples() -> None:
    model = model_of(
        "g (float[N,2] x) => (float[N,2] y) <float[2] k = {3, 3}>"
        "{ [third] z = Div(x, k) [same] s = Identity(z) [square] q = Mul(s, s) [kept] r = Exp(z) [end] y = Neg(q) }"
    )
    x = np.float32([[1, 2], [4, 100], [300, 7]])
    found = isolated_errors(model, None, [x], batch=2, keep=lambda node: node.name == "kept")
    half = x.astype(np.float16).astype(np.float32)
    third = x / np.float32(3)
    stored = (half / np.float32(3)).astype(np.float16).astype(np.float32)
    padded = [0, 1, 2, 2]  # the last part is filled up to the fixed batch
    expected = np.linalg.norm((stored - third)[padded]) / np.linalg.norm(third[padded])
    assert found["third"] == pytest.approx(expected, rel=1e-3)
    assert "kept" not in found
    assert 0 < found["square"] < 1e-3
    large = isolated_errors(model, None, [x * 10], batch=None, keep=lambda node: False)
    assert large["square"] == math.inf
    assert large["third"] < 1e-3


def test_nan_is_an_infinite_error() -> None:
    model = model_of("g (float[N,1] x, float[N,1] w) => (float[N,1] y) { [ratio] y = Div(x, w) }")
    tiny = np.full((2, 1), 1e-9, np.float32)  # 0 / 0 where they are stored as float16
    assert isolated_errors(model, None, [tiny, tiny]) == {"ratio": math.inf}


def test_kernel_error_is_assigned_to_all_its_nodes() -> None:
    model = model_of(
        "g (float[N,2] x) => (float[N,2] y) <float[2,2] w = {300, 0, 0, 0.37}>"
        "{ [product] z = MatMul(x, w) [sigmoid] y = Sigmoid(z) }"
    )
    found = isolated_errors(model, None, [np.float32([[300, 1.1], [300, 2.3]])])
    assert found["product"] == found["sigmoid"]
    assert 0 < found["sigmoid"] < 1e-3  # 90000 is inside, and never stored


def test_worst_samples_include_first_ones() -> None:
    trials = Trials(ArraySamples(6, True, [], 2, lambda: iter(())), RawMeasure("close"), 0.01, Path())
    trials._records = Columns.plain(np.array([0.0, 0, 1, 1, 1, 1]))
    fell = Trial("", (), None, Columns.plain(np.array([0.0, 0, 1, 0, np.nan, 1])))  # type: ignore[arg-type]
    assert trials.worst(fell, 2) == [0, 4]
    assert trials.worst(fell, 4) == [0, 1, 3, 4]
    assert trials.worst(fell, 100) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["agree", "close"])
def test_other_output_shape_has_agreement_0(name: str) -> None:
    """The number of boxes depends on the values."""
    ours, theirs = Outputs([np.ones((2, 4)), np.ones((2, 3))]), Outputs([np.ones((2, 4)), np.ones((2, 4))])
    assert metric_named(name).update(ours, theirs).tolist() == [0.0, 0.0]
    assert metric_named(name).update(theirs, theirs).tolist() == [1.0, 1.0]


def test_only_verdict_pass_is_enough() -> None:
    trials = Trials(ArraySamples(6, True, [], 2, lambda: iter(())), RawMeasure("top1"), 0.01, Path())

    def ended(verdict: Verdict, difference: float) -> Trial:
        return Trial("", (), Accuracy(verdict, "", "", "m", 1.0, 1.0, difference, 0.01), None)

    assert trials.enough(ended(Verdict.PASS, -0.01))
    assert not trials.enough(ended(Verdict.INCONCLUSIVE, 0.0))
    assert not trials.enough(ended(Verdict.FAIL, 0.0))


def test_error_of_node_is_that_of_worst_output() -> None:
    model = model_of(
        "g (float[N,2] x) => (float[N,2] y) <float[1] k = {3}> { z = Div(x, k) [cut] a, b = Split <axis = 1> (z)"
        " [join] y = Concat <axis = 1> (b, a) }"
    )
    x = np.float32([[3, 1], [6, 2]])  # thirds of the first are whole
    found = isolated_errors(model, None, [x])
    assert found["cut"] == pytest.approx(np.abs(np.float16(1 / 3) - np.float32(1 / 3)) * 3, rel=1e-3)


def test_resize_scales_stay_float32() -> None:
    """Scales rounded to float16 would be 2.5, and the image one row larger."""
    model = model_of(
        "g (float[N,1,2,2] x) => (float[N,1,M,K] y) <float[4] scales = {1, 1, 2.4999, 2.4999}>"
        '{ [resize] y = Resize <mode = "nearest"> (x, , scales) }'
    )
    assert isolated_errors(model, None, [np.ones((1, 1, 2, 2), np.float32)])["resize"] == 0.0


def test_float32_form_does_not_round() -> None:
    model = model_of(
        "g (float16[N,2] x, bool up) => (float16[N,2] y) { a = Cast <to = 1> (x) b = Exp(a) c = Cast <to = 10> (b)"
        " y = If (up) <then_branch = t () => (float16[N,2] p) { p = Cast <to = 10> (b) },"
        " else_branch = e () => (float16[N,2] q) { q = Neg(c) }> }"
    )
    assert "10" not in re.findall(r"(?<=to: int = )\d+", onnx.printer.to_text(float32_form(model)))
    assert "10" in re.findall(r"(?<=to: int = )\d+", onnx.printer.to_text(model))


def test_chosen_samples_come_from_every_part() -> None:
    x = np.arange(7.0).reshape(7, 1)
    given = [
        Feed([x[i : i + 3], np.float64(9)], np.arange(i, min(i + 3, 7)), [f"s{j}" for j in range(i, min(i + 3, 7))])
        for i in (0, 3, 6)
    ]
    specs = [TensorSpec("x", np.dtype(float), (None, 1), 0), TensorSpec("by", np.dtype(float), (), None)]
    (found,) = ArraySamples(7, True, specs, 3, lambda: iter(given)).chosen([6, 3, 0, 3])
    assert [array.tolist() for array in found.inputs] == [[[0], [3], [6]], 9]
    assert found.targets is not None
    assert (found.targets.tolist(), found.names) == ([0, 3, 6], ["s0", "s3", "s6"])
