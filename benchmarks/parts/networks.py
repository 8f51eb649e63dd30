"""Networks as ONNX graphs without a framework and without weights: the input of a cost model.

Every weight is a ConstantOfShape: the file of a network has a few KB, and constants that are computed when an engine is
built count as weights. The values are zeros, so these graphs are for simulated times and memory only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper


class Graph:
    """A graph under construction; every method adds a layer and returns the name of its output."""

    def __init__(self, *shape: int | str) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self.input = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *shape])
        self.parameters = 0
        """Elements of all weights so far."""

    def add(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: object) -> str:
        """Add any node; return its first output."""
        name = f"{op}_{len(self.nodes)}"
        names = [f"{name}:{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, name, **attributes))
        return names[0]

    def constant(self, values: Sequence[int]) -> str:
        """Add an int64 constant."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, np.int64), name))
        return name

    def weight(self, *shape: int) -> str:
        """Add a weight of zeros."""
        self.parameters += int(np.prod(shape))
        return self.add("ConstantOfShape", [self.constant(shape)])

    def conv(self, x: str, channels: tuple[int, int], size: int, stride: int = 1, group: int = 1) -> str:
        """Add a convolution with bias, padded so that only the stride changes the size."""
        weights = [self.weight(channels[1], channels[0] // group, size, size), self.weight(channels[1])]
        pad = [size // 2] * 4
        return self.add("Conv", [x, *weights], pads=pad, strides=[stride] * 2, group=group)

    def relu(self, x: str) -> str:
        """Add a Relu."""
        return self.add("Relu", [x])

    def dense(self, x: str, sizes: tuple[int, int]) -> str:
        """Add a matrix product with bias on the last dimension."""
        product = self.add("MatMul", [x, self.weight(*sizes)])
        return self.add("Add", [product, self.weight(sizes[1])])

    def gemm(self, x: str, sizes: tuple[int, int]) -> str:
        """Add a fully connected layer on two dimensions."""
        return self.add("Gemm", [x, self.weight(*sizes), self.weight(sizes[1])])

    def reshape(self, x: str, *shape: int) -> str:
        """Add a Reshape; 0 keeps a dimension, -1 is inferred."""
        return self.add("Reshape", [x, self.constant(shape)])

    def norm(self, x: str, size: int) -> str:
        """Add a layer norm over the last dimension."""
        return self.add("LayerNormalization", [x, self.weight(size), self.weight(size)], axis=-1)

    def model(self, y: str) -> ModelProto:
        """Return the graph with output ``y``."""
        self.nodes[-1].output[0] = "y"
        assert y.split(":")[0] == self.nodes[-1].name, "the output must come from the last node"
        output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "g", [self.input], [output], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def resnet(blocks: Sequence[int] = (3, 4, 6, 3), width: int = 64, size: int = 224) -> ModelProto:
    """Return a ResNet of bottleneck blocks (He et al., CVPR 2016; stride in the 3x3, as torchvision's), 50 by default.

    Batch norms are folded into the convolutions, as every exporter does.
    """
    graph = Graph(3, size, size)
    x = graph.relu(graph.conv("x", (3, width), 7, stride=2))
    x = graph.add("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            inner, stride = width * 2**stage, 2 if block == 0 and stage else 1
            y = graph.relu(graph.conv(x, (channels, inner), 1))
            y = graph.relu(graph.conv(y, (inner, inner), 3, stride))
            y = graph.conv(y, (inner, 4 * inner), 1)
            shortcut = graph.conv(x, (channels, 4 * inner), 1, stride) if block == 0 else x
            x, channels = graph.relu(graph.add("Add", [y, shortcut])), 4 * inner
    return _head(graph, x, channels)


def vgg16(size: int = 224) -> ModelProto:
    """Return VGG16 (Simonyan and Zisserman, ICLR 2015)."""
    graph = Graph(3, size, size)
    x, channels = "x", 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            x, channels = graph.relu(graph.conv(x, (channels, width), 3)), width
        x = graph.add("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
    x = graph.add("Flatten", [x])
    x = graph.relu(graph.gemm(x, (512 * (size // 32) ** 2, 4096)))
    x = graph.relu(graph.gemm(x, (4096, 4096)))
    return graph.model(graph.gemm(x, (4096, 1000)))


def mobilenet_v2(size: int = 224) -> ModelProto:
    """Return MobileNetV2 (Sandler et al., CVPR 2018), with Clip as its ReLU6."""
    graph = Graph(3, size, size)

    def relu6(x: str) -> str:
        return graph.add("Clip", [x, graph.weight(), graph.weight()])

    x, channels = relu6(graph.conv("x", (3, 32), 3, stride=2)), 32
    settings = [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ]
    for expansion, width, count, first_stride in settings:
        for block in range(count):
            hidden, stride = channels * expansion, first_stride if block == 0 else 1
            y = relu6(graph.conv(x, (channels, hidden), 1)) if expansion > 1 else x
            y = relu6(graph.conv(y, (hidden, hidden), 3, stride, group=hidden))
            y = graph.conv(y, (hidden, width), 1)
            x = graph.add("Add", [x, y]) if stride == 1 and channels == width else y
            channels = width
    return _head(graph, relu6(graph.conv(x, (channels, 1280), 1)), 1280)


def _head(graph: Graph, x: str, channels: int) -> ModelProto:
    """Close a classification network: mean over the image and a fully connected layer to 1000 classes."""
    x = graph.add("Flatten", [graph.add("GlobalAveragePool", [x])])
    return graph.model(graph.gemm(x, (channels, 1000)))


def transformer(layers: int = 12, width: int = 768, heads: int = 12, tokens: int = 128) -> ModelProto:
    """Return a transformer encoder (Vaswani et al., NeurIPS 2017; BERT-base's sizes), with embeddings as input."""
    graph = Graph(tokens, width)
    x = "x"
    for _ in range(layers):
        x = graph.norm(graph.add("Add", [x, _attention(graph, x, width, heads)]), width)
        y = graph.dense(graph.add("Erf", [graph.dense(x, (width, 4 * width))]), (4 * width, width))
        x = graph.norm(graph.add("Add", [x, y]), width)
    return graph.model(x)


def _attention(graph: Graph, x: str, width: int, heads: int) -> str:
    q, k, v = (
        graph.add("Transpose", [graph.reshape(graph.dense(x, (width, width)), 0, 0, heads, width // heads)], perm=perm)
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    mixed = graph.add("MatMul", [graph.add("Softmax", [graph.add("MatMul", [q, k])]), v])
    mixed = graph.reshape(graph.add("Transpose", [mixed], perm=[0, 2, 1, 3]), 0, 0, width)
    return graph.dense(mixed, (width, width))


def lstm(steps: int = 50, width: int = 128, hidden: int = 256, layers: int = 2) -> ModelProto:
    """Return stacked LSTM layers over sequences with the batch first, and a fully connected layer on each step."""
    graph = Graph(steps, width)
    x = graph.add("Transpose", ["x"], perm=[1, 0, 2])
    for _ in range(layers):
        weights = [graph.weight(1, 4 * hidden, width), graph.weight(1, 4 * hidden, hidden)]
        x = graph.add("LSTM", [x, *weights], outputs=3, hidden_size=hidden)
        x, width = graph.add("Squeeze", [x, graph.constant([1])]), hidden
    return graph.model(graph.dense(graph.add("Transpose", [x], perm=[1, 0, 2]), (hidden, 10)))
