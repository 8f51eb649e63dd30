"""Unique names of inputs and outputs."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

from engine import ModelError
from utils.export.graphs import simplify
from utils.export.names import give_names

GRAPH = """<ir_version: 9, opset_import: ["" : 18]>
g (float[N,3] x, float[N,3] embedding) => (float[N,3] y, float[N,3] x, float[3] w, float[N,3] y)
<float[3] w = {1, 2, 3}> { output = Add(x, w) y = Mul(output, embedding) }"""

BRANCHES = """<ir_version: 9, opset_import: ["" : 18]>
g (float[N,3] x, bool c) => (float[N,3] y) {
    y = If(c) <then_branch = t () => (float[N,3] a) { z = Neg(x) a = Exp(z) },
               else_branch = e () => (float[N,3] b) { b = Neg(x) }>
}"""


def named(text: str, inputs: list[str], outputs: list[str]) -> onnx.ModelProto:
    model = ir.from_proto(parser.parse_model(text))
    give_names(model, inputs, outputs)
    proto: onnx.ModelProto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    return proto


@pytest.mark.parametrize("names", [["output", "y", "w", "z"], ["a", "b", "c", "d"], ["w_1", "output_1", "y", "w"]])
@pytest.mark.parametrize("inputs", [["embedding", "x"], ["x", "embedding"], ["in", "put"]])
def test_names_of_inner_values(names: list[str], inputs: list[str]) -> None:
    x, scale = np.array([[1, 2, 3]], np.float32), np.array([[2, 2, 2]], np.float32)
    for model in (made := named(GRAPH, inputs, names), simplify(made)):
        assert [value.name for value in model.graph.input] == inputs
        assert [value.name for value in model.graph.output] == names
        found = ReferenceEvaluator(model).run(None, dict(zip(inputs, (x, scale), strict=True)))
        for got, wanted in zip(found, [[[4, 8, 12]], [[1, 2, 3]], [1, 2, 3], [[4, 8, 12]]], strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_names_inside_a_branch() -> None:
    model = named(BRANCHES, ["z", "b"], ["a"])
    x = np.array([[1, 2, 3]], np.float32)
    for way, wanted in ((True, np.exp(-x)), (False, -x)):
        [found] = ReferenceEvaluator(model).run(None, {"z": x, "b": np.array(way)})
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_wrong_number_of_inputs_raises() -> None:
    with pytest.raises(ModelError, match=r"has 2 inputs \(x, embedding\), the model has 1 \(x\)"):
        named(GRAPH, ["x"], ["a", "b", "c", "d"])
