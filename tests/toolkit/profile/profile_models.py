"""Small models with one thing wrong, for the tests of teco profile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Dims = Sequence[int | str]


def model_of(
    nodes: Sequence[onnx.NodeProto], weights: dict[str, np.ndarray], shape: Dims, opset: int = 18
) -> onnx.ModelProto:
    """Return a model from ``x`` to ``y``."""
    graph = helper.make_graph(
        list(nodes),
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made, strict_mode=True)


def node(op_type: str, inputs: Sequence[str], output: str, name: str = "", **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op_type, list(inputs), [output], name or output, **attributes)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def clean(path: Path, rows: int = 4096, size: int = 1024) -> Path:
    """Write one large matrix product, without a bottleneck on card and host."""
    onnx.save(model_of([node("MatMul", ["x", "w"], "y", "product")], {"w": floats(size, size)}, [rows, size]), path)
    return path


def slow(path: Path) -> Path:
    """Write a recurrent network with a launch for every position and small products."""
    weights = {"w": floats(1, 32, 8), "r": floats(1, 32, 8)}
    nodes = [helper.make_node("LSTM", ["x", "w", "r"], ["y"], "recurrent", hidden_size=8)]
    onnx.save(model_of([*nodes], weights, [64, 4, 8]), path)
    return path


def copies(path: Path, size: int = 6) -> Path:
    """Write a ShuffleNet block of dynamic batch: its shuffle, split and concat only move data."""
    weights = {
        "into": np.array([0, 2, 4, size, size]),
        "back": np.array([0, 8, size, size]),
        "parts": np.array([4, 4]),
        "w": floats(4, 4, 1, 1),
    }
    nodes = [
        node("Reshape", ["x", "into"], "a", "into"),
        node("Transpose", ["a"], "b", "turn", perm=[0, 2, 1, 3, 4]),
        node("Reshape", ["b", "back"], "c", "back"),
        helper.make_node("Split", ["c", "parts"], ["p", "q"], "split", axis=1),
        node("Conv", ["q", "w"], "r", "conv"),
        node("Concat", ["p", "r"], "y", "join", axis=1),
    ]
    onnx.save(model_of(nodes, weights, ["batch", 8, size, size]), path)
    return path


def conversions(path: Path, size: int = 8, channels: int = 16) -> Path:
    """Write a ConvNeXt block (Liu et al., 2022): channels last for norm and products, channels first after."""
    weights = {
        "dw": floats(channels, 1, 3, 3),
        "gamma": floats(channels),
        "up": floats(channels, 2 * channels),
        "down": floats(2 * channels, channels),
    }
    nodes = [
        node("Conv", ["x", "dw"], "a", "depthwise", group=channels, pads=[1, 1, 1, 1]),
        node("Transpose", ["a"], "b", "to_last", perm=[0, 2, 3, 1]),
        node("LayerNormalization", ["b", "gamma"], "c", "norm"),
        node("MatMul", ["c", "up"], "d", "up"),
        node("Relu", ["d"], "e", "act"),
        node("MatMul", ["e", "down"], "f", "down"),
        node("Transpose", ["f"], "g", "to_first", perm=[0, 3, 1, 2]),
        node("Add", ["g", "x"], "y", "residual"),
    ]
    onnx.save(model_of(nodes, weights, ["batch", channels, size, size]), path)
    return path


def changing(path: Path) -> Path:
    """Write a model of dynamic height, with a node of data-dependent output size."""
    nodes = [
        node("Relu", ["x"], "a", "relu"),
        node("NonZero", ["a"], "b", "where"),
        node("Cast", ["b"], "c", "cast", to=TensorProto.FLOAT),
        node("Neg", ["c"], "y", "negative"),
    ]
    onnx.save(model_of(nodes, {}, ["batch", 3, "height", 8]), path)
    return path


def torch_named(path: Path) -> Path:
    """Write a model with node names of PyTorch's older exporter."""
    nodes = [
        node("Exp", ["x"], "a", "/block/first/Exp"),
        node("Softmax", ["a"], "b", "/block/first/Softmax"),
        node("Exp", ["b"], "y", "/block/second/Exp"),
    ]
    onnx.save(model_of(nodes, {}, [4, 8]), path)
    return path
