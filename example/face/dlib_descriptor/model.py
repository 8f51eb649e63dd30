"""dlib's face descriptor as a graph: a ResNet of 29 convolutions, 150 x 150 pixels in, 128 values out.

The network is that of dlib's ``dnn_face_recognition_ex.cpp`` (Davis King); the weights are face-api's, 8-bit
integers with a scale and a minimum for each tensor, described by the manifest in the same folder.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import Array, ModelError

SIZE = 150
"""Height and width of the input in pixels."""

WIDTH = 128
"""Size of an embedding."""

BLOCKS = (
    *("conv32_1", "conv32_2", "conv32_3"),
    *("conv64_down", "conv64_1", "conv64_2", "conv64_3"),
    *("conv128_down", "conv128_1", "conv128_2"),
    *("conv256_down", "conv256_1", "conv256_2", "conv256_down_out"),
)
"""Residual blocks of two convolutions each; a block named ``down`` halves height and width."""

OPSET = 17


def read_weights(manifest: Path) -> dict[str, Array]:
    """Return the tensors of a face-api manifest, float32, by name.

    Raises:
        ModelError: the manifest and the file of weights do not match.
    """
    try:
        entries = json.loads(manifest.read_text(encoding="utf-8"))[0]
        content = (manifest.parent / "face_recognition_model.bin").read_bytes()
        found, start = {}, 0
        for entry in entries["weights"]:
            coded = entry.get("quantization")
            count = int(np.prod(entry["shape"]))
            raw = np.frombuffer(content, np.uint8 if coded else np.float32, count, start)
            start += raw.nbytes
            values = raw.astype(np.float32)
            values = values * np.float32(coded["scale"]) + np.float32(coded["min"]) if coded else values
            found[entry["name"]] = values.reshape(entry["shape"])
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise ModelError(f"{manifest}: not the weights of face-api's descriptor ({error}); fetch them again") from error
    if start != len(content):
        raise ModelError(f"{manifest}: describes {start} of {len(content)} bytes; fetch the files again")
    return found


class _Graph:
    """Builder of an ONNX graph."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self._given = weights
        self.nodes: list[object] = []
        self.held: list[TensorProto] = []

    def add(self, kind: str, inputs: list[str], name: str, **attributes: object) -> str:
        """Add a node and return the name of its output."""
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def hold(self, name: str, values: Array) -> str:
        """Add an initializer and return its name."""
        self.held.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def conv(self, x: str, name: str, stride: int, pad: int) -> str:
        """Add a convolution with the scale and shift of its channels folded in."""
        filters, bias = self._given[f"{name}/conv/filters"], self._given[f"{name}/conv/bias"]
        scale, shift = self._given[f"{name}/scale/weights"], self._given[f"{name}/scale/biases"]
        weights = self.hold(f"{name}.weight", (filters * scale).transpose(3, 2, 0, 1))  # H, W, in, out before
        biases = self.hold(f"{name}.bias", bias * scale + shift)
        return self.add("Conv", [x, weights, biases], name, strides=[stride] * 2, pads=[pad] * 4)

    def block(self, x: str, name: str, side: int, channels: int) -> tuple[str, int, int]:
        """Add a residual block; return its output, side and channels.

        A block that halves the sides adds the average-pooled input; the smaller of the two is padded with zeros, at the
        right, at the bottom and in channels.
        """
        down = "down" in name
        y = self.add("Relu", [self.conv(x, f"{name}/conv1", 2 if down else 1, 0 if down else 1)], f"{name}/relu1")
        y = self.conv(y, f"{name}/conv2", 1, 1)
        wide = len(self._given[f"{name}/conv2/conv/bias"])
        if down:
            inner, side = (side - 3) // 2 + 1, side // 2
            x = self.add("AveragePool", [x], f"{name}/pool", kernel_shape=[2, 2], strides=[2, 2])
            y = self._filled(y, f"{name}/pad_sides", [0, 0, side - inner, side - inner])
            x = self._filled(x, f"{name}/pad_channels", [0, wide - channels, 0, 0])
        y = self.add("Add", [x, y], f"{name}/add")
        return self.add("Relu", [y], f"{name}/relu2"), side, wide

    def _filled(self, x: str, name: str, behind: list[int]) -> str:
        """Pad with zeros at the end of each axis."""
        if not any(behind):
            return x
        pads = self.hold(f"{name}.pads", np.array([0] * 4 + behind, np.int64))
        return self.add("Pad", [x, pads], name)


def build(weights: Mapping[str, Array], dynamic: bool) -> ModelProto:
    """Return the model, N x 3 x 150 x 150 in and N x 128 out, for any N or for one image."""
    graph = _Graph(weights)
    x = graph.add("Relu", [graph.conv("input", "conv32_down", 2, 0)], "stem")
    x = graph.add("MaxPool", [x], "pool", kernel_shape=[3, 3], strides=[2, 2])
    side, channels = ((SIZE - 7) // 2 + 1 - 3) // 2 + 1, len(weights["conv32_down/conv/bias"])
    for name in BLOCKS:
        x, side, channels = graph.block(x, name, side, channels)
    x = graph.add("Flatten", [graph.add("GlobalAveragePool", [x], "mean")], "flat")
    graph.add("MatMul", [x, graph.hold("fc", weights["fc"])], "description")
    batch = "batch" if dynamic else 1
    made = helper.make_graph(
        graph.nodes,
        "dlib_face",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [batch, 3, SIZE, SIZE])],
        [helper.make_tensor_value_info("description", TensorProto.FLOAT, [batch, WIDTH])],
        graph.held,
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
