"""Transformations of exported graphs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_models import linear

from engine import ModelError
from utils.export import graphs


class TestWithSizes:
    MODEL = """<ir_version: 9, opset_import: ["" : 18]>
        net (float[batch, 3] x, float[batch, length] y) => (float[batch, total] z)
        <float[batch, length] n> { n = Neg(y)  z = Concat<axis = 1>(x, n) }"""

    def dims(self, model: onnx.ModelProto) -> dict[str, list[int | str | None]]:
        return {
            value.name: [dim.dim_param or (dim.dim_value if dim.HasField("dim_value") else None) for dim in shape]
            for value in (*model.graph.input, *model.graph.output, *model.graph.value_info)
            for shape in [value.type.tensor_type.shape.dim]
        }

    def test_named_dimensions_become_sizes(self) -> None:
        model = onnx.parser.parse_model(self.MODEL)
        before = model.SerializeToString()
        fixed = graphs.with_sizes(model, [np.zeros((4, 3)), np.zeros((4, 5))])
        assert self.dims(fixed) == {"x": [4, 3], "y": [4, 5], "z": [4, None], "n": [4, 5]}
        assert model.SerializeToString() == before

    def test_shape_inference_fills_in_computed_sizes(self) -> None:
        fixed = graphs.with_sizes(onnx.parser.parse_model(self.MODEL), [np.zeros((4, 3)), np.zeros((4, 5))])
        assert self.dims(graphs.simplify(fixed))["z"] == [4, 8]


class TestGraph:
    def test_metadata_about_the_machine_is_removed(self) -> None:
        model = linear()
        model.graph.doc_string = model.graph.node[0].doc_string = "file /home/someone/net.py"
        for part in (model, model.graph, model.graph.node[0], model.graph.input[0]):
            part.metadata_props.add(key="trace", value="file /home/someone/net.py")
        assert b"someone" not in graphs.simplify(model).SerializeToString()

    def test_source_modules_of_nodes_are_kept(self) -> None:
        model = linear()
        model.graph.node[0].metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'head', 'linear']")
        [kept] = graphs.simplify(model).graph.node
        assert [(note.key, note.value) for note in kept.metadata_props] == [
            ("pkg.torch.onnx.name_scopes", "['', 'head', 'linear']")
        ]

    def test_onnxsim_failure_is_one_line(self) -> None:
        with pytest.raises(ModelError, match="onnxsim cannot simplify") as caught:
            graphs.simplify(onnx.ModelProto())
        assert "\n" not in str(caught.value)

    def test_float16_clamps_large_weights(self) -> None:
        weight = np.array([[1e-6, 1.0, 3e4, 1e6]] * 3, np.float32)
        half = graphs.to_float16(linear(weight))
        [stored] = [numpy_helper.to_array(w) for w in half.graph.initializer]
        np.testing.assert_array_equal(stored[0], np.array([1e-6, 1.0, 3e4, 65504.0], np.float16))
        assert half.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT16

    def test_float16_twice_raises(self) -> None:
        with pytest.raises(ModelError, match="cannot convert the model to float16"):
            graphs.to_float16(graphs.to_float16(linear()))

    def test_a_function_inside_the_model_defines_its_operator(self) -> None:
        model = linear(op="Mine", domain="own")
        assert graphs.foreign_ops(model) == ("own::Mine",)
        body = [helper.make_node("MatMul", ["a", "b"], ["c"])]
        model.functions.append(helper.make_function("own", "Mine", ["a", "b"], ["c"], body, model.opset_import))
        assert graphs.foreign_ops(model) == ()


@pytest.mark.parametrize(
    ("text", "line"),
    [("one\ntwo", "one"), ("\n\n  one  \ntwo", "one"), ("one:\n\n - two\nthree", "one: - two"), ("one:", "one:")],
)
def test_first_line(text: str, line: str) -> None:
    assert graphs.first_line(RuntimeError(text)) == line


@pytest.mark.parametrize("make", [ValueError, KeyboardInterrupt])
def test_first_line_of_an_error_without_text(make: Callable[[], BaseException]) -> None:
    assert graphs.first_line(make()) == make.__name__
