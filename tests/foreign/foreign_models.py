"""The models and data of the foreign tasks: constructed with known results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def _save(nodes: list[onnx.NodeProto], inputs: list, outputs: list, weights: dict[str, np.ndarray], path: Path) -> Path:
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, path.stem, inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(path))
    return path


def save_counter(path: Path, wrong: float = 0.0, width: int = 16) -> Path:
    """Count the tokens 1 to 5 in each of two lists; 0 is padding. ``wrong`` is added to every counted token."""
    random = np.random.default_rng(0)
    table = random.standard_normal((10, width)).astype(np.float32)
    table[0] = 0
    wanted = np.array([0, 1, 1, 1, 1, 1, 0, 0, 0, 0], np.float32) * np.float32(1 + wrong)
    head = np.linalg.lstsq(table, wanted, rcond=None)[0].astype(np.float32)[:, None]
    nodes = []
    for side in ("left", "right"):
        nodes += [
            helper.make_node("Gather", ["table", side], [f"{side}_vectors"], name=f"{side}_look_up"),
            helper.make_node("ReduceSum", [f"{side}_vectors", "axis"], [f"{side}_sum"], name=f"{side}_sum", keepdims=0),
            helper.make_node("MatMul", [f"{side}_sum", "head"], [f"{side}_count"], name=f"{side}_head"),
        ]
    nodes.append(helper.make_node("Concat", ["left_count", "right_count"], ["counts"], name="both", axis=1))
    inputs = [helper.make_tensor_value_info(s, INT64, ["batch", f"{s}_length"]) for s in ("left", "right")]
    outputs = [helper.make_tensor_value_info("counts", FLOAT, ["batch", 2])]
    weights = {"table": table, "head": head, "axis": np.array([1], np.int64)}
    return _save(nodes, inputs, outputs, weights, path)


def save_gru(path: Path, features: int = 3, hidden: int = 5, chunk: int = 4) -> dict[str, np.ndarray]:
    """Write a GRU over chunks, time first and the batch on axis 1; return its weights."""
    random = np.random.default_rng(1)
    weights = {
        "w": random.standard_normal((1, 3 * hidden, features)).astype(np.float32) * 0.5,
        "r": random.standard_normal((1, 3 * hidden, hidden)).astype(np.float32) * 0.5,
        "b": random.standard_normal((1, 6 * hidden)).astype(np.float32) * 0.1,
        "axis": np.array([1], np.int64),
    }
    nodes = [
        helper.make_node("GRU", ["x", "w", "r", "b", "", "h"], ["all", "next"], name="gru", hidden_size=hidden),
        helper.make_node("Squeeze", ["all", "axis"], ["y"], name="squeeze"),
    ]
    inputs = [
        helper.make_tensor_value_info("x", FLOAT, [chunk, "batch", features]),
        helper.make_tensor_value_info("h", FLOAT, [1, "batch", hidden]),
    ]
    outputs = [
        helper.make_tensor_value_info("y", FLOAT, [chunk, "batch", hidden]),
        helper.make_tensor_value_info("next", FLOAT, [1, "batch", hidden]),
    ]
    _save(nodes, inputs, outputs, weights, path)
    return weights


def run_gru(weights: dict[str, np.ndarray], signal: np.ndarray) -> np.ndarray:
    """Return the last state of a GRU as ONNX's specification writes it (linear_before_reset = 0)."""
    w, r, b = weights["w"][0].astype(np.float64), weights["r"][0].astype(np.float64), weights["b"][0]
    size = r.shape[1]
    wb, rb = b[: 3 * size].astype(np.float64), b[3 * size :].astype(np.float64)
    h = np.zeros(size)
    for x in signal.astype(np.float64):
        gates = w @ x + wb
        z = 1 / (1 + np.exp(-(gates[:size] + r[:size] @ h + rb[:size])))
        reset = 1 / (1 + np.exp(-(gates[size : 2 * size] + r[size : 2 * size] @ h + rb[size : 2 * size])))
        new = np.tanh(gates[2 * size :] + r[2 * size :] @ (reset * h) + rb[2 * size :])
        h = (1 - z) * new + z * h
    return h


def save_signals(path: Path, weights: dict[str, np.ndarray], count: int = 30) -> None:
    """Write signals of different lengths and the GRU's true last states."""
    random = np.random.default_rng(2)
    signals = [random.standard_normal((random.integers(3, 15), 3)).astype(np.float32) for _ in range(count)]
    ends = np.stack([run_gru(weights, signal) for signal in signals])
    lengths = np.array([len(signal) for signal in signals])
    np.savez(path, lengths=lengths, flat=np.concatenate(signals), ends=ends)


def shapes() -> np.ndarray:
    """Return three 8 x 8 shapes: a cross, a ring, a bar."""
    y, x = np.mgrid[:8, :8]
    cross = (x == y) | (x == 7 - y)
    ring = (np.hypot(x - 3.5, y - 3.5) < 3.6) & (np.hypot(x - 3.5, y - 3.5) > 2.2)
    return np.stack([cross, ring, (x > 2) & (x < 5)]).astype(np.float32)


def save_policy(path: Path) -> Path:
    """Write a policy that walks half of the way to the middle."""
    node = helper.make_node("MatMul", ["place", "half"], ["step"], name="policy")
    place = helper.make_tensor_value_info("place", FLOAT, ["batch", 2])
    step = helper.make_tensor_value_info("step", FLOAT, ["batch", 2])
    return _save([node], [place], [step], {"half": np.eye(2, dtype=np.float32) * -0.5}, path)


def save_finder_and_reader(folder: Path) -> None:
    """Write ``find.onnx`` (the brightest quarter of 16 x 16) and ``read.onnx`` (which of three shapes it holds)."""
    image = helper.make_tensor_value_info("image", FLOAT, ["batch", 1, 16, 16])
    quarters = helper.make_tensor_value_info("quarters", FLOAT, ["batch", 1, 2, 2])
    kernel = {"kernel": np.full((1, 1, 8, 8), 1 / 64, np.float32)}
    conv = helper.make_node("Conv", ["image", "kernel"], ["quarters"], name="find", strides=[8, 8])
    _save([conv], [image], [quarters], kernel, folder / "find.onnx")
    crop = helper.make_tensor_value_info("crop", FLOAT, ["batch", 1, 8, 8])
    kinds = helper.make_tensor_value_info("kinds", FLOAT, ["batch", 3])
    patterns = shapes().reshape(3, 64)
    patterns = patterns / np.linalg.norm(patterns, axis=1, keepdims=True)
    nodes = [
        helper.make_node("Flatten", ["crop"], ["flat"], name="flat"),
        helper.make_node("MatMul", ["flat", "patterns"], ["kinds"], name="match"),
    ]
    _save(nodes, [crop], [kinds], {"patterns": np.ascontiguousarray(patterns.T)}, folder / "read.onnx")


def save_images(path: Path, count: int = 40) -> None:
    """Write images with a shape in one quarter, and its label; a few labels are wrong."""
    random, patterns = np.random.default_rng(3), shapes()
    images = (random.random((count, 16, 16)) * 0.1).astype(np.float32)
    labels = random.integers(0, 3, count)
    for image, label in zip(images, labels, strict=True):
        row, column = random.integers(0, 2, 2) * 8
        image[row : row + 8, column : column + 8] += patterns[label]
    labels[:4] = (labels[:4] + 1) % 3
    np.savez(path, images=images, labels=labels)
