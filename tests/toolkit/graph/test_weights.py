"""Graphs without their large weights."""

from __future__ import annotations

import gc

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from support import DIGITS, SaveOnnx

from engine import ModelError
from engine.sdaa import resolved
from toolkit.graph.inputs import random_inputs
from toolkit.graph.nodes import load_named
from toolkit.graph.trace import traced
from toolkit.graph.weights import open_marked, source

PATH = DIGITS / "digits.onnx"


def test_source_has_no_large_weights() -> None:
    held = source(PATH)
    kept = {t.name: t for t in held.model.graph.initializer}
    whole = {t.name: numpy_helper.to_array(t) for t in load_named(PATH).graph.initializer}
    assert kept.keys() == whole.keys()
    for name, value in whole.items():
        assert (name in held.weights) == (value.size > 1024)
        assert (kept[name].data_location == TensorProto.EXTERNAL) == (name in held.weights)
    again = {t.name: numpy_helper.to_array(t) for t in held.whole().graph.initializer}
    assert all(np.array_equal(again[name], whole[name]) for name in whole)
    assert held.model.ByteSize() < 0.2 * PATH.stat().st_size


def test_file_is_loaded_once(save_onnx: SaveOnnx) -> None:
    held = source(PATH)
    assert source(PATH) is held
    path = save_onnx("net (float[2] x) => (float[2] y) { y = Neg(x) }")
    with traced(path, "onnx"), traced(path, "sdaa"):
        first = source(path)
        assert source(path) is first
    save_onnx("net (float[2] x) => (float[2] y) { z = Neg(x) y = Neg(z) }")
    assert len(source(path).model.graph.node) == 2
    del held, first
    gc.collect()
    with pytest.raises(ModelError, match="does not exist"):
        source(DIGITS / "none.onnx")


def test_rounded_weights_and_others(save_onnx: SaveOnnx) -> None:
    held = source(PATH)
    with traced(PATH, "sdaa") as card:
        assert card.model
        rounded = [name for name in card.weights if name.endswith(":rounded")]
        assert rounded
        for name in rounded:
            want = held.weights[name.removesuffix(":rounded")].astype(np.float16).astype(np.float32)
            np.testing.assert_array_equal(card.weights[name], want)
        assert resolved(card.model, held.weights).keys() == card.weights.keys()


@pytest.mark.parametrize("target", ["onnx", "sdaa"])
def test_unused_large_weight_is_removed(target: str, save_onnx: SaveOnnx) -> None:
    parsed = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> net (float[1, 2] x) => (float[1, 2] y) { y = Neg(x) }'
    )
    parsed.graph.initializer.append(numpy_helper.from_array(np.ones((2, 1025), np.float32), "spare"))
    with traced(save_onnx(parsed), target) as found:
        assert found.run([np.ones((1, 2), np.float32)])["y"].tolist() == [[-1, -1]]


def test_external_weights_return_same_values(save_onnx: SaveOnnx) -> None:
    model = load_named(PATH)
    x = random_inputs(PATH)
    (want,) = open_marked(model, {}).run(x)
    light = source(PATH)
    (got,) = open_marked(light.model, light.weights).run(x)
    np.testing.assert_array_equal(got, want)
    # a weight that is an output as well
    text = "net (float[1, 2] x) => (float[1, 1025] y, float[2, 1025] w) <float[2, 1025] w> { y = MatMul(x, w) }"
    parsed = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>' + text.replace("<float[2, 1025] w>", "")
    )
    weight = np.random.default_rng(0).standard_normal((2, 1025)).astype(np.float32)
    parsed.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    path = save_onnx(parsed)
    for target in ("onnx", "sdaa"):
        with traced(path, target) as found:
            np.testing.assert_allclose(found.run([np.ones((1, 2), np.float32)])["y"], weight.sum(0)[None], atol=4e-3)
