"""Kinds of model that a newcomer brings as a file with its data, of fixed seeds, each with a change to plant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from newcomer_models import (
    Plant,
    labels_of,
    more_of_a_class,
    point_clouds,
    point_network,
    ran,
    saved,
    saved_outputs,
    shifted,
    with_head,
)
from planted import Net

from engine import Array

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
