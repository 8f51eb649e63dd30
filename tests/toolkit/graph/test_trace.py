from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from support import DIGITS, SaveOnnx

from engine import ConfigError, DataError, InputError, ModelError, engine_class
from engine.registry import _registered
from toolkit.graph.inputs import load_inputs, model_file, random_inputs
from toolkit.graph.nodes import grouped, load_named, nodes_of
from toolkit.graph.trace import traced

DYNAMIC = {"input": (1, 3, 32, 32)}

NET = """
net (float[N, 4] x) => (float[N, 4] y)
<float[4, 4] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1.0001}>
{
  m = MatMul(x, w)
  r = Relu(m)
  e = Exp(r)
  y = Sub(e, r)
}
"""


def test_values_equal_numpy(save_onnx: SaveOnnx) -> None:
    path = save_onnx(NET)
    x = random_inputs(path, 3)
    assert x[0].shape == (1, 4)
    with traced(path, "onnx") as found:
        values = found.run(x)
        assert list(values) == ["m", "r", "e", "y"]
        np.testing.assert_allclose(values["e"], np.exp(np.maximum(values["m"], 0)), rtol=1e-5)
        assert list(found.run(x, only=["r"])) == ["r"]
        np.testing.assert_array_equal(found.run(x, only=["r"])["r"], values["r"])
        assert not found.exposes("x")


@pytest.mark.parametrize("target", ["onnx", "sdaa"])
@pytest.mark.parametrize(("declared", "names"), [({}, ["y"]), ({"graph": []}, ["y"]), ({"graph": "file"}, [*"mrey"])])
def test_graph_attribute_is_not_inherited(
    target: str, declared: dict[str, Any], names: list[str], save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vendor's engine may subclass the built-in engine of the same name."""
    monkeypatch.setitem(_registered, target, type("Vendor", (engine_class(target),), declared))
    path = save_onnx(NET)
    with traced(path, target) as found:
        assert list(found.run(random_inputs(path, 3))) == names


def test_card_rounds_and_fuses(save_onnx: SaveOnnx) -> None:
    path = save_onnx(NET)
    x = random_inputs(path, 3)
    with traced(path, "sdaa") as found:
        values = found.run(x)
        assert list(values) == ["r", "e", "y"]  # the product is fused with its activation
        for value in values.values():
            np.testing.assert_array_equal(value, value.astype(np.float16))
        assert found.half >= {"r", "e", "y"}
    with traced(path, "sdaa", dtype="float32") as found, traced(path, "onnx") as plain:
        for name, value in plain.run(x).items():
            np.testing.assert_array_equal(found.run(x)[name], value)


def test_traced_outputs_equal_engine_outputs() -> None:
    from engine import EngineSpec, open_engine

    path = DIGITS / "digits_dyn.onnx"
    x = random_inputs(path, 0, shapes=DYNAMIC)
    spec = EngineSpec(path, divided=False, input_size=((1, 3, 32, 32),))
    with traced(path, "sdaa", shapes=DYNAMIC) as found, open_engine("sdaa", spec) as engine:
        want = engine(x[0].astype(np.float16))
        # marking every output keeps the host from fusing, which moves a last bit
        np.testing.assert_allclose(found.run(x)[found.outputs[0]], want, rtol=2e-3, atol=2e-3)


def test_targets_without_intermediates_return_outputs(save_onnx: SaveOnnx) -> None:
    path = save_onnx(NET)
    with traced(path, "null") as found:
        assert "does not expose intermediate tensors" in found.note
        assert list(found.run(random_inputs(path))) == ["y"]
        assert found.exposes("y")
        assert not found.exposes("r")


def test_names_are_unique(save_onnx: SaveOnnx) -> None:
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="same"),
        helper.make_node("Relu", ["a"], ["b"], name="same"),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, [2])], [info("y", TensorProto.FLOAT, [2])])
    path = save_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    names = [node.name for node in nodes_of(load_named(path))]
    assert names == ["same#0", "same#1", "Relu_2"]
    nodes[1].output[0], nodes[1].input[0] = "a", "x"
    del graph.node[:]
    graph.node.extend(nodes[:2])
    path = save_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "twice.onnx")
    with pytest.raises(ModelError, match="tensor 'a' is written by 2 nodes"):
        load_named(path)


def test_source_modules() -> None:
    node = helper.make_node("Conv", ["x"], ["y"], name="/layer1/layer1.0/conv1/Conv")
    from toolkit.graph.nodes import module_of

    assert module_of(node) == "layer1.0.conv1"
    node.name = "/layer2/layer2.0/downsample/downsample.0/Conv"
    assert module_of(node) == "layer2.0.downsample.0"
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'layer4', 'layer4.1', 'relu_3']")
    assert module_of(node) == "layer4.1"
    node.name = "Conv_1"
    del node.metadata_props[:]
    assert module_of(node) == ""


def test_non_numeric_outputs_are_skipped(save_onnx: SaveOnnx) -> None:
    path = save_onnx(
        """
        net (float[2, 4] x, bool[] c) => (float[2, 4] y)
        {
          s = SplitToSequence <axis = 0> (x)
          n = SequenceLength(s)
          j = ConcatFromSequence <axis = 0> (s)
          t = Constant <value_strings = ["a", "b"]> ()
          k = If (c) <then_branch = then () => (float[2, 4] p) { p = Relu(j) },
                      else_branch = other () => (float[2, 4] q) { q = Neg(j) }>
          y = Abs(k)
        }
        """
    )
    x = [np.ones((2, 4), np.float32), np.array(True)]
    for target in ("onnx", "sdaa"):
        with traced(path, target) as found:
            assert found.skipped == {"s": "sequence", "t": "string"}
            assert set(found.run(x)) == {"n", "j", "k", "y"}


def test_dynamic_output_shapes(save_onnx: SaveOnnx) -> None:
    path = save_onnx("net (float[6] x) => (int64[1, M] y) { y = NonZero(x) }")
    with traced(path, "onnx") as found:
        assert found.run([np.array([1, 0, 2, 0, 0, 3], np.float32)])["y"].tolist() == [[0, 2, 5]]


def test_groups_stay_within_memory(save_onnx: SaveOnnx) -> None:
    path = save_onnx(NET)
    with traced(path, "onnx", batch=2) as found:
        x = random_inputs(path, batch=2)
        groups = found.groups(x, 2 * 2 * 4 * 4)
        assert [[node.op for node in group] for group in groups] == [["MatMul", "Relu"], ["Exp"], ["Sub"]]
        assert len(found.groups(x)) == 1
        assert list(grouped([], {}, 1)) == []


def test_bad_inputs_are_one_line(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    path = save_onnx("net (float[N, M] x) => (float[N, M] y) { y = Relu(x) }")
    with pytest.raises(ConfigError, match=r"\(N, N\).*--dim x=1x1"):
        random_inputs(path)
    with pytest.raises(ConfigError, match=r"no input 'z'; .*: x"):
        random_inputs(path, shapes={"z": (1,)})
    strings = save_onnx("net (string[N] x) => (string[N] y) { y = Identity(x) }", "strings.onnx")
    with pytest.raises(ConfigError, match=r"'x'.*--data"):
        random_inputs(strings)
    with traced(path, "onnx") as found:
        with pytest.raises(InputError, match="got 0 inputs"):
            found.run([])
        with pytest.raises(InputError, match="shape"):
            found.run([np.zeros(3, np.float32)])
        with pytest.raises(InputError, match="dtype int64"):
            found.run([np.zeros((1, 1), np.int64)])
        (tmp_path / "x.npz").write_bytes(b"PK nothing")
        np.savez(tmp_path / "z.npz", a=np.zeros(1), b=np.zeros(1))
        for file, text in (("x.npz", "not a readable"), ("none.npy", "not a readable"), ("z.npz", "lacks input 'x'")):
            with pytest.raises(DataError, match=text):
                load_inputs([tmp_path / file], found.inputs)
        with pytest.raises(DataError, match="2 data files"):
            load_inputs([tmp_path / "a.npy"] * 2, found.inputs)


def test_images_and_arrays(tmp_path: Path) -> None:
    from PIL import Image

    path = DIGITS / "digits.onnx"
    with traced(path, "onnx", shapes=None) as found:
        shape = [d or 1 for d in found.inputs[0].shape]
        Image.new("RGB", (50, 40), (255, 0, 0)).save(tmp_path / "p.png")
        (image,) = load_inputs([tmp_path / "p.png"], found.inputs)
        assert list(image.shape) == shape
        assert image[0, 0, 0, 0] == pytest.approx((1 - 0.485) / 0.229, rel=1e-5)
        np.savez(tmp_path / "x.npz", **{found.inputs[0].name: image})
        np.testing.assert_array_equal(load_inputs([tmp_path / "x.npz"], found.inputs)[0], image)


def test_models_of_the_zoo_by_name(tmp_path: Path) -> None:
    assert model_file("digits").parent == DIGITS
    with pytest.raises(ConfigError, match="unknown model 'digitz'"):
        model_file("digitz")
    with pytest.raises(ModelError, match="does not exist"):
        load_named(model_file("nothing.onnx"))
