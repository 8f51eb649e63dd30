"""Masked elements do not affect the ranking of nodes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from masked import MASKS, STEEP, graph, inputs
from onnx import numpy_helper

from toolkit.fix.guide import LARGEST, overflowing, peaks
from toolkit.fix.isolated import isolated_errors
from toolkit.fix.records import Feed
from toolkit.graph.nodes import nodes_of


def model_of(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    for node in model.graph.node:
        node.name = f"n_{node.output[0]}"
    return model


def largest(model: onnx.ModelProto, *lengths: int) -> dict[str, float]:
    return peaks(model, [Feed(list(inputs(one).values()), None, ["a", "b"]) for one in lengths], None)


@pytest.mark.parametrize("mask", MASKS)
def test_mask_is_not_a_peak(mask: str) -> None:
    model = model_of(graph(mask))
    found = largest(model, 2, 3)
    assert max(found.values()) < 1000
    assert max(isolated_errors(model, None, list(inputs().values())).values()) < 0.01
    steep = model_of(graph(mask, STEEP))
    names = overflowing(steep, nodes_of(steep), largest(steep, 2), lambda node: False)
    assert names >= {"n_raw", "n_s"} if mask != "before the scale" else names >= {"n_raw"}


def test_fully_masked_row_is_a_peak() -> None:
    assert largest(model_of(graph("where")), 2, 0)["b"] > LARGEST


def test_error_of_unmasked_elements() -> None:
    right = model_of(graph("where"))
    wrong = model_of(graph("where"))
    (by,) = [tensor for tensor in wrong.graph.initializer if tensor.name == "by"]
    by.CopyFrom(numpy_helper.from_array(np.float32(0.55), "by"))
    errors = isolated_errors(right, wrong, list(inputs().values()))
    assert max(errors, key=lambda name: errors[name]) == "n_s"
    assert all(error < 1e-5 for name, error in errors.items() if name != "n_s")


def test_non_float32_values_are_unchanged() -> None:
    model = model_of(
        "g (double[N,2] x) => (float[N,2] y) <double low = {-1e300}> "
        "{ s = Add(x, low) p = Softmax(s) y = Cast <to = 1> (p) }"
    )
    assert peaks(model, [Feed([np.ones((1, 2))], None, ["a"])], None) == {"y": 0.5}
