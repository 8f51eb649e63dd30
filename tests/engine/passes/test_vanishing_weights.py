"""Folding a batch norm with a large variance gives weights that are 0 on devices without subnormals."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from engine.onnx import fusion_loss_message, to_float16
from engine.passes import rewrite
from engine.passes.resnet import resnet_pass

NORM = """g (float[N,3,8,8] x) => (float[N,4,8,8] y) {
    [conv] a = Conv <pads = [1,1,1,1]> (x, w)
    [norm] y = BatchNormalization(a, gamma, beta, mean, var)
}"""


def model(variance: float, text: str = NORM) -> onnx.ModelProto:
    made = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>\n' + text)
    weights = {"w": np.random.default_rng(0).standard_normal((4, 3, 3, 3)) / 8, "gamma": np.ones(4), "beta": np.ones(4)}
    weights |= {"mean": np.zeros(4), "var": np.full(4, variance)}
    read = {name for node in made.graph.node for name in node.input}
    for name in weights.keys() & read:
        made.graph.initializer.append(numpy_helper.from_array(weights[name].astype(np.float32), name))
    return made


def operators(made: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in made.graph.node]


def fold(made: onnx.ModelProto) -> onnx.ModelProto:
    return rewrite(made, ["conv_batch_norm"])


@pytest.mark.parametrize("use", [fold, resnet_pass.use_passes])
def test_weights_that_would_vanish_are_not_folded(use, caplog: pytest.LogCaptureFixture) -> None:  # type: ignore[no-untyped-def]
    assert operators(use(model(4.0))) == ["Conv"]
    assert not caplog.records
    assert operators(use(model(4e7))) == ["Conv", "BatchNormalization"]
    assert "conv (Conv) is not folded with its neighbours: 100%" in caplog.text
    assert "100% of its weights would be below float16's smallest normal" in caplog.text


def test_a_scale_before_a_convolution(caplog: pytest.LogCaptureFixture) -> None:
    text = """g (float[N,3,8,8] x) => (float[N,4,8,8] y) {
        c = Constant <value_float = 1e-5> ()
        s = Mul(x, c)
        [conv] y = Conv <pads = [1,1,1,1]> (s, w)
    }"""
    assert "Mul" in operators(resnet_pass.use_passes(model(1, text)))
    assert "is not folded" in caplog.text


def test_vanishing_weights_from_folding_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    """Earlier folding by torch's exporter or onnxsim is reported in the same way."""
    apart, folded = model(4e7), model(4e7, NORM.replace("a = Conv", "y = Conv").rpartition("    [norm]")[0] + "}")
    weight = folded.graph.initializer[0]
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) / np.float32(6324.6), "w"))
    assert fusion_loss_message(apart.graph, folded.graph).endswith(
        "of the weights of conv are below float16's smallest normal"
    )
    assert fusion_loss_message(apart.graph, apart.graph) == ""
    assert fusion_loss_message(folded.graph, folded.graph) == ""
    with caplog.at_level(logging.WARNING):
        to_float16(folded)
    assert "of the weights of conv are below float16's smallest normal" in caplog.text
    caplog.clear()
    to_float16(apart)
    assert not caplog.records
