"""Networks of three kinds with random weights, small for tests; ResNet50 with all nodes, but narrow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks.parts.planted_faults import Planter


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

    def random(self, *shape: int, scale: float = 1.0) -> str:
        deviation = 1.4 * scale / np.sqrt(np.prod(shape[1:] if len(shape) == 4 else shape[:1]))
        return self.const(np.clip(self.rng.normal(0, deviation, shape), -0.45, 0.45))

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"n{len(self.nodes)}_{op.lower()}"
        self.nodes.append(helper.make_node(op, list(inputs), [f"{name}_out"], name, **attributes))
        return f"{name}_out"

    def conv(self, x: str, inputs: int, outputs: int, size: int = 3, stride: int = 1, scale: float = 1.0) -> str:
        """Add a convolution with bias; ``scale``: standard deviation of the weights."""
        weights = [self.random(outputs, inputs, size, size, scale=scale), self.const(self.rng.normal(0, 0.1, outputs))]
        shape = {"kernel_shape": [size, size], "pads": [size // 2] * 4, "strides": [stride] * 2}
        return self.add("Conv", x, *weights, **shape)

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


def resnet50(seed: int = 0, width: int = 8) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """ResNet50 (3, 4, 6, 3 bottlenecks, batch norms folded), 1/8 as wide; small last convolutions."""
    net = Net(seed)
    x = net.add("Relu", net.conv("x", 3, width, 7, stride=2))
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = width
    for stage, count in enumerate((3, 4, 6, 3)):
        for block in range(count):
            inner, stride = width * 2**stage, 2 if block == 0 and stage else 1
            y = net.add("Relu", net.conv(x, channels, inner, 1))
            y = net.add("Relu", net.conv(y, inner, inner, 3, stride))
            y = net.conv(y, inner, 4 * inner, 1, scale=0.5)
            shortcut = net.conv(x, channels, 4 * inner, 1, stride) if block == 0 else x
            x, channels = net.add("Relu", net.add("Add", y, shortcut)), 4 * inner
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    x = net.add("Gemm", x, net.random(channels, 10), net.const(net.rng.normal(0, 0.1, 10)))
    return net.model(["N", 3, 64, 64], [x], [2]), (3, 64, 64)


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
    "resnet50": resnet50,
    "encoder": encoder,
    "detector": detector,
}


def write(model: onnx.ModelProto, path: Path) -> Path:
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return path


def write_data(path: Path, shape: tuple[int, ...], count: int = 32, seed: int = 5) -> Path:
    np.savez(path, x=np.random.default_rng(seed).normal(size=(count, *shape)).astype(np.float32))
    return path


def samples(name: str) -> np.ndarray:
    """Return eight samples of noise for a network."""
    _, shape = NETS[name](1)
    return np.random.default_rng(5).normal(size=(8, *shape)).astype(np.float32)


@cache
def planter_of(name: str) -> Planter:
    """Return the (cached) fault injector of a network."""
    return Planter(NETS[name](1)[0], [samples(name)])
