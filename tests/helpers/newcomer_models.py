"""Small models that a newcomer brings, with labels that are their own answers, and changes of 0.95 % to plant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from judged_case import JudgedCase, weighted
from onnx import helper
from planted import Net

from engine import Array

Plant = Callable[[JudgedCase], None]
"""Changes the target's model so that the metric changes by about 0.95 %."""


def saved(net: Net, path: Path, inputs: dict[str, tuple[int, list[Any]]], output: str, shape: list[Any]) -> None:
    """Write a network with one output, which is called ``y``."""
    saved_outputs(net, path, inputs, {"y": (output, shape)})


def saved_outputs(
    net: Net, path: Path, inputs: dict[str, tuple[int, list[Any]]], outputs: dict[str, tuple[str, list[Any]]]
) -> None:
    """Write a network with outputs of these names."""
    net.nodes += [helper.make_node("Identity", [tensor], [name]) for name, (tensor, _) in outputs.items()]
    given = [helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in inputs.items()]
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims) for name, (_, dims) in outputs.items()]
    graph = helper.make_graph(net.nodes, "g", given, ends, net.weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    onnx.checker.check_model(str(path))


def ran(path: Path, *arrays: Array) -> Array:
    """Return the first output of a float32 model."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    found = session.run(None, dict(zip(names, arrays, strict=True)))
    return np.asarray(found[0])


def with_head(
    build: Callable[[], tuple[Net, str]],
    path: Path,
    given: tuple[int, list[Any]],
    data: Array,
    classes: int,
    each: tuple[int, ...] = (),
) -> None:
    """Write a trunk with a last layer ``head`` (weights) and ``bias``.

    The classes are nearest prototypes: standardised features of some of the samples. So all of them occur, and the
    margins are those of a trained model: few are near 0.
    """
    net, features = build()
    saved(net, path, {"x": given}, features, ["N", *each, "F"])
    found = ran(path, data)
    rows = found.reshape(-1, found.shape[-1]).astype(np.float64)
    mean, deviation = rows.mean(axis=0), rows.std(axis=0) + 1e-6
    normal = (rows - mean) / deviation
    chosen = [0]
    for _ in range(classes - 1):  # far from those before
        distances = np.min([((normal - normal[one]) ** 2).sum(axis=1) for one in chosen], axis=0)
        chosen.append(int(np.argsort(distances)[int(0.95 * len(distances))]))
    prototypes = normal[chosen] / np.sqrt(normal.shape[1])
    bias = -((prototypes**2).sum(axis=1) * np.sqrt(normal.shape[1]) / 2) - (mean / deviation) @ prototypes.T
    net, features = build()
    net.weights += [
        onnx.numpy_helper.from_array(((prototypes / deviation).T).astype(np.float32), "head"),
        onnx.numpy_helper.from_array(bias.astype(np.float32), "bias"),
    ]
    scores = net.add("Add", net.add("MatMul", features, "head"), "bias")
    saved(net, path, {"x": given}, scores, ["N", *each, classes])


def labels_of(scores: Array, rng: np.random.Generator) -> Array:
    """Return the answers, one in ten replaced by another class."""
    classes = scores.shape[-1]
    answers = scores.argmax(axis=-1)
    assert np.bincount(answers.ravel(), minlength=classes).min() > 0
    moved = (answers + rng.integers(1, classes, answers.shape)) % classes
    found: Array = np.where(rng.random(answers.shape) < 0.1, moved, answers)
    return found


def more_of_a_class(scores: Array, labels: Array, share: float = 0.0095) -> Plant:
    """Return a plant that adds to the bias of class 1 as much as turns this share of the right answers wrong."""
    rows, truth = scores.reshape(-1, scores.shape[-1]), labels.ravel()
    right = (rows.argmax(axis=1) == truth) & (truth != 1)
    gaps = np.sort((rows.max(axis=1) - rows[:, 1])[right])
    count = round(share * np.count_nonzero(rows.argmax(axis=1) == truth))
    amount = float((gaps[count - 1] + gaps[count]) / 2)

    def plant(case: JudgedCase) -> None:
        case.plant(weighted("bias", lambda bias: bias + amount * (np.arange(len(bias)) == 1)))

    return plant


def shifted(error: Callable[[float], float], weights: str, share: float = 0.0095) -> Plant:
    """Return a plant that adds to a weight as much as changes the metric, a function of this amount, by a share."""
    low, high, start = 0.0, 1.0, error(0.0)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if abs(error(middle) - start) < share * abs(start) else (low, middle)
    amount = high
    return lambda case: case.plant(weighted(weights, lambda values: values + amount))


def point_clouds(rng: np.random.Generator) -> Array:
    """Return 300 x 64 x 3 float32: points on balls, boxes, discs and rods, in turn."""
    clouds = []
    for place in range(300):
        points = rng.normal(0, 1, (64, 3))
        if place % 4 == 0:
            points /= np.linalg.norm(points, axis=1, keepdims=True)
        elif place % 4 == 1:
            points = points.clip(-0.7, 0.7)
        points = points * ([1, 1, 0.1] if place % 4 == 2 else [1, 0.1, 0.1] if place % 4 == 3 else [1, 1, 1])
        clouds.append(points * rng.uniform(0.6, 1.4))
    return np.array(clouds, np.float32)


def point_network() -> tuple[Net, str]:
    """Return a network with layers per point and the maximum over the points (Qi et al. 2017), and its output."""
    net = Net(6)
    x = "x"
    for inputs, outputs in ((3, 32), (32, 48)):
        bias = net.const(net.rng.normal(0, 0.3, outputs))
        weights = net.const(net.rng.normal(0, 1 / np.sqrt(inputs), (inputs, outputs)))
        x = net.add("Relu", net.add("Add", net.add("MatMul", x, weights), bias))
    return net, net.add("ReduceMax", x, axes=[1], keepdims=0)


# ------------------------------------------------------------------------------------ kinds that come as a file

INT32, FLOAT = onnx.TensorProto.INT32, onnx.TensorProto.FLOAT


@dataclass(frozen=True)
class Kind:
    """A kind of model: ``write`` puts ``model.onnx`` and ``val.npz`` into a folder and returns the plant.

    ``metrics``: of ``teco new --default metric=...``. ``discrete``: records change at thresholds only.
    """

    write: Callable[[Path], Plant]
    metrics: tuple[str, ...]
    discrete: bool = False


def file_kind(folder: Path) -> Plant:
    """300 files of eight kinds, the first 128 bytes of each as int32 (256: padding), as magika takes them."""
    rng = np.random.default_rng(7)
    ranges = [(32, 127), (0, 256), (48, 58), (65, 91), (0, 16), (128, 256), (97, 123), (0, 2)]
    rows = np.full((300, 128), 256, np.int32)
    for place, row in enumerate(rows):
        length, cut = int(rng.integers(96, 129)), int(rng.integers(64, 96))
        row[:cut] = rng.integers(*ranges[place % 8], cut)
        row[cut:length] = rng.integers(*ranges[int(rng.integers(8))], length - cut)

    def build() -> tuple[Net, str]:
        net = Net(2)
        table = net.const(net.rng.normal(0, 1, (257, 16)))
        x = net.add("Transpose", net.add("Gather", table, "x"), perm=[0, 2, 1])
        kernel = net.const(net.rng.normal(0, 0.15, (24, 16, 3)))
        x = net.add("Relu", net.add("Conv", x, kernel, kernel_shape=[3], pads=[1, 1]))
        return net, net.add("Flatten", net.add("GlobalAveragePool", x))

    with_head(build, folder / "model.onnx", (INT32, ["N", 128]), rows, 8)
    scores = ran(folder / "model.onnx", rows)
    labels = labels_of(scores, rng)
    np.savez(folder / "val.npz", x=rows, y=labels)
    return more_of_a_class(scores, labels)


def stereo(folder: Path) -> Plant:
    """12 pairs of images in; disparity and its confidence out, from absolute differences at eight disparities."""
    rng = np.random.default_rng(3)
    count, height, width, most = 12, 24, 40, 8
    noise = rng.normal(0, 1, (count, height, width + most))
    wide = np.mean([np.roll(noise, shift, axis=2) for shift in range(3)], axis=0)
    truth = np.empty((count, 1, height, width))
    truth[..., : width // 2], truth[..., width // 2 :] = rng.integers(1, most - 1, (2, count, 1, height, 1))
    columns = np.arange(width)[None, None, :] + truth[:, 0].astype(int)
    left = np.take_along_axis(wide, columns, axis=2)[:, None].astype(np.float32)
    right = wide[:, None, :, :width].astype(np.float32)

    net = Net(4)
    costs = []
    padded = net.add("Pad", "right", net.const([0, 0, 0, 0, 0, 0, 0, most], np.int64))
    for shift in range(most):
        ends = [net.const([value], np.int64) for value in (shift, shift + width, 3)]
        cost = net.add("Abs", net.add("Sub", "left", net.add("Slice", padded, *ends)))
        costs.append(net.add("AveragePool", cost, kernel_shape=[1, 5], pads=[0, 2, 0, 2]))
    shares = net.add("Softmax", net.add("Mul", net.add("Concat", *costs, axis=1), net.const(-12.0)), axis=1)
    levels, axis = net.const(np.arange(most).reshape(1, most, 1, 1)), net.const([1], np.int64)
    mean = net.add("ReduceSum", net.add("Mul", shares, levels), axis, keepdims=1)
    net.weights.append(onnx.numpy_helper.from_array(np.zeros(1, np.float32), "bias"))
    image = (FLOAT, ["N", 1, height, width])
    outputs = {
        "disparity": (net.add("Add", mean, "bias"), image[1]),
        "confidence": (net.add("ReduceMax", shares, axes=[1], keepdims=1), image[1]),
    }
    saved_outputs(net, folder / "model.onnx", {"left": image, "right": image}, outputs)
    found = ran(folder / "model.onnx", left, right)
    sure = (np.abs(found - truth) < 0.5).astype(np.float32)
    expected: dict[str, Any] = {"expected/disparity": truth.astype(np.float32), "expected/confidence": sure}
    np.savez(folder / "val.npz", left=left, right=right, **expected)
    return shifted(lambda amount: float(np.abs(found + amount - truth).mean()), "bias")


def waves(count: int, seed: int) -> tuple[Array, Array]:
    """Return images of half the size, and whole, float32 of 0 to 1."""
    rng = np.random.default_rng(seed)
    places = np.mgrid[:32, :32] / 32
    images = [
        sum(np.sin(rng.normal(0, 9, 2) @ places.reshape(2, -1) + rng.uniform(0, 6)) for _ in range(5))
        for _ in range(count)
    ]
    large = (np.array(images).reshape(count, 1, 32, 32) / 10 + 0.5).clip(0, 1)
    return large.reshape(count, 1, 16, 2, 16, 2).mean(axis=(3, 5)).astype(np.float32), large.astype(np.float32)


def espcn(folder: Path) -> Plant:
    """20 images; two convolutions and four sub-pixels each (Shi et al. 2016), the last one fitted to other images."""
    file = folder / "model.onnx"

    def features(net: Net) -> str:
        x = net.add("Tanh", net.conv("x", 1, 24, 5, scale=0.8))
        return net.add("Tanh", net.conv(x, 24, 12, scale=0.8))

    net = Net(5)
    saved(net, file, {"x": (FLOAT, ["N", 1, 16, 16])}, features(net), ["N", 12, 16, 16])
    small, large = waves(60, 11)
    rows = ran(file, small).transpose(0, 2, 3, 1).reshape(-1, 12).astype(np.float64)
    rows = np.hstack([rows, np.ones((len(rows), 1))])
    pixels = large.reshape(60, 16, 2, 16, 2).transpose(0, 1, 3, 2, 4).reshape(-1, 4)
    fitted = np.linalg.solve(rows.T @ rows + 1e-3 * np.eye(13), rows.T @ pixels)

    net = Net(5)
    x = features(net)
    kernel = net.const(fitted[:12].T.reshape(4, 12, 1, 1))
    net.weights.append(onnx.numpy_helper.from_array(fitted[12].astype(np.float32), "bias"))
    x = net.add("DepthToSpace", net.add("Conv", x, kernel, "bias", kernel_shape=[1, 1]), blocksize=2)
    saved(net, file, {"x": (FLOAT, ["N", 1, 16, 16])}, x, ["N", 1, 32, 32])
    small, large = waves(20, 4)
    np.savez(folder / "val.npz", x=small, y=large)
    found = ran(file, small).astype(np.float64)

    def psnr(amount: float) -> float:
        return float(-10 * np.log10(((found + amount - large) ** 2).mean(axis=(1, 2, 3))).mean())

    return shifted(psnr, "bias")


def point_net(folder: Path) -> Plant:
    """300 clouds of 64 points of four kinds; layers per point, and the maximum over the points (Qi et al. 2017)."""
    rng = np.random.default_rng(5)
    data = point_clouds(rng)
    with_head(point_network, folder / "model.onnx", (FLOAT, ["N", 64, 3]), data, 4)
    scores = ran(folder / "model.onnx", data)
    labels = labels_of(scores, rng)
    np.savez(folder / "val.npz", points=data, label=labels)
    return more_of_a_class(scores, labels)


KINDS = {
    "file_kind": Kind(file_kind, ("top1",), discrete=True),
    "stereo": Kind(stereo, ("disparity=mae", "confidence=rmse")),
    "espcn": Kind(espcn, ("psnr",)),
    "point_net": Kind(point_net, ("top1",), discrete=True),
}
