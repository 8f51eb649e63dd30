"""Image restoration: tiles, channels, kinds of outputs, settings by metadata, files, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from constructed_models import bound, described, opened
from onnx import helper, numpy_helper, parser
from PIL import Image

from engine import ConfigError, DataError, InputError, ModelError
from tecoinfer_modelzoo import evaluate
from utils.datasets.image.restored import Degradation, ImagePair, read_pair
from utils.pipeline import answers, valid
from utils.tasks.image_restoration.task import ImageRestoration

CHANCE = np.random.default_rng(4)
FILTERS = CHANCE.normal(0, 0.2, (3, 3, 3, 3)).astype(np.float32)


def model(path: Path, text: str, weights: dict[str, np.ndarray] | None = None, **notes: Any) -> Path:
    """Write a model in ONNX's text form, with metadata of image restoration."""
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> net {text}')
    made.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in (weights or {}).items())
    if notes:
        helper.set_model_props(made, {"restoration": json.dumps(notes)})
    onnx.save(made, path)
    return path


def filtered(path: Path, size: str = "H,W", **notes: Any) -> Path:
    """Two convolutions: an output pixel depends on pixels up to 2 away."""
    text = f"""(float[N,3,{size}] x) => (float[N,3,{size}] y) {{
        a = Conv<pads = [1, 1, 1, 1]>(x, w)
        b = Tanh(a)
        y = Conv<pads = [1, 1, 1, 1]>(b, w)
    }}"""
    return model(path, text, {"w": FILTERS}, **notes)


def identity(path: Path, channels: int = 3, dtype: str = "float", **notes: Any) -> Path:
    return model(path, f"({dtype}[N,{channels},H,W] x) => ({dtype}[N,{channels},H,W] y) {{ y = Identity(x) }}", **notes)


def photo(path: Path, height: int = 40, width: int = 56) -> Path:
    rows, columns = np.mgrid[:height, :width]
    waves = [127 + 90 * np.sin(rows / 5 + columns / 9 + shift) for shift in (0, 1, 2)]
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.stack(waves, -1).astype(np.uint8)).save(path)
    return path


def restored(ckpt: Path, samples: list[Any], script: str = "multi", **options: Any) -> list[np.ndarray]:
    """Return the answers of a task to samples, and check that their outputs are one per sample."""
    size = options.get("input_size")
    shapes = None if size is None else [(None, 3, size, size)]
    with opened(ckpt, "onnx", **({} if shapes is None else {"input_size": shapes})) as engine:
        task = bound(ImageRestoration, described(engine), script, **options)
        task.setup({"model": engine}, None)
        prepared = task.prepare(samples)
        outputs = task.infer({"model": engine}, task.collate([prepared]), prepared.contexts)
        assert len(outputs) == len(samples)
        found: list[np.ndarray] = task.decode(outputs, prepared.contexts)
    return found


@pytest.mark.parametrize("side", [16, 24, 40])
def test_tiles_give_what_the_whole_image_gives(tmp_path: Path, side: int) -> None:
    """Overlaps of twice the radius of the receptive field; images of several sizes are in one batch."""
    images = [photo(tmp_path / f"{i}.png", *size) for i, size in enumerate([(40, 56), (43, 97), (64, 40)])]
    whole = restored(filtered(tmp_path / "open.onnx"), images)
    fixed = filtered(tmp_path / "fixed.onnx", f"{side},{side}", tile_overlap=4)
    for one, other in zip(whole, restored(fixed, images), strict=True):
        assert one.shape == other.shape
        assert np.abs(one.astype(int) - other).max() <= 1  # rounding of a different order of sums
    assert all((one == other).mean() > 0.999 for one, other in zip(whole, restored(fixed, images), strict=True))


def test_too_little_overlap_differs(tmp_path: Path) -> None:
    """So the test above can fail."""
    image = [photo(tmp_path / "a.png")]
    (whole,) = restored(filtered(tmp_path / "open.onnx"), image)
    (found,) = restored(filtered(tmp_path / "fixed.onnx", "16,16", tile_overlap=0), image)
    assert (found != whole).any()


@pytest.mark.parametrize("order", ["RGB", "BGR"])
@pytest.mark.parametrize("values", ["0..1", "-1..1", "0..255"])
def test_an_identity_returns_the_image(tmp_path: Path, order: str, values: str) -> None:
    file = photo(tmp_path / "a.png", 11, 17)
    ckpt = identity(tmp_path / "a.onnx", channel_order=order, pixel_values=values)
    np.testing.assert_array_equal(restored(ckpt, [file])[0], np.asarray(Image.open(file)))


def test_channels_and_range_reach_the_model(tmp_path: Path) -> None:
    file = photo(tmp_path / "a.png", 11, 17)
    with opened(identity(tmp_path / "a.onnx", channel_order="BGR", pixel_values="-1..1"), "onnx") as engine:
        task = bound(ImageRestoration, described(engine), "multi")
        (array,) = task.prepare([file]).arrays[0]
    levels = np.asarray(Image.open(file))[:, :, ::-1].transpose(2, 0, 1)
    np.testing.assert_allclose(array[0], levels / 127.5 - 1, atol=1e-6)


def test_one_channel_is_the_luma(tmp_path: Path) -> None:
    """Chroma is kept, so that only the conversion's rounding changes the image."""
    file = photo(tmp_path / "a.png", 12, 16)
    (found,) = restored(identity(tmp_path / "a.onnx", 1), [file])
    assert np.abs(found.astype(int) - np.asarray(Image.open(file))).max() <= 3
    doubled = model(
        tmp_path / "b.onnx",
        '(float[N,1,H,W] x) => (float[N,1,P,Q] y) { y = Resize<mode = "nearest">(x, , scales) }',
        {"scales": np.array([1, 1, 2, 2], np.float32)},
    )
    (found,) = restored(doubled, [file])
    y = np.asarray(Image.open(file).convert("YCbCr"))[..., 0].repeat(2, 0).repeat(2, 1).astype(int)
    assert np.abs(np.asarray(Image.fromarray(found).convert("YCbCr"))[..., 0] - y).max() <= 2


def test_levels_and_channels_last(tmp_path: Path) -> None:
    file = photo(tmp_path / "a.png", 12, 16)
    text = "(uint8[N,12,16,3] x) => (uint8[N,12,16,3] y) { y = Identity(x) }"
    np.testing.assert_array_equal(restored(model(tmp_path / "a.onnx", text), [file])[0], np.asarray(Image.open(file)))


@pytest.mark.parametrize(("kind", "sign"), [("residual", 1), ("noise", -1)])
def test_outputs_that_are_differences(tmp_path: Path, kind: str, sign: int) -> None:
    file = photo(tmp_path / "a.png", 12, 16)
    text = "(float[N,3,H,W] x) => (float[N,3,H,W] y) { z = Mul(x, c) y = Add(z, d) }"
    weights = {"c": np.array(0, np.float32), "d": np.array(10 / 255, np.float32)}
    (found,) = restored(model(tmp_path / "a.onnx", text, weights, output=kind), [file])
    np.testing.assert_array_equal(found, np.asarray(Image.open(file)).astype(int) + sign * 10)
    (image,) = restored(tmp_path / "a.onnx", [file], output="image")
    assert (image == 10).all()


def test_sides_are_filled_up_to_the_stored_multiple(tmp_path: Path) -> None:
    file = photo(tmp_path / "a.png", 11, 17)
    ckpt = identity(tmp_path / "a.onnx", multiple=8)
    with opened(ckpt, "onnx") as engine:
        task = bound(ImageRestoration, described(engine), "multi")
        (array,) = task.prepare([file]).arrays[0]
    assert array.shape == (1, 3, 16, 24)
    np.testing.assert_array_equal(array[0, :, 11:, 17:], np.broadcast_to(array[0, :, 10:11, 16:17], (3, 5, 7)))
    assert restored(ckpt, [file])[0].shape == (11, 17, 3)


def test_a_denoiser_by_generated_noise(tmp_path: Path) -> None:
    """The metric of an identity is that of the noisy images."""
    for name in ("a", "b"):
        photo(tmp_path / "data" / f"{name}.png")
    report = evaluate(
        ImageRestoration, ckpt=identity(tmp_path / "a.onnx"), data=tmp_path / "data", target="onnx", noise_sigma=15.0
    )
    pairs = [
        read_pair(ImagePair(None, tmp_path / "data" / f"{name}.png"), Degradation("noise", 1, 15.0)) for name in "ab"
    ]
    noise = [np.mean((low.astype(float) - high) ** 2) for low, high in pairs]
    assert report.metric == pytest.approx(np.mean([10 * np.log10(255**2 / one) for one in noise]))
    assert report.secondary["input_psnr"] == pytest.approx(report.metric)


def run(script: Any, ckpt: Path, data: Any, *words: str) -> int:
    where = {"ckpt": ckpt, "data_path": data, "argv": ["--target", "onnx", *words]}
    if script is valid:
        return int(valid.main(None, ImageRestoration, **where))
    return int(answers.main(None, ImageRestoration, "multi", **where))


def test_restored_images_are_written(tmp_path: Path) -> None:
    file = photo(tmp_path / "data" / "a.png")
    ckpt = identity(tmp_path / "a.onnx")
    assert run(answers, ckpt, tmp_path / "data", "--save", str(tmp_path / "drawn")) == 0
    np.testing.assert_array_equal(
        np.asarray(Image.open(tmp_path / "drawn/restored/a.png")), np.asarray(Image.open(file))
    )
    with Image.open(tmp_path / "drawn/a.png") as drawn:
        assert drawn.width > 2 * 56
    words = ("--save_predictions", str(tmp_path / "kept"), "--noise_sigma", "0")
    assert run(valid, ckpt, tmp_path / "data", *words) == 0
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "kept/a.png")), np.asarray(Image.open(file)))


def test_a_bad_pair_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line each, and exit code 1; the others are evaluated."""
    for name in "abcd":
        photo(tmp_path / "high" / f"{name}.png")
        photo(tmp_path / "low" / f"{name}.png")
    (tmp_path / "low" / "b.png").write_bytes(b"no image")
    (tmp_path / "high" / "c.png").write_bytes((tmp_path / "high" / "a.png").read_bytes()[:60])
    (tmp_path / "low" / "d.png").unlink()
    words = ("--json", str(tmp_path / "r.json"))
    assert run(valid, identity(tmp_path / "a.onnx"), tmp_path, *words) == 1
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["samples"] == 1
    text = "".join(capsys.readouterr())
    assert "Traceback" not in text
    for named in ("low/b.png", "high/c.png", "high/d.png"):
        assert sum(named in line for line in text.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--tile_overlap", "-1"), "--tile_overlap -1"),
        (("--noise_sigma", "300"), "--noise_sigma 300"),
        (("--crop_border", "-2"), "--crop_border -2"),
        (("--scale", "0"), "--scale 0"),
        (("--channel_order", "Y"), "--channel_order RGB or BGR"),
    ],
)
def test_wrong_flags(tmp_path: Path, words: tuple[str, ...], named: str) -> None:
    photo(tmp_path / "data" / "a.png")
    with pytest.raises(ConfigError, match=named):
        run(valid, identity(tmp_path / "a.onnx", scale=1), tmp_path / "data", *words)


def test_a_wrong_scale(tmp_path: Path) -> None:
    photo(tmp_path / "data" / "a.png")
    with pytest.raises(DataError, match=r"56 x 40.*--scale"):
        run(valid, identity(tmp_path / "a.onnx", scale=1), tmp_path / "data", "--scale", "2")


@pytest.mark.parametrize(
    "notes", [{"pixel_values": "0..2"}, {"scale": 1.5}, {"multiple": 0}, {"crop_border": True}, {"output": 1}]
)
def test_wrong_metadata(tmp_path: Path, notes: dict[str, Any]) -> None:
    photo(tmp_path / "data" / "a.png")
    with pytest.raises(ModelError, match=next(iter(notes))):
        run(valid, identity(tmp_path / "a.onnx", **notes), tmp_path / "data")


def test_a_model_of_another_kind(tmp_path: Path) -> None:
    file = photo(tmp_path / "a.png", 12, 16)
    text = "(float[N,3,H,W] x) => (float[N,3,P,Q] y) { y = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(x) }"
    with pytest.raises(InputError, match="whole number"):
        restored(model(tmp_path / "a.onnx", text), [file])
    with pytest.raises(ConfigError, match="--scale"):
        restored(tmp_path / "a.onnx", [ImagePair(None, file)], "valid")
