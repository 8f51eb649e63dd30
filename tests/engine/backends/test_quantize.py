from __future__ import annotations

import io
import logging
import platform
from pathlib import Path

import numpy as np
import onnx
import pytest
from attention import calls, transformer
from onnx import helper, numpy_helper
from support import SaveOnnx

from engine import ModelError
from engine.backends.ort import HostSession
from engine.backends.quantize import (
    CONVOLUTIONS,
    FULL,
    SMOOTH,
    TRANSFORMERS,
    WEIGHTS,
    Recipe,
    content_key,
    quantize,
    recipes,
)
from engine.base import Array
from engine.host import cores

CONV = """<ir_version: 8, opset_import: ["" : %d]>
g (float[N,3,8,8] x) => (float[N,4] y)
{
    a = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w, b)
    r = Relu(a)
    p = GlobalAveragePool(r)
    f = Flatten(p)
    y = Gemm(f, v, c)
}"""


def convolution(opset: int = 17) -> onnx.ModelProto:
    model = onnx.parser.parse_model(CONV % opset)
    random = np.random.default_rng(0)
    for name, shape in {"w": (4, 3, 3, 3), "b": (4,), "v": (4, 4), "c": (4,)}.items():
        # channels of very different size, which only scales per channel keep apart
        values = random.standard_normal(shape) * (10.0 ** -np.arange(4)).reshape(4, *[1] * (len(shape) - 1))
        model.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), name))
    return model


def samples(count: int = 4) -> list[dict[str, Array]]:
    random = np.random.default_rng(1)
    return [{"x": random.random((2, 3, 8, 8), np.float32)} for _ in range(count)]


@pytest.mark.parametrize("opset", [11, 12, 13, 17, 21])
def test_convolution_at_any_opset(opset: int, save_onnx: SaveOnnx) -> None:
    path = save_onnx(convolution(opset))
    content = quantize(path, samples())
    model = onnx.load_from_string(content)
    kinds = [node.op_type for node in model.graph.node]
    assert {"QuantizeLinear", "DequantizeLinear"} <= set(kinds)
    x = samples()[0]["x"]
    want, got = HostSession(path).run([x])[0], HostSession(content).run([x])[0]
    np.testing.assert_allclose(got, want, atol=0.02 * np.abs(want).max())
    assert HostSession(content).inputs[0].shape == (None, 3, 8, 8)  # the batch stays free
    scales = [t for t in model.graph.initializer if t.dims == [4] and t.data_type == onnx.TensorProto.FLOAT]
    assert any("w_scale" in scale.name for scale in scales), "weights have a scale per channel"


@pytest.mark.parametrize(
    ("machine", "line", "largest"),
    [
        ("x86_64", "flags\t\t: fpu avx2 avx512f\n", 64),
        ("x86_64", "", 64),
        ("x86_64", "flags\t\t: fpu avx2 avx512_vnni\n", 127),
        ("AMD64", "flags\t\t: fpu avx2 avx_vnni\n", 127),
        ("aarch64", "Features\t: fp asimd\n", 127),
    ],
)
def test_weights_have_seven_bits_without_vnni(
    machine: str, line: str, largest: int, save_onnx: SaveOnnx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{line}")
    monkeypatch.setattr(cores, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(platform, "machine", lambda: machine)
    model = onnx.load_from_string(quantize(save_onnx(convolution()), samples()))
    weights = [numpy_helper.to_array(t) for t in model.graph.initializer if t.name in ("w_quantized", "v_quantized")]
    assert [np.abs(array.astype(int)).max() for array in weights] == [largest] * 2


def test_quantising_has_no_output_and_leaves_no_files(
    save_onnx: SaveOnnx, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = save_onnx(convolution())
    handlers, stream = list(logging.getLogger().handlers), io.StringIO()
    mine = logging.StreamHandler(stream)
    logging.getLogger().addHandler(mine)
    try:
        quantize(path, samples())
    finally:
        logging.getLogger().removeHandler(mine)
    assert capfd.readouterr() == ("", "")
    assert stream.getvalue() == ""
    assert logging.getLogger().handlers == handlers
    assert logging.getLogger().manager.disable == 0
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }", "it has no Conv, ConvTranspose, Gemm or MatMul with"),
        ("g (float[N,4] x, float[4,2] w) => (float[N,2] y) { y = MatMul(x, w) }", "with constant weights; use --dtype"),
    ],
    ids=["no weights", "dynamic weights"],
)
def test_models_that_int8_does_not_speed_up(text: str, reason: str, save_onnx: SaveOnnx) -> None:
    feed = {"x": np.ones((2, 4), np.float32), "w": np.ones((4, 2), np.float32)}
    with pytest.raises(ModelError, match=reason) as caught:
        quantize(save_onnx(text), [{name: feed[name] for name in feed if f" {name}" in text.partition("=>")[0]}])
    assert "model.onnx cannot be quantised to int8: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_quantised_model_is_not_quantised_again(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    again = tmp_path / "int8.onnx"
    again.write_bytes(quantize(save_onnx(convolution()), samples()))
    with pytest.raises(ModelError, match=r"int8\.onnx is quantised already;.*--dtype float32"):
        quantize(again, samples())


def test_a_failing_calibration_is_one_line(save_onnx: SaveOnnx) -> None:
    with pytest.raises(ModelError, match=r"model\.onnx .*quantised.*--dtype float32") as caught:
        quantize(save_onnx(convolution()), [{"x": np.ones((2, 3, 9), np.float32)}])
    assert "\n" not in str(caught.value)


def test_external_weights(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    onnx.save(
        convolution(), str(tmp_path / "big.onnx"), save_as_external_data=True, location="big.data", size_threshold=0
    )
    x = samples()[0]["x"]
    want = HostSession(quantize(save_onnx(convolution()), samples())).run([x])[0]
    np.testing.assert_array_equal(HostSession(quantize(tmp_path / "big.onnx", samples())).run([x])[0], want)


def test_constants_as_nodes_are_weights_too(save_onnx: SaveOnnx) -> None:
    model = convolution()
    for tensor in model.graph.initializer:
        model.graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], value=tensor))
    del model.graph.initializer[:]
    kinds = {node.op_type for node in onnx.load_from_string(quantize(save_onnx(model), samples())).graph.node}
    assert "QuantizeLinear" in kinds


def test_the_key_covers_all_relevant_settings() -> None:
    base = content_key("m", samples())
    assert base == content_key("m", samples())
    other = samples()
    other[3]["x"][1, 2, 3, 4] += 1
    keys = {base, content_key("n", samples()), content_key("m", samples(3)), content_key("m", other)}
    keys.add(content_key("m", [{"y": sample["x"]} for sample in samples()]))
    assert len(keys) == 5


RECIPES = pytest.mark.parametrize("recipe", [FULL, WEIGHTS, SMOOTH], ids=lambda recipe: recipe.name)


def quantised_inputs(content: bytes) -> dict[str, set[str]]:
    """Return the original inputs that each node, by its output, reads as int8."""
    model = onnx.load_from_string(content)
    stored = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "QuantizeLinear"}
    known = {tensor.name for tensor in model.graph.initializer}
    shown: dict[str, str] = {}
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear":
            shown[node.output[0]] = node.input[0] if node.input[0] in known else stored[node.input[0]]
    return {node.output[0]: {shown[name] for name in node.input if name in shown} for node in model.graph.node}


def rounded(content: bytes) -> set[str]:
    """Return the original tensors that int8 holds."""
    return set().union(*quantised_inputs(content).values())


@RECIPES
def test_neither_masks_nor_products_of_activations_are_quantised(recipe: Recipe, save_onnx: SaveOnnx) -> None:
    samples = [dict(zip(("x", "mask"), call, strict=True)) for call in calls(8)]
    content = quantize(save_onnx(transformer()), samples, recipe)
    found = quantised_inputs(content)
    assert not rounded(content) & {"scores", "low", "masked"}
    if recipe in TRANSFORMERS:
        assert not found["scores"]
        assert not found["seen"]
    assert found["k0"]  # and weights are
    assert found["f2"]
    scales = [numpy_helper.to_array(t) for t in onnx.load_from_string(content).graph.initializer if "scale" in t.name]
    assert max(float(scale.max()) for scale in scales) < 1e3


@pytest.mark.parametrize("low", [-1e4, -1e9, -3.4e38])
def test_a_sum_with_a_mask_stays_float32(low: float, save_onnx: SaveOnnx) -> None:
    """Also in a model of convolutions, and where the mask is a constant that float16 could hold."""
    model = convolution()
    add = helper.make_node("Add", ["r", "low"], ["m"])
    model.graph.node.insert(2, add)
    next(node for node in model.graph.node if node.op_type == "GlobalAveragePool").input[0] = "top"
    model.graph.node.insert(3, helper.make_node("Max", ["m", "r"], ["top"]))
    mask = np.where(np.arange(8) < 4, 0, low).astype(np.float32).reshape(1, 1, 1, 8)
    model.graph.initializer.append(numpy_helper.from_array(mask, "low"))
    path = save_onnx(model)
    content = quantize(path, samples())
    assert not rounded(content) & {"m", "low"}
    assert "r" in rounded(content)
    x = samples()[0]["x"]
    want, got = HostSession(path).run([x])[0], HostSession(content).run([x])[0]
    np.testing.assert_allclose(got, want, atol=0.02 * np.abs(want).max())


def test_each_kind_of_model_has_its_recipes(save_onnx: SaveOnnx) -> None:
    assert recipes(save_onnx(convolution())) == CONVOLUTIONS
    assert CONVOLUTIONS[0] == FULL
    assert recipes(save_onnx(transformer())) == TRANSFORMERS
    assert TRANSFORMERS[0] == SMOOTH
    model = transformer()  # the same, its constants as nodes: they are not activations
    for tensor in model.graph.initializer:
        model.graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], value=tensor))
    del model.graph.initializer[:]
    assert recipes(save_onnx(model)) == TRANSFORMERS
    text = """g (float[N,4] x, float[4,4] w) => (float[N,4] y) <float[4,4] v = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}>
    { t = Transpose(v) z = MatMul(x, t) y = Relu(z) }"""
    assert recipes(save_onnx(text)) == CONVOLUTIONS


def test_a_convolution_net_is_computed_in_int8_all_through(save_onnx: SaveOnnx) -> None:
    found = quantised_inputs(quantize(save_onnx(convolution()), samples()))
    model = onnx.load_from_string(quantize(save_onnx(convolution()), samples()))
    kinds = {node.output[0]: node.op_type for node in model.graph.node}
    assert {kinds[name] for name, given in found.items() if given} >= {"Conv", "GlobalAveragePool", "Gemm"}


DETECTOR = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,3,64,64] x) => (float[N,64,4] boxes, float[N,64,3] scores)
{
    a = Conv<kernel_shape=[8,8], strides=[8,8]>(x, w)
    f = Relu(a)
    raw = Conv(f, box)
    shift, size = Split<axis=1>(raw, two)
    half = Exp(size)
    low = Sub(shift, half)
    high = Add(shift, half)
    edges = Concat<axis=1>(low, high)
    placed = Add(edges, centres)
    flat = Reshape(placed, rows)
    boxes = Transpose<perm=[0,2,1]>(flat)
    logits = Conv(f, which)
    rest = Reshape(logits, kinds)
    turned = Transpose<perm=[0,2,1]>(rest)
    scores = Sigmoid(turned)
}"""


def detector(random: np.random.Generator) -> onnx.ModelProto:
    """Return one whose boxes lie in an image that is 640 pixels wide, and are some pixels large."""
    model = onnx.parser.parse_model(DETECTOR)
    centres = np.stack(np.meshgrid(np.arange(40, 640, 80), np.arange(40, 640, 80)) * 2)[None]
    constants = {
        "w": random.standard_normal((16, 3, 8, 8)) * 0.1,
        "box": random.standard_normal((4, 16, 1, 1)) * 0.3,
        "which": random.standard_normal((3, 16, 1, 1)),
        "centres": centres,
    }
    arrays = {name: array.astype(np.float32) for name, array in constants.items()}
    shapes = {"two": [2, 2], "rows": [0, 4, -1], "kinds": [0, 3, -1]}
    whole = {name: np.array(values, np.int64) for name, values in shapes.items()}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in (arrays | whole).items())
    return model


@pytest.mark.parametrize("recipe", CONVOLUTIONS, ids=lambda recipe: recipe.name)
def test_nodes_after_a_detectors_last_layers_stay_float32(recipe: Recipe, save_onnx: SaveOnnx) -> None:
    """Its cosine is high even if boxes are pixels off, so the choice of a recipe would not detect it."""
    random = np.random.default_rng(3)
    path = save_onnx(detector(random))
    feeds = [{"x": random.standard_normal((1, 3, 64, 64)).astype(np.float32)} for _ in range(16)]
    content = quantize(path, feeds[:8], recipe)
    wanted, found = HostSession(path), HostSession(content)
    off = [np.abs(found.run_named(feed)[0] - wanted.run_named(feed)[0]) for feed in feeds[8:]]
    assert np.mean(off) < 0.1  # pixels; a level of 640 is 2.5
    after = {"shift", "size", "half", "low", "high", "edges", "placed", "flat", "rest", "turned", "boxes", "scores"}
    assert not rounded(content) & after
    assert {"x", "f"} <= rounded(content)  # and the layers are int8


def test_the_key_differs_between_recipes() -> None:
    assert len({content_key("m", samples(), recipe) for recipe in (FULL, WEIGHTS, SMOOTH)}) == 3
