"""Outputs that cannot be made: more numbers than a host has memory for, and texts that are not UTF-8."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import RunPython

from engine import EngineError, EngineSpec, TecoInferError, open_engine
from toolkit.cli import execute


def save(path: Path, nodes: list[onnx.NodeProto], outputs: list[onnx.ValueInfoProto], *weights: TensorProto) -> Path:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 1, 4])
    graph = helper.make_graph(nodes, "g", [x], outputs, weights)
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )
    return path


def large(path: Path, side: int) -> Path:
    """Write a model with one output of ``4 * side ** 3`` numbers."""
    sizes = [side, side, side, 4]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, sizes)
    shape = numpy_helper.from_array(np.array(sizes, np.int64), "shape")
    return save(path, [helper.make_node("Expand", ["x", "shape"], ["y"])], [output], shape)


@pytest.mark.parametrize("bits", [15, 18, 20])
def test_null_refuses_an_output_larger_than_memory(bits: int, tmp_path: Path) -> None:
    spec = EngineSpec(large(tmp_path / "large.onnx", 2**bits))
    with open_engine("null", spec) as engine, pytest.raises(EngineError, match=r"large\.onnx.*'y'"):
        engine([np.zeros((1, 1, 1, 4), np.float32)])


def test_a_command_on_null_reports_one_line(tmp_path: Path, run_python: RunPython) -> None:
    model = large(tmp_path / "large.onnx", 2**20)
    done = run_python("-m", "tecoexec", "--onnx", model, "--target", "null", "--iterations", "1")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1


def with_texts(path: Path, kind: str) -> Path:
    """Write a model with strings that are not UTF-8: weights, weights that are an output, in a Constant."""
    strings = TensorProto(name="w", data_type=TensorProto.STRING, dims=[2], string_data=[b"\xff\xfe", b"right"])
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 1, 4])]
    nodes = [helper.make_node("Identity", ["w"], ["u"]), helper.make_node("Relu", ["x"], ["y"])]
    weights = [strings]
    if kind == "constant":
        nodes[0], weights = helper.make_node("Constant", [], ["u"], value=strings), []
    if kind == "output":
        outputs.append(helper.make_tensor_value_info("u", TensorProto.STRING, [2]))
    return save(path, nodes, outputs, *weights)


@pytest.mark.parametrize("target", ["onnx", "sdaa", "cpu"])
@pytest.mark.parametrize("kind", ["weight", "constant"])
def test_texts_that_are_not_utf8_may_be_inside(kind: str, target: str, tmp_path: Path) -> None:
    with open_engine(target, EngineSpec(with_texts(tmp_path / "m.onnx", kind))) as engine:
        x = np.array([[[[-1, 0, 1, 2]]]], engine.inputs[0].dtype)
        np.testing.assert_array_equal(engine([x]), np.maximum(x, 0))


@pytest.mark.parametrize("target", ["onnx", "sdaa", "cpu"])
def test_outputs_that_are_not_utf8_are_an_error(target: str, tmp_path: Path) -> None:
    with open_engine(target, EngineSpec(with_texts(tmp_path / "m.onnx", "output"))) as engine:
        x = np.zeros((1, 1, 1, 4), engine.inputs[0].dtype)
        with pytest.raises(EngineError, match=r"m\.onnx.*UTF-8"):
            engine([x])


@pytest.mark.parametrize("kind", ["weight", "constant", "output"])
@pytest.mark.parametrize(
    "words", [("compare",), ("overflow",), ("ops",), ("table",), ("profile", "--target", "onnx", "--runs", "1")]
)
def test_tools_compute_or_refuse_empty_dimensions(words: tuple[str, ...], kind: str, tmp_path: Path) -> None:
    model = with_texts(tmp_path / "m.onnx", kind)
    with suppress(TecoInferError):  # anything else would be a traceback
        assert execute([words[0], str(model), *words[1:]]) in (0, 1)


def test_profile_names_the_file(tmp_path: Path) -> None:
    model = with_texts(tmp_path / "m.onnx", "output")
    with pytest.raises(EngineError, match=r"m\.onnx.*UTF-8"):
        execute(["profile", str(model), "--target", "onnx", "--runs", "1"])
