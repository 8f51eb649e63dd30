"""Answers of the source framework that do not fit model and data are one line; those that fit are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime import InferenceSession
from PIL import Image

from engine import Array, ConfigError
from toolkit.adapt.golden import explained
from toolkit.adapt.work import Record, Request, Work
from utils.arrays import npz_bytes

ROWS = 12


def tensor(name: str, *shape: Any) -> dict[str, Any]:
    return {"name": name, "shape": list(shape), "dtype": "float32"}


@pytest.fixture
def work(tmp_path: Path) -> Work:
    """Return the work on y = x @ w with 12 rows of data, after the stages that ``--golden`` needs."""
    weight = np.random.default_rng(0).normal(0, 1, (4, 3)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "product")]
    ends = [helper.make_tensor_value_info(name, 1, ["N", size]) for name, size in (("x", 4), ("y", 3))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(weight, "w")])
    (tmp_path / "forms").mkdir()
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, tmp_path / "forms" / "m_dyn.onnx")
    x = np.random.default_rng(1).normal(0, 1, (ROWS, 4)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=x @ weight)
    facts: dict[str, dict[str, Any]] = {
        "export": {"ckpt": "m_dyn.onnx", "inputs": [tensor("x", "N", 4)], "outputs": [tensor("y", "N", 3)]},
        "task": {"task": "arrays"},
        "data": {"samples": ROWS, "place": "data.npz", "flags": {}},
    }
    records = {name: Record("", "", "done", 0.0, one) for name, one in facts.items()}
    return Work(Request(model="m.onnx", name="m", root=tmp_path, batch=4), tmp_path, records)


def answers(work: Work) -> Array:
    with np.load(work.folder / "data.npz") as held:
        found: Array = held["y"]
    return found


def golden(work: Work, **arrays: Array) -> Path:
    (work.folder / "golden.npz").write_bytes(npz_bytes(arrays))
    return work.folder / "golden.npz"


def test_same_outputs(work: Work) -> None:
    found = explained(work, golden(work, y=answers(work)))
    assert (found.reached, found.flags) == (True, {})
    assert "are those of golden.npz" in found.line


def test_a_last_step_explains(work: Work) -> None:
    powers = np.exp(answers(work))
    found = explained(work, golden(work, y=powers / powers.sum(axis=1, keepdims=True)))
    assert not found.reached
    assert "is explained by" in found.line
    assert "softmax" in found.line


def test_nothing_explains(work: Work) -> None:
    found = explained(work, golden(work, y=answers(work)[::-1]))
    assert not found.reached
    assert "nothing explains golden.npz" in found.line


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": np.zeros((5, 3), np.float32)}, "'y' has 5 rows, and --data 12 samples"),
        ({"y": np.float32(1)}, "'y' has 0 rows"),
        ({"y": np.zeros((ROWS, 7), np.float32)}, "has rows of shape 7, and output 'y' of the model 3"),
        ({"a": np.zeros((ROWS, 3)), "b": np.zeros((ROWS, 3))}, "write one array for each, by name"),
        ({"x": np.zeros((ROWS, 4), np.float32)}, "it has the model's inputs"),
    ],
)
def test_arrays_that_do_not_fit(arrays: dict[str, Any], message: str, work: Work) -> None:
    with pytest.raises(ConfigError, match="--golden") as caught:
        explained(work, golden(work, **arrays))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_files(work: Work, tmp_path: Path) -> None:
    (tmp_path / "answers.txt").write_text("cat\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"answers\.txt: task arrays compares arrays"):
        explained(work, tmp_path / "answers.txt")
    with pytest.raises(ConfigError, match="does not exist"):
        explained(work, tmp_path / "nothing.npz")


@pytest.fixture
def classifier(tmp_path: Path) -> Work:
    """Return the work on a classifier of 24 x 24 images, and 16 images with labels."""
    rng = np.random.default_rng(0)
    kernel, weight = (
        rng.normal(0, size, shape).astype(np.float32)
        for size, shape in ((0.004, (6, 3, 3, 3)), (0.2, (6 * 11 * 11, 5)))
    )
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], "conv", strides=[2, 2]),
        helper.make_node("Tanh", ["c"], ["t"], "tanh"),
        helper.make_node("Flatten", ["t"], ["f"], "flat"),
        helper.make_node("MatMul", ["f", "w"], ["y"], "product"),
    ]
    sizes: dict[str, list[Any]] = {"x": ["N", 3, 24, 24], "y": ["N", 5]}
    ends = [helper.make_tensor_value_info(name, 1, shape) for name, shape in sizes.items()]
    weights = [numpy_helper.from_array(kernel, "k"), numpy_helper.from_array(weight, "w")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    (tmp_path / "forms").mkdir()
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, tmp_path / "forms" / "m_dyn.onnx")
    (tmp_path / "images").mkdir()
    for place in range(16):
        levels = rng.integers(0, 256, (5, 6, 3)).astype(np.uint8)
        Image.fromarray(levels).resize((36, 30), Image.Resampling.BICUBIC).save(tmp_path / "images" / f"{place:02}.png")
    rows = "".join(f"{place:02}.png {place % 5}\n" for place in range(16))
    (tmp_path / "images" / "val.txt").write_text(rows, encoding="utf-8")
    facts: dict[str, dict[str, Any]] = {
        "export": {
            "ckpt": "m_dyn.onnx",
            "inputs": [tensor("x", "N", 3, 24, 24)],
            "outputs": [tensor("y", "N", 5)],
        },
        "task": {"task": "classification"},
        "data": {"samples": 16, "place": "images/val.txt", "flags": {"input_size": [24]}},
    }
    records = {name: Record("", "", "done", 0.0, one) for name, one in facts.items()}
    return Work(Request(model="m.onnx", name="m", root=tmp_path, batch=8), tmp_path, records)


def scores_of(work: Work, share: float, *, bgr: bool) -> Array:
    """Return the scores for images in 0..255, whose crop shows a share of the short side, made with Pillow."""
    rows, short = [], round(24 / share)
    for place in range(16):
        given = Image.open(work.folder / "images" / f"{place:02}.png")
        image = given.resize((int(short * given.width / given.height), short), Image.Resampling.BILINEAR)
        left, top = round((image.width - 24) / 2), round((image.height - 24) / 2)
        levels = np.asarray(image.crop((left, top, left + 24, top + 24)), np.float32)
        rows.append(levels[..., ::-1].transpose(2, 0, 1) if bgr else levels.transpose(2, 0, 1))
    session = InferenceSession(str(work.folder / "forms" / "m_dyn.onnx"))
    return np.asarray(session.run(None, {"x": np.ascontiguousarray(np.stack(rows))})[0])


def test_preprocessing_of_a_classifier_becomes_flags(classifier: Work) -> None:
    found = explained(classifier, golden(classifier, y=scores_of(classifier, 1.0, bgr=True)))
    assert found.flags == {"channel_order": "BGR", "pixel_values": "0..255", "resize": "1"}
    assert found.reached
    assert "golden.npz is explained by" in found.line


def test_a_classifier_without_its_softmax(classifier: Work) -> None:
    classifier.records["data"].facts["flags"] |= {"pixel_values": "0..255"}
    scores = scores_of(classifier, 0.875, bgr=False)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    found = explained(classifier, golden(classifier, y=powers / powers.sum(axis=1, keepdims=True)))
    assert (found.reached, found.flags) == (False, {})
    assert found.cause == "missing softmax"


def test_answers_of_a_classifier_need_arrays(classifier: Work, tmp_path: Path) -> None:
    (tmp_path / "answers.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ConfigError, match="supports only outputs of the source") as caught:
        explained(classifier, tmp_path / "answers.json")
    assert "\n" not in str(caught.value)
