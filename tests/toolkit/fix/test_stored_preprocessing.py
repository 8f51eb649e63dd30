"""Preprocessing of images by the model's metadata: resize, crop, scale and filter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image
from support import SaveOnnx

from engine import DataError, InputError, ModelError, TensorSpec
from engine.onnx import load_model, metadata
from toolkit.cli import execute
from toolkit.dump.store import open_dump
from toolkit.fix.array_samples import load_samples
from toolkit.fix.samples import Samples
from toolkit.fix.suspects import _changes, _inputs
from toolkit.graph.inputs import input_specs, load_inputs
from utils.preprocess.pytorch.classification import preprocess
from utils.stored import ModelMetadata

NOTES = {"resize_shape": 40, "crop_shape": 32, "mean": [0.5, 0.4, 0.3], "std": [0.1, 0.2, 0.3]}
BICUBIC = NOTES | {"interpolation": "bicubic"}
MODEL = "net (float[N, {shape}] x) => (float[N, {shape}] y) {{ y = Relu(x) }}"


@pytest.fixture
def images(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "images"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(3):
        Image.fromarray(rng.integers(0, 256, (60 + i, 90, 3), dtype=np.uint8)).save(folder / f"{i}.png")
    return sorted(folder.iterdir())


def noted(path: Path, **notes: Any) -> Path:
    """Store notes in a model's metadata."""
    model = onnx.load(str(path))
    onnx.helper.set_model_props(model, {key: json.dumps(value) for key, value in notes.items()})
    onnx.save(model, str(path))
    return path


def of(path: Path) -> tuple[Any, ModelMetadata]:
    model = load_model(path)
    return input_specs(model), ModelMetadata(metadata(model), path)


@pytest.mark.parametrize(
    ("shape", "size"),
    [("3, 32, 32", (32, 32)), ("3, H, W", (32, 32)), ("3, 64, 64", (64, 64)), ("16, 64, 3", (16, 64))],
)
def test_single_image(shape: str, size: tuple[int, int], save_onnx: SaveOnnx, images: list[Path]) -> None:
    specs, stored = of(noted(save_onnx(MODEL.format(shape=shape)), preprocess=BICUBIC))
    (array,) = load_inputs(images[:1], specs, 2, stored)
    scale = {"mean": BICUBIC["mean"], "std": BICUBIC["std"], "interpolation": "bicubic"}
    wanted = preprocess(images[:1] * 2, "float32", max(size) * 40 // 32, size, **scale)
    np.testing.assert_array_equal(array, wanted if shape.startswith("3") else wanted.transpose(0, 2, 3, 1))


def test_single_image_without_metadata(save_onnx: SaveOnnx, images: list[Path]) -> None:
    specs, stored = of(save_onnx(MODEL.format(shape="3, H, W")))
    wanted = preprocess(images[:1], "float32")
    np.testing.assert_array_equal(load_inputs(images[:1], specs, 1, stored)[0], wanted)
    np.testing.assert_array_equal(load_inputs(images[:1], specs)[0], wanted)


def test_command_reads_metadata(save_onnx: SaveOnnx, images: list[Path], tmp_path: Path) -> None:
    model = noted(save_onnx(MODEL.format(shape="3, 32, 32")), preprocess=BICUBIC)
    assert execute(["dump", "full", str(model), "--data", str(images[0]), "--out", str(tmp_path / "dump")]) == 0
    (array,) = open_dump(tmp_path / "dump").inputs(["x"])
    np.testing.assert_array_equal(
        array, preprocess(images[0], "float32", **ModelMetadata(of(model)[1].metadata).image.scaled())
    )


def test_invalid_image_inputs(save_onnx: SaveOnnx, images: list[Path], tmp_path: Path) -> None:
    specs, stored = of(save_onnx(MODEL.format(shape="3, 32, 32")))
    (tmp_path / "torn.png").write_bytes(images[0].read_bytes()[:300])
    (tmp_path / "text.png").write_text("no image")
    for name, reason in (("torn", "damaged"), ("text", "not an image"), ("none", "no such image")):
        with pytest.raises(DataError, match=rf"{name}\.png: .*{reason}"):
            load_inputs([tmp_path / f"{name}.png"], specs, 1, stored)
    flat, _ = of(save_onnx(MODEL.format(shape="7"), "flat.onnx"))
    with pytest.raises(InputError, match="does not accept an image"):
        load_inputs(images[:1], flat)


def test_invalid_metadata(save_onnx: SaveOnnx, images: list[Path]) -> None:
    path = noted(save_onnx(MODEL.format(shape="3, 32, 32")), preprocess=NOTES | {"interpolation": "cubic"})
    specs, stored = of(path)
    with pytest.raises(ModelError, match=rf"^{path}: metadata 'preprocess': interpolation 'cubic' must be one of"):
        load_inputs(images[:1], specs, 1, stored)
    with pytest.raises(ModelError, match="interpolation 'cubic' must be one of"):
        load_samples(images[0].parent, specs, stored.metadata, 2)


def opened(path: Path, images: list[Path]) -> Samples:
    specs, stored = of(path)
    return load_samples(images[0].parent, specs, stored.metadata, 2)


@pytest.mark.parametrize("notes", [NOTES, BICUBIC, {}])
def test_a_data_set(notes: dict[str, Any], save_onnx: SaveOnnx, images: list[Path]) -> None:
    path = noted(save_onnx(MODEL.format(shape="3, H, W")), preprocess=notes)
    samples = opened(path, images)
    scale = {key: notes[key] for key in ("mean", "std", "interpolation") if key in notes}
    sizes = (notes.get("resize_shape", 256), notes.get("crop_shape", 224))

    def wanted(resize: Any = sizes[0], **changes: Any) -> np.ndarray:
        return preprocess(images, "float32", resize, sizes[1], **scale | changes)

    def together(parts: Any) -> np.ndarray:
        return np.concatenate([part.inputs[0] for part in parts])

    np.testing.assert_array_equal(together(samples), wanted())
    np.testing.assert_array_equal(together(samples.parts(filter_name="BOX")), wanted(interpolation="box"))
    np.testing.assert_array_equal(together(samples.parts(squash=True)), wanted((sizes[1], sizes[1])))


def test_suspects_use_stored_scale_and_filter(save_onnx: SaveOnnx, images: list[Path]) -> None:
    path = noted(save_onnx(MODEL.format(shape="3, 32, 32")), preprocess=BICUBIC)
    samples = opened(path, images)
    tried = {name: parts for name, parts, _ in _inputs(samples)}
    filters = {name.removeprefix("resize mode: ") for name in tried if name.startswith("resize mode")}
    assert filters == {"nearest", "bilinear", "lanczos", "box"}
    plain = preprocess(images, "float32", 40, 32, mean=0, std=1, interpolation="bicubic")
    given = preprocess(images, "float32", 40, 32, **{k: BICUBIC[k] for k in ("mean", "std", "interpolation")})
    for name, wanted in {
        "mean and std: 0 to 1, nothing subtracted": plain,
        "mean and std: 0 to 255": plain * 255,
        "channel order: BGR, mean and std too": (plain[:, ::-1] - np.reshape(BICUBIC["mean"], (1, 3, 1, 1)))
        / np.reshape(BICUBIC["std"], (1, 3, 1, 1)),
    }.items():
        changed = np.concatenate([part.inputs[0] for part in tried[name]])
        np.testing.assert_allclose(changed, wanted, atol=1e-3, rtol=1e-5)
    undone = _changes(samples.notes)["mean and std: missing so far"](plain)
    np.testing.assert_allclose(undone, given, atol=1e-5)


def test_numeric_class_folders(tmp_path: Path) -> None:
    names = sorted(map(str, range(12)))
    for name in names:
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8), (int(name) * 20, 0, 0)).save(tmp_path / name / "a.png")
    specs = [TensorSpec("x", np.dtype(np.float32), (None, 3, 8, 8))]
    samples = load_samples(tmp_path, specs, {}, 12)
    measure = samples.measure("top1")
    metric, (part,) = measure.make(), list(samples)
    with pytest.warns(UserWarning, match="folders are numbers"):
        metric.update(np.eye(12)[[int(name) for name in names]], part.targets, None)
    assert metric.compute() == 1
