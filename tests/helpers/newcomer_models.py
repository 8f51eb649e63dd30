"""Small models that a newcomer brings, with labels that are their own answers, and changes of 0.95 % to plant."""

from __future__ import annotations

from collections.abc import Callable
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
