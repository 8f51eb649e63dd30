"""A small text encoder with dynamic batch and length, which computes shapes at run time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

HEADS, SIZE, WORDS = 4, 32, 50


def encoder(path: Path, layers: int = 2) -> Path:
    """Write it: inputs ids and mask (int64, (batch, seq)), output y (float32, (batch, seq, 32))."""
    rng = np.random.default_rng(0)
    weights: dict[str, np.ndarray] = {
        "words": rng.standard_normal((WORDS, SIZE)).astype(np.float32),
        "zero": np.array([0], np.int64),
        "one": np.array([1], np.int64),
        "heads": np.array([HEADS], np.int64),
        "axes": np.array([1, 2], np.int64),
        "largest": np.array(-1e4, np.float32),
        "unit": np.array(1, np.float32),
    }
    nodes = [helper.make_node("Gather", ["words", "ids"], ["x0"], "embed")]
    nodes += [
        helper.make_node("Cast", ["mask"], ["m"], "mask_float", to=1),
        helper.make_node("Sub", ["unit", "m"], ["away"], "mask_away"),
        helper.make_node("Mul", ["away", "largest"], ["low"], "mask_low"),
        helper.make_node("Unsqueeze", ["low", "axes"], ["bias"], "mask_bias"),
    ]
    for i in range(layers):
        weights[f"w{i}"] = (rng.standard_normal((SIZE, SIZE)) / 6).astype(np.float32)
        nodes += _layer(i)
    inputs = [helper.make_tensor_value_info(name, 7, ["batch", "seq"]) for name in ("ids", "mask")]
    outputs = [helper.make_tensor_value_info("y", 1, ["batch", "seq", SIZE])]
    nodes.append(helper.make_node("Identity", [f"x{layers}"], ["y"], "end"))
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "encoder", inputs, outputs, held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def _layer(i: int) -> list[onnx.NodeProto]:
    """Self-attention with equal queries, keys and values, with shapes computed as by torch's exporter."""

    def node(op: str, inputs: str, name: str, **how: object) -> onnx.NodeProto:
        return helper.make_node(op, inputs.format(i=i).split(), [f"{name}{i}"], f"{name}{i}", **how)

    return [
        node("MatMul", "x{i} w{i}", "project"),
        node("Shape", "project{i}", "shape"),
        node("Gather", "shape{i} zero", "batch_of", axis=0),
        node("Gather", "shape{i} one", "length_of", axis=0),
        node("ReduceProd", "shape{i}", "elements", keepdims=1),
        node("Mul", "batch_of{i} length_of{i}", "tokens"),
        node("Mul", "tokens{i} heads", "parts"),
        node("Div", "elements{i} parts{i}", "size"),
        node("Concat", "batch_of{i} length_of{i} heads size{i}", "split_shape", axis=0),
        node("Reshape", "project{i} split_shape{i}", "split"),
        node("Transpose", "split{i}", "query", perm=[0, 2, 1, 3]),
        node("Transpose", "split{i}", "key", perm=[0, 2, 3, 1]),
        node("MatMul", "query{i} key{i}", "scores"),
        node("Add", "scores{i} bias", "masked"),
        node("Softmax", "masked{i}", "weights", axis=-1),
        node("MatMul", "weights{i} query{i}", "mixed"),
        node("Transpose", "mixed{i}", "turned", perm=[0, 2, 1, 3]),
        node("Reshape", "turned{i} shape{i}", "joined"),
        helper.make_node("Add", [f"x{i}", f"joined{i}"], [f"x{i + 1}"], f"residual{i}"),
    ]
