"""Small networks of three kinds, with faults planted at nodes of one's choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

SCALE = 2.0**17
"""Activations about 1 become about 131072, beyond float16; weights up to 0.49 stay within it."""


class Net:
    """Collects nodes; every method returns the name of what it adds."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def const(self, value: object, dtype: type = np.float32) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def random(self, *shape: int) -> str:
        deviation = 1.4 / np.sqrt(np.prod(shape[1:] if len(shape) == 4 else shape[:1]))
        return self.const(np.clip(self.rng.normal(0, deviation, shape), -0.45, 0.45))

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"n{len(self.nodes)}_{op.lower()}"
        self.nodes.append(helper.make_node(op, list(inputs), [f"{name}_out"], name, **attributes))
        return f"{name}_out"

    def conv(self, x: str, inputs: int, outputs: int, size: int = 3) -> str:
        return self.add("Conv", x, self.random(outputs, inputs, size, size), pads=[size // 2] * 4)

    def model(self, shape: Sequence[object], outputs: Sequence[str], rank: Sequence[int]) -> onnx.ModelProto:
        ends = [
            helper.make_tensor_value_info(name, 1, ["N", *(f"{name}{i}" for i in range(1, r))])
            for name, r in zip(outputs, rank, strict=True)
        ]
        start = helper.make_tensor_value_info("x", 1, shape)
        graph = helper.make_graph(self.nodes, "g", [start], ends, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def conv_net(seed: int = 0) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    net = Net(seed)
    x = net.add("LeakyRelu", net.conv("x", 3, 8), alpha=0.1)
    for _ in range(6):
        y = net.add("LeakyRelu", net.conv(x, 8, 8), alpha=0.1)
        x = net.add("Add", net.conv(y, 8, 8), x)
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    return net.model(["N", 3, 12, 12], [net.add("Gemm", x, net.random(8, 10))], [2]), (3, 12, 12)


def encoder(seed: int = 0) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    net, width, heads = Net(seed), 16, 2
    x = "x"
    split = net.const([0, 0, heads, width // heads], np.int64)
    merge = net.const([0, 0, width], np.int64)
    for _ in range(3):
        y = net.add("LayerNormalization", x, net.const(np.ones(width)), net.const(np.zeros(width)), axis=-1)
        q, k, v = (net.add("Reshape", net.add("MatMul", y, net.random(width, width)), split) for _ in range(3))
        q, k, v = (
            net.add("Transpose", t, perm=p) for t, p in ((q, [0, 2, 1, 3]), (k, [0, 2, 3, 1]), (v, [0, 2, 1, 3]))
        )
        scores = net.add("Softmax", net.add("Mul", net.add("MatMul", q, k), net.const(0.35)), axis=-1)
        mixed = net.add("Reshape", net.add("Transpose", net.add("MatMul", scores, v), perm=[0, 2, 1, 3]), merge)
        x = net.add("Add", net.add("MatMul", mixed, net.random(width, width)), x)
        y = net.add("LayerNormalization", x, net.const(np.ones(width)), net.const(np.zeros(width)), axis=-1)
        y = net.add("LeakyRelu", net.add("MatMul", y, net.random(width, 2 * width)), alpha=0.1)
        x = net.add("Add", net.add("MatMul", y, net.random(2 * width, width)), x)
    return net.model(["N", 6, width], [x], [3]), (6, width)


def detector(seed: int = 0) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    net = Net(seed)
    flat = net.const([0, 0, -1], np.int64)
    found: dict[str, list[str]] = {"boxes": [], "scores": []}
    x = net.add("LeakyRelu", net.conv("x", 3, 8), alpha=0.1)
    for _ in range(2):
        x = net.add("LeakyRelu", net.add("Add", net.conv(x, 8, 8), x), alpha=0.1)
        tower = net.add("LeakyRelu", net.conv(x, 8, 8), alpha=0.1)
        for kind, channels in (("boxes", 4), ("scores", 5)):
            found[kind].append(net.add("Reshape", net.conv(tower, 8, channels, 1), flat))
        x = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    boxes = net.add("Transpose", net.add("Concat", *found["boxes"], axis=2), perm=[0, 2, 1])
    scores = net.add("Sigmoid", net.add("Transpose", net.add("Concat", *found["scores"], axis=2), perm=[0, 2, 1]))
    return net.model(["N", 3, 16, 16], [boxes, scores], [3, 3]), (3, 16, 16)


NETS: dict[str, Callable[[int], tuple[onnx.ModelProto, tuple[int, ...]]]] = {
    "conv": conv_net,
    "encoder": encoder,
    "detector": detector,
}


def plant_overflow(model: onnx.ModelProto, count: int, seed: int) -> list[str]:
    """Let the activations of some random linear nodes overflow, and divide behind them; return all such nodes."""
    rng = np.random.default_rng(seed)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    linear = [n for n in model.graph.node if n.op_type in ("Conv", "MatMul", "Gemm") and n.input[1] in weights]
    chosen = [linear[i] for i in rng.choice(len(linear), count, replace=False)]
    planted: list[str] = []
    model.graph.initializer.append(numpy_helper.from_array(np.float32(SCALE), "scale"))
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        nodes.append(node)
        if node not in chosen:
            continue
        for name in node.input[1:]:
            _scale(weights[name], SCALE)
        out = node.output[0]
        node.output[0] = f"{out}_large"
        nodes.append(helper.make_node("Div", [f"{out}_large", "scale"], [out], f"{node.name}_back"))
        planted += [node.name, f"{node.name}_back"]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    return planted


def plant_mistakes(model: onnx.ModelProto, count: int, seed: int) -> list[str]:
    """Scale weights of, or change an attribute of, some random nodes; return their names in graph order."""
    rng = np.random.default_rng(seed)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    able = [
        n
        for n in model.graph.node
        if n.op_type in ("LeakyRelu", "LayerNormalization")
        or (n.op_type in ("Conv", "MatMul") and n.input[1] in weights)
    ]
    chosen = sorted(rng.choice(len(able), count, replace=False))
    for node in (able[i] for i in chosen):
        if node.op_type == "LeakyRelu":
            node.attribute[0].f = 0.6
        elif node.op_type == "LayerNormalization":
            node.attribute.append(helper.make_attribute("epsilon", 1.0))
        else:
            _scale(weights[node.input[1]], 1.7)
    return [able[i].name for i in chosen]


def _scale(tensor: onnx.TensorProto, factor: float) -> None:
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(factor), tensor.name))


def write(model: onnx.ModelProto, path: Path) -> Path:
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return path


def write_data(path: Path, shape: tuple[int, ...], count: int = 32, seed: int = 5) -> Path:
    np.savez(path, x=np.random.default_rng(seed).normal(size=(count, *shape)).astype(np.float32))
    return path
