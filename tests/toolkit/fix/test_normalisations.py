"""Data with a wrong normalisation: known ones are found by name, others are fitted."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from onnx import helper, numpy_helper

from engine import EngineSpec, open_engine
from toolkit.fix.array_samples import load_samples
from toolkit.fix.normalisations import ORDERS, TABLE
from toolkit.fix.records import RawMeasure
from toolkit.fix.suspects import UNCHANGED, Suspect, try_suspects
from toolkit.graph.inputs import batched_specs

Array = np.ndarray
SIDE, COUNT = 12, 24
OWN = "ImageNet's"
PAIRS = [(first, second) for first, second in product(TABLE, TABLE) if first != second]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Network whose outputs depend on each channel."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(0, 0.3, (8, 3, 3, 3)), "b": rng.normal(0, 0.3, 8), "v": rng.normal(0, 0.3, (8 * 9, 10))}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", strides=[2, 2], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("AveragePool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("MatMul", ["f", "v"], ["y"], "head"),
    ]
    face = [helper.make_tensor_value_info("x", 1, ["N", 3, SIDE, SIDE]), helper.make_tensor_value_info("y", 1, None)]
    held = [numpy_helper.from_array(np.float32(array), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", face[:1], face[1:], held)
    path = tmp_path_factory.mktemp("normalised") / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


IMAGES = np.random.default_rng(1).beta(1.2, 1.2, (COUNT, 3, SIDE, SIDE))
IMAGES[:, 0, :2] = 0.0
IMAGES[:, 2, -2:] = 1.0


def normalised(images: Array, mean: tuple[float, ...], std: tuple[float, ...]) -> Array:
    middle, spread = (np.array(one).reshape(1, 3, 1, 1) for one in (mean, std))
    return np.ascontiguousarray((images - middle) / spread).astype(np.float32)


def source_feeds(name: str, order: str) -> Array:
    mean, std = TABLE[name]
    if order == "BGR, mean and std too":
        return normalised(IMAGES[:, ::-1], mean, std)
    return np.ascontiguousarray(normalised(IMAGES, mean, std)[:, :: -1 if order else 1])


def tried(model: Path, data: Array, right: Array) -> list[Suspect]:
    """Return the result for wrong data and a correct source."""
    with open_engine("onnx", EngineSpec(model)) as engine:
        golden = [np.asarray(engine(right))]
    file = model.with_name("data.npz")
    np.savez(file, x=data)
    samples = load_samples(file, batched_specs(onnx.load(model)), {}, 16)
    return try_suspects(model, samples, RawMeasure("close"), 1.0, golden=golden)


def cured(found: list[Suspect]) -> list[str]:
    return [one.name for one in found if one.cured]


def named(first: str, second: str, order: str) -> set[str]:
    """Return the accepted names of a mistake: those relative to the metadata are shorter."""
    name = f"mean and std: the data have {first}, the source has {second}"
    names = {f"{name}; channel order: {order}" if order else name}
    if first == OWN and not order:
        names.add(f"mean and std: {second}")
    if (first, second, order) == ("0 to 1, nothing subtracted", OWN, ""):
        names.add("mean and std: missing so far")
    if (first, second, order) == ("0 to 255", OWN, ""):
        names.add("mean and std: missing so far, 0 to 255")
    return names


@settings(max_examples=12, deadline=None, database=None)
@given(pair=st.sampled_from(PAIRS), order=st.sampled_from(ORDERS))
def test_known_normalisations_are_found(pair: tuple[str, str], order: str, model: Path) -> None:
    first, second = pair
    found = tried(model, normalised(IMAGES, *TABLE[first]), source_feeds(second, order))
    wanted = {alike(name) for name in named(first, second, order)}
    if alike(first) == alike(second):
        wanted.add(f"channel order: {order}" if order else UNCHANGED)
    assert wanted.intersection(map(alike, cured(found))), cured(found)


def alike(name: str) -> str:
    """Return a name that does not distinguish the means of Caffe and ImageNet, which differ by half a step of 255."""
    return name.replace("Caffe's mean", "ImageNet's mean")


def test_half_normalisation_for_imagenet_model(model: Path) -> None:
    """Regression test."""
    found = tried(model, normalised(IMAGES, (0.5,) * 3, (0.5,) * 3), source_feeds(OWN, ""))
    assert cured(found)[0] == "mean and std: the data have -1 to 1 (mean 0.5, std 0.5), the source has ImageNet's"
    assert found[0].metric == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("name", TABLE)
def test_correct_data_need_no_change(name: str, model: Path) -> None:
    data = normalised(IMAGES, *TABLE[name])
    assert cured(tried(model, data, data))[0] == UNCHANGED


@pytest.mark.parametrize("order", ["", "BGR, mean and std too"])
@pytest.mark.parametrize(
    ("mean", "std"),
    [((0.4, 0.3, 0.6), (0.3, 0.4, 0.2)), ((0.1, 0.2, 0.3), (0.9, 0.8, 0.7)), ((0.45, 0.45, 0.45), (0.3, 0.3, 0.3))],
)
def test_unknown_normalisation_is_fitted(
    mean: tuple[float, ...], std: tuple[float, ...], order: str, model: Path
) -> None:
    data = normalised(IMAGES, mean, std)
    right = normalised(IMAGES[:, :: -1 if order else 1], *TABLE[OWN])
    (name, *_) = cured(tried(model, data, right))
    numbers = r"mean and std: the source has ImageNet's, the data have (.*?)(; channel order: BGR)? \(fitted\)"
    named_change = re.fullmatch(numbers, name)
    assert named_change is not None, name
    assert bool(named_change[2]) == bool(order)
    assert [float(number) for number in re.findall(r"-?\d+\.?\d*", named_change[1])] == pytest.approx(
        [*mean, *std], abs=0.01
    )


def test_other_errors_are_not_explained(model: Path) -> None:
    data = source_feeds(OWN, "")
    assert cured(tried(model, data, np.random.default_rng(5).normal(0, 1, data.shape).astype(np.float32))) == []
