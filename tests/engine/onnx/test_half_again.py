"""A float16 model with float32 islands from a conversion is not converted again."""

import numpy as np
import onnx
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
