"""Mistakes other than precision before and after a classifier of real images are found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from support import SaveOnnx

from engine import EngineSpec, open_engine
from toolkit.cli import execute
from toolkit.fix.array_samples import preprocess_like

skimage_data = pytest.importorskip("skimage.data")
linear_model = pytest.importorskip("sklearn.linear_model")

SIDE, RESIZE = 24, 28
MEAN, STD = (np.float32(v).reshape(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
Array = np.ndarray


class Trained(NamedTuple):
    """Classifier, folder of images by class, and correct inputs of the classifier."""

    model: Path
    images: Path
    x: Array
    labels: Array
    top1: float

    @property
    def files(self) -> list[Path]:
        return sorted(self.images.glob("*/*.png"))


def run(model: Path, x: Array) -> Array:
    with open_engine("onnx", EngineSpec(model)) as engine:
        return np.asarray(engine(np.ascontiguousarray(x, np.float32)))


def cut_images(folder: Path) -> None:
    """Crop images of 60 x 44 from five photographs, one class each."""
    from PIL import Image

    for name in ("astronaut", "coffee", "chelsea", "rocket", "immunohistochemistry"):
        photo = getattr(skimage_data, name)()
        (folder / name).mkdir(parents=True)
        for i in range(48):
            y, x = divmod(i, 12)
            top, left = y * (photo.shape[0] - 60) // 3, x * (photo.shape[1] - 44) // 11
            Image.fromarray(photo[top : top + 60, left : left + 44]).save(folder / name / f"{i:02d}.png")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Train the last layer on random filters of odd images; even images are the data set."""
    folder = tmp_path_factory.mktemp("suspects")
    cut_images(folder / "all")
    files = sorted((folder / "all").glob("*/*.png"))
    x = preprocess_like(files, RESIZE, (SIDE, SIDE))
    labels = np.repeat(np.arange(5), 48)
    rng = np.random.default_rng(0)
    w1, b1 = rng.normal(0, 0.3, (16, 3, 5, 5)), rng.normal(0, 0.3, 16)
    features = run(classifier(folder / "features.onnx", w1, b1, np.eye(16 * 16), np.zeros(16 * 16)), x)
    fitted = linear_model.LogisticRegression(C=0.01, max_iter=300).fit(features[1::2], labels[1::2])
    model = classifier(folder / "model.onnx", w1, b1, fitted.coef_.T, fitted.intercept_)
    for file in files[0::2]:
        (folder / "images" / file.parent.name).mkdir(parents=True, exist_ok=True)
        file.rename(folder / "images" / file.parent.name / file.name)
    right = run(model, x[0::2]).argmax(1) == labels[0::2]
    return Trained(model, folder / "images", x[0::2], labels[0::2], float(right.mean()))


def classifier(path: Path, *weights: Array) -> Path:
    """Write convolution, ReLU, 4 x 4 average pooling and a linear layer, with preprocessing metadata."""
    names = ("w1", "b1", "w2", "b2")
    constants = [numpy_helper.from_array(np.float32(w), name) for w, name in zip(weights, names, strict=True)]
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c"], "conv", strides=[2, 2], pads=[2] * 4),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("AveragePool", ["r"], ["p"], "pool", kernel_shape=[3, 3], strides=[3, 3]),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["y"], "head"),
    ]
    face = [helper.make_tensor_value_info("x", 1, ["N", 3, SIDE, SIDE]), helper.make_tensor_value_info("y", 1, None)]
    graph = helper.make_graph(nodes, "g", face[:1], face[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, {"preprocess": json.dumps({"resize_shape": RESIZE, "crop_shape": SIDE})})
    onnx.save(model, str(path))
    return path


def searched(words: list[object], folder: Path, code: int = 0) -> tuple[list[str], list[dict[str, object]]]:
    """Run ``teco fix``; return the explaining mistakes, and all tried ones in order."""
    out = folder / "fix.json"
    assert execute(["fix", *map(str, words), "--json", str(out)]) == code
    rows = json.loads(out.read_text())["rows"]
    return [row["name"] for row in rows if row["cured"]], rows


def softmax(y: Array) -> Array:
    powers = np.exp(y - y.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def plain(x: Array) -> Array:
    return x * STD + MEAN


def scaled(x: Array) -> Array:
    return (x - MEAN) / STD


FED_OTHERWISE: dict[str, Callable[[Array], Array]] = {
    "channel order: BGR": lambda x: x[:, ::-1],
    "channel order: BGR, mean and std too": lambda x: scaled(plain(x)[:, ::-1]),
    "layout: height and width exchanged": lambda x: x.swapaxes(2, 3),
    "mean and std: 0 to 1, nothing subtracted": plain,
    "mean and std: -1 to 1 (mean 0.5, std 0.5)": lambda x: plain(x) * 2 - 1,
    "mean and std: 0 to 255": lambda x: plain(x) * 255,
    "mean and std: 0 to 255, ImageNet's mean subtracted": lambda x: (plain(x) - MEAN) * 255,
}
"""What the source feeds, made from what ``teco fix`` feeds."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FED_OTHERWISE)
def test_input_mistake_is_found(name: str, trained: Trained, tmp_path: Path) -> None:
    np.savez(tmp_path / "golden.npz", y=run(trained.model, FED_OTHERWISE[name](trained.x)))
    cured, rows = searched([trained.model, "--data", trained.images, "--golden", tmp_path / "golden.npz"], tmp_path)
    assert cured == [rows[0]["name"]] == [name]
    unchanged = next(row["metric"] for row in rows if row["name"] == "nothing changed")
    assert unchanged < 0.9


def test_unknown_mean_is_fitted(trained: Trained, tmp_path: Path) -> None:
    """Images follow the metadata, so the source differs."""
    mean, std = (np.float32(v).reshape(3, 1, 1) for v in ((0.3, 0.4, 0.5), (0.4, 0.3, 0.25)))
    np.savez(tmp_path / "golden.npz", y=run(trained.model, (plain(trained.x) - mean) / std))
    cured, _ = searched([trained.model, "--data", trained.images, "--golden", tmp_path / "golden.npz"], tmp_path)
    assert cured == ["mean and std: the source has mean (0.3, 0.4, 0.5), std (0.4, 0.3, 0.25) (fitted)"]


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("resize mode: nearest", {"filter_name": "NEAREST"}),
        ("resize mode: bicubic", {"filter_name": "BICUBIC"}),
        ("resize: squashed to the input's size, no crop", {"squash": True}),
    ],
)
def test_resize_mistake_is_found(name: str, how: dict[str, object], trained: Trained, tmp_path: Path) -> None:
    x = preprocess_like(trained.files, RESIZE, (SIDE, SIDE), **how)  # type: ignore[arg-type]
    np.savez(tmp_path / "golden.npz", y=run(trained.model, x))
    words = [trained.model, "--data", trained.images, "--golden", tmp_path / "golden.npz"]
    cured, rows = searched(words, tmp_path)
    assert rows[0]["name"] == name
    assert rows[0]["metric"] == pytest.approx(1.0, abs=1e-6)
    # Of these images bicubic and Lanczos make nearly the same inputs: both explain it, the right one better.
    assert set(cured) <= {name, *(["resize mode: lanczos"] if "bicubic" in name else [])}


FED_WRONG: dict[str, Callable[[Array], Array]] = {
    "mean and std: missing so far": plain,
    "mean and std: missing so far, 0 to 255": lambda x: plain(x) * 255,
    "layout: NHWC data read as NCHW": lambda x: x.transpose(0, 2, 3, 1).reshape(x.shape),
    "layout: NCHW data read as NHWC": lambda x: x.reshape(len(x), SIDE, SIDE, 3).transpose(0, 3, 1, 2),
}
"""What ``teco fix`` is given in an array, made from what would be right."""


@pytest.mark.parametrize("name", FED_WRONG)
def test_array_mistake_is_found(name: str, trained: Trained, tmp_path: Path) -> None:
    x = np.ascontiguousarray(FED_WRONG[name](trained.x))
    np.savez(tmp_path / "data.npz", x=x.astype(np.float32), labels=trained.labels)
    np.savez(tmp_path / "golden.npz", y=run(trained.model, trained.x))
    words = [trained.model, "--data", tmp_path / "data.npz"]
    cured, _ = searched([*words, "--golden", tmp_path / "golden.npz"], tmp_path)
    assert cured == [name]
    cured, rows = searched([*words, "--metric", "top1", "--reference", trained.top1], tmp_path)
    assert name in cured
    assert "nothing changed" not in cured
    assert next(row["metric"] for row in rows if row["name"] == "nothing changed") < trained.top1 - 0.1


def test_channels_last_model_is_found(trained: Trained, tmp_path: Path) -> None:
    model = onnx.load(str(trained.model))
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", 1, ["N", SIDE, SIDE, 3]))
    model.graph.node.insert(0, helper.make_node("Transpose", ["x"], ["nchw"], "first", perm=[0, 3, 1, 2]))
    model.graph.node[1].input[0] = "nchw"
    onnx.save(model, str(tmp_path / "nhwc.onnx"))
    np.savez(tmp_path / "data.npz", x=trained.x, labels=trained.labels)
    words = [tmp_path / "nhwc.onnx", "--data", tmp_path / "data.npz"]
    cured, rows = searched([*words, "--reference", trained.top1], tmp_path)
    assert cured == ["layout: the model takes NHWC"]
    assert next(row["metric"] for row in rows if row["name"] == "nothing changed") == "nan"


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("missing softmax", softmax),
        ("missing sigmoid", lambda y: 1 / (1 + np.exp(-y))),
        ("missing logarithm of the softmax", lambda y: np.log(softmax(y))),
    ],
)
def test_missing_last_step_is_found(
    name: str, last: Callable[[Array], Array], trained: Trained, tmp_path: Path
) -> None:
    np.savez(tmp_path / "golden.npz", y=last(run(trained.model, trained.x)))
    words = [trained.model, "--data", trained.images, "--golden", tmp_path / "golden.npz"]
    assert searched(words, tmp_path)[0] == [name]


def test_missing_softmax_per_pixel(trained: Trained, tmp_path: Path, save_onnx: SaveOnnx) -> None:
    """The classes of a segmentation network are on the second axis."""
    weights = ", ".join(map(str, np.random.default_rng(0).normal(0, 2, 12)))
    model = save_onnx(
        f"net (float[N, 3, 24, 24] x) => (float[N, 4, 24, 24] y) <float[4, 3, 1, 1] w = {{{weights}}}>"
        "{ y = Conv(x, w) }"
    )
    np.savez(tmp_path / "data.npz", x=trained.x)
    np.savez(tmp_path / "golden.npz", y=softmax(run(model, trained.x)))
    words = [model, "--data", tmp_path / "data.npz", "--golden", tmp_path / "golden.npz"]
    assert searched(words, tmp_path)[0] == ["missing softmax"]


def test_correct_model_needs_no_change(trained: Trained, tmp_path: Path) -> None:
    words = [trained.model, "--data", trained.images, "--reference", trained.top1]
    cured, rows = searched(words, tmp_path)
    assert trained.top1 > 0.6
    # A last step that keeps the order of the classes does not change top1.
    assert {"nothing changed", "missing softmax", "missing sigmoid"} <= set(cured)
    assert rows[0]["name"] == "nothing changed"


def test_unexplained_reference_is_reported(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "golden.npz", y=-run(trained.model, trained.x))
    words = [trained.model, "--data", trained.images, "--golden", tmp_path / "golden.npz"]
    assert searched(words, tmp_path, code=1)[0] == []
    assert "no tried change explains it" in capsys.readouterr().out
