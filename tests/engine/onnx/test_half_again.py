"""A float16 model with float32 islands from a conversion is not converted again."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

from engine.onnx import to_float16

TEXT = """<ir_version: 9, opset_import: ["" : 18]>
g (int64[N,3] ids) => (float[N,3] y) <float[4] table = {1,2,3,4}, float lowest = {2}> {
    found = Gather(table, ids)
    most = Max(found, lowest)
    y = Mul(most, found)
}"""


def test_conversion_is_idempotent() -> None:
    once = to_float16(
        parser.parse_model(
            TEXT.replace("float[4] table = {1,2,3,4}", f"float[400] table = {{{','.join(['1'] * 400)}}}")
        )
    )
    assert any(node.op_type == "Cast" for node in once.graph.node)  # Max stays float32
    assert to_float16(once).SerializeToString() == once.SerializeToString()
    onnx.checker.check_model(once)


def test_float32_weights_with_a_float16_output_are_converted() -> None:
    model = parser.parse_model(
        TEXT.replace("(float[N,3] y)", "(float16[N,3] y)").replace(
            "y = Mul(most, found)", "z = Mul(most, found) y = Cast<to=10>(z)"
        )
    )
    found = to_float16(model)
    kinds = {one.name: one.data_type for one in found.graph.initializer}
    assert kinds["table"] == onnx.TensorProto.FLOAT16
    assert np.dtype(np.float16) == onnx.helper.tensor_dtype_to_np_dtype(
        found.graph.output[0].type.tensor_type.elem_type
    )


CONVERTED = """<ir_version: 8, opset_import: ["" : 18]>
g (float[1,5,4] input, float[1,1,5] scores) => (float[1,5,4] y, int64[k,3] picked)
<float16[1,5,4] w, int64[1] most = {3}> {
    [graph_input_cast0] x = Cast<to=10>(input)
    [mul] boxes = Mul(x, w)
    [nms_input_cast0] nms_input_cast_0 = Cast<to=1>(boxes)
    [nms] picked = NonMaxSuppression(nms_input_cast_0, scores, most)
    [relu] rectified = Relu(x)
    [graph_output_cast0] y = Cast<to=1>(rectified)
}"""
"""A detector's end as ``onnxconverter_common`` writes it, with its names of nodes and casts."""


@pytest.mark.parametrize("kept", [None, "Mul", "Relu"])
def test_casts_get_names_that_the_file_does_not_have(kept: str | None) -> None:
    model = parser.parse_model(CONVERTED.replace(" w,", f" w = {{{','.join(['1'] * 20)}}},"))
    onnx.checker.check_model(model, full_check=True)
    found = to_float16(model, None if kept is None else lambda node: node.op_type == kept)
    onnx.checker.check_model(found, full_check=True)
    written = [name for node in found.graph.node for name in node.output]
    assert len(set(written)) == len(written)
    boxes = np.random.default_rng(0).uniform(0, 1, (1, 5, 4)).astype(np.float16)
    scores = np.arange(5, dtype=np.float16).reshape(1, 1, 5)
    feed = {"input": boxes, "scores": scores}
    session = onnxruntime.InferenceSession(found.SerializeToString(), providers=["CPUExecutionProvider"])
    kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    y, picked = session.run(None, {i.name: feed[i.name].astype(kinds[i.type]) for i in session.get_inputs()})
    np.testing.assert_array_equal(y, boxes)
    assert picked[0].tolist() == [0, 0, 4]
