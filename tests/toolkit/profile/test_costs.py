"""Parameters and multiply-adds compared with manual counts and torchvision; consistent simulated costs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import DIGITS

from engine import ModelError
from toolkit.profile.costs import cost_of, multiply_adds_of


def saved(path: Path, nodes: list[Any], weights: dict[str, tuple[int, ...]], shape: list[Any]) -> Path:
    arrays = [numpy_helper.from_array(np.ones(dims, np.float32), name) for name, dims in weights.items()]
    arrays.append(numpy_helper.from_array(np.array([0, -1], np.int64), "flat"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in (("x", shape), ("y", None))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], arrays)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def test_network_counted_by_hand(tmp_path: Path) -> None:
    """Grouped convolution, batch norm, fully connected: 8 x 8 images, so 6 x 6 positions."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], group=2),
        helper.make_node("BatchNormalization", ["c", "gain", "bias", "mean", "variance"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Reshape", ["r", "flat"], ["f"]),
        helper.make_node("Gemm", ["f", "m", "o"], ["y"], transB=1),
    ]
    norm = dict.fromkeys(("gain", "bias", "mean", "variance"), (6,))
    weights = {"w": (6, 2, 3, 3), "b": (6,), **norm, "m": (10, 216), "o": (10,)}
    found = cost_of(saved(tmp_path / "net.onnx", nodes, weights, ["batch", 4, 8, 8]), [1, 4])
    assert found.parameters == 6 * 2 * 9 + 6 + 6 + 6 + 10 * 216 + 10
    assert found.multiply_adds == 36 * 6 * 2 * 9 + 216 * 10
    assert found.unknown == ()
    assert [one.batch for one in found.simulated] == [1, 4]


def test_an_input_of_unknown_rank_is_not_counted(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": (4, 3)}, [1, 4])
    model = onnx.load(str(path))
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert multiply_adds_of(model)[0] == 0
    model.graph.input[0].type.tensor_type.shape.SetInParent()  # a number, which no product takes
    model.graph.output[0].type.tensor_type.shape.dim.add().dim_value = 3
    with pytest.raises(ModelError, match=r"MatMul .*scalar, 4x3"):
        multiply_adds_of(model)


def test_attention_of_one_sample(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "t"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"]),
        helper.make_node("MatMul", ["p", "x"], ["y"]),
    ]
    found = cost_of(saved(tmp_path / "net.onnx", nodes, {}, ["batch", 7, 5]), [1])
    assert (found.parameters, found.multiply_adds) == (0, 2 * 7 * 7 * 5)


def test_simulated_costs_of_digits() -> None:
    found = cost_of(DIGITS / "digits_dyn.onnx", [1, 16, 64])
    assert found.inputs == {"input": (1, 3, 32, 32)}
    latencies = [one.latency for one in found.simulated]
    assert latencies == sorted(latencies)
    for one in found.simulated:
        assert one.throughput * one.latency >= one.batch  # queued calls are at least as fast as single ones
        assert one.memory >= 2 * found.parameters  # float16


def test_fixed_batch() -> None:
    assert [one.batch for one in cost_of(DIGITS / "digits.onnx").simulated] == [1]


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(
    "arch",
    [
        pytest.param("mobilenet_v2", marks=pytest.mark.long),
        pytest.param("shufflenet_v2_x0_5", marks=pytest.mark.long),
        pytest.param("swin_t", marks=pytest.mark.long),
    ],
)
def test_counts_equal_torchvision(arch: str, tmp_path: Path) -> None:
    if not find_spec("torchvision"):
        pytest.skip("torchvision is not installed")
    from utils.export.networks.torchvision_models import import_torchvision
    from utils.export.scripts.classifier import export_classifier

    weights = ["--weights", "random", "--forms", "dyn"]
    assert export_classifier("", tmp_path, arch, argv=weights) == 0
    found = cost_of(tmp_path / f"{arch}_dyn.onnx", [1])
    published = next(iter(import_torchvision().models.get_model_weights(arch))).meta
    assert found.multiply_adds / 1e9 == pytest.approx(published["_ops"], rel=0.01, abs=5e-4)
    assert found.parameters == pytest.approx(published["num_params"], rel=0.02)
