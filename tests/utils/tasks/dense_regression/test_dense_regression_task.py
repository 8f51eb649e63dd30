"""Dense regression: one image or two, one output or two, sizes, settings, files, and what is refused."""

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

from engine import ConfigError, InputError, ModelError
from tecoinfer_modelzoo import evaluate
from utils.datasets.image.dense_maps import MappedImage
from utils.pipeline import answers, valid
from utils.tasks.dense_regression.inputs import DenseMap
from utils.tasks.dense_regression.task import DenseRegression

MEAN = np.full((1, 3, 1, 1), 1 / 3, np.float32)
PLAIN = {"resize_shape": 8, "crop_shape": 8, "mean": [0.0] * 3, "std": [1.0] * 3}


def model(path: Path, text: str, weights: dict[str, np.ndarray] | None = None, **notes: Any) -> Path:
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> net {text}')
    made.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in (weights or {}).items())
    props = {"preprocess": json.dumps(PLAIN), "dense_regression": json.dumps(notes)}
    helper.set_model_props(made, props)
    onnx.save(made, path)
    return path


def grey_level(path: Path, size: str = "H,W", **notes: Any) -> Path:
    """A model whose depth is the mean of the three channels of 0..1."""
    text = f"(float[N,3,{size}] x) => (float[N,1,{size}] y) {{ y = Conv(x, w) }}"
    return model(path, text, {"w": MEAN}, **notes)


def two_views(path: Path, size: str = "H,W", **notes: Any) -> Path:
    """A model of two images: the difference of their means as disparity, and a confidence, which comes first."""
    text = f"""(float[N,3,{size}] a, float[N,3,{size}] b) => (float[N,1,{size}] conf, float[N,{size}] disp) {{
        one = Conv(a, w)
        two = Conv(b, w)
        off = Sub(one, two)
        conf = Sigmoid(off)
        axis = Constant<value_ints = [1]>()
        disp = Squeeze(off, axis)
    }}"""
    return model(path, text, {"w": 255 * MEAN}, **{"quantity": "disparity", **notes})


def image(path: Path, level: int | np.ndarray, height: int = 6, width: int = 10) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.broadcast_to(np.asarray(level, np.uint8), (height, width))
    Image.fromarray(np.stack([pixels] * 3, -1)).save(path)
    return path


def scenes(folder: Path, shift: int = 4) -> Path:
    """Two scenes, whose disparity is ``shift`` levels everywhere by the model of two views."""
    for number, level in enumerate((60, 90)):
        image(folder / "left" / f"{number}.png", level + shift)
        image(folder / "right" / f"{number}.png", level)
        (folder / "disparity").mkdir(exist_ok=True)
        Image.fromarray(np.full((6, 10), 256 * shift, np.uint16)).save(folder / "disparity" / f"{number}.png")
    return folder


def predicted(ckpt: Path, samples: list[MappedImage], **options: Any) -> list[DenseMap]:
    with opened(ckpt, "onnx") as engine:
        task = bound(DenseRegression, described(engine), "multi", **options)
        task.setup({"model": engine}, None)
        prepared = task.prepare(samples)
        found: list[DenseMap] = task.decode(engine(task.collate([prepared])), prepared.contexts)
    return found


def run(script: Any, ckpt: Path, data: Path, *words: str) -> int:
    where = {"ckpt": ckpt, "data_path": data, "argv": ["--target", "onnx", *words]}
    if script is valid:
        return int(valid.main(None, DenseRegression, **where))
    return int(answers.main(None, DenseRegression, "multi", **where))


def test_two_inputs_and_two_outputs_from_file_to_metric(tmp_path: Path) -> None:
    report = evaluate(DenseRegression, ckpt=two_views(tmp_path / "a.onnx"), data=scenes(tmp_path / "d"), target="onnx")
    assert (report.metric_name, report.metric) == ("epe", pytest.approx(0, abs=1e-4))
    assert report.secondary["epe_surest"] == pytest.approx(0, abs=1e-4)
    swapped = evaluate(
        DenseRegression, ckpt=tmp_path / "a.onnx", data=tmp_path / "d", target="onnx", view_order="right_left"
    )
    assert swapped.metric == pytest.approx(4, abs=1e-3)  # -4 is clipped to 0


def test_disparity_is_scaled_with_the_width(tmp_path: Path) -> None:
    """Of an input half as wide as the image, a disparity of 4 is 8 in the image."""
    scenes(tmp_path / "d")
    sample = MappedImage((tmp_path / "d/left/0.png", tmp_path / "d/right/0.png"))
    (found,) = predicted(two_views(tmp_path / "a.onnx", "3,5"), [sample])
    np.testing.assert_allclose(found.values, np.full((6, 10), 8), atol=1e-4)
    assert found.confidence is not None
    np.testing.assert_allclose(found.confidence, 1 / (1 + np.exp(-4)), atol=1e-4)
    (depth,) = predicted(two_views(tmp_path / "b.onnx", "3,5", quantity="depth"), [sample])
    np.testing.assert_allclose(depth.values, np.full((6, 10), 4), atol=1e-4)


def test_images_of_several_sizes_share_a_batch(tmp_path: Path) -> None:
    """Open inputs are filled up to the stored multiple, and to the largest image of the batch; it is cut off again."""
    chance = np.random.default_rng(0)
    levels = [chance.integers(1, 255, size) for size in ((6, 10), (9, 7), (12, 12))]
    samples = [MappedImage((image(tmp_path / f"{place}.png", one, *one.shape),)) for place, one in enumerate(levels)]
    for found, wanted in zip(predicted(grey_level(tmp_path / "a.onnx", multiple=4), samples), levels, strict=True):
        np.testing.assert_allclose(found.values, wanted / 255, atol=1e-5)


@pytest.mark.parametrize(("order", "place"), [("RGB", 0), ("BGR", 2)])
@pytest.mark.parametrize(("values", "low", "span"), [("0..1", 0, 1), ("-1..1", -1, 2), ("0..255", 0, 255)])
def test_channels_and_range(tmp_path: Path, order: str, place: int, values: str, low: float, span: float) -> None:
    weight = np.zeros((1, 3, 1, 1), np.float32)
    weight[0, 0] = 1  # the first channel of the input
    text = "(float[N,3,H,W] x) => (float[N,1,H,W] y) { y = Conv(x, w) }"
    ckpt = model(tmp_path / "a.onnx", text, {"w": weight}, channel_order=order, pixel_values=values)
    pixels = np.random.default_rng(1).integers(0, 256, (5, 6, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    (found,) = predicted(ckpt, [MappedImage((tmp_path / "a.png",))])
    np.testing.assert_allclose(found.values, low + span * (pixels[..., place] / 255), atol=1e-4)


def test_inverse_depth_with_an_alignment(tmp_path: Path) -> None:
    """As MiDaS: the model's numbers are the inverse depth up to scale and shift."""
    chance = np.random.default_rng(2)
    for name in ("a", "b"):
        level = chance.integers(20, 200, (6, 10))
        image(tmp_path / "d" / "rgb" / f"{name}.png", level)
        (tmp_path / "d" / "depth").mkdir(exist_ok=True)
        np.save(tmp_path / "d" / "depth" / f"{name}.npy", 1 / (0.002 * level + 0.1))
    ckpt = grey_level(tmp_path / "a.onnx", relation="inverse", align="scale_shift")
    good = evaluate(DenseRegression, ckpt=ckpt, data=tmp_path / "d", target="onnx")
    assert (good.metric_name, good.metric) == ("abs_rel", pytest.approx(0, abs=1e-4))
    assert evaluate(DenseRegression, ckpt=ckpt, data=tmp_path / "d", target="onnx", align="none").metric > 0.2


def test_maps_are_drawn_and_written(tmp_path: Path) -> None:
    scenes(tmp_path / "d")
    ckpt = two_views(tmp_path / "a.onnx")
    words = ("--save", str(tmp_path / "drawn"), "--json", str(tmp_path / "r.json"))
    assert run(answers, ckpt, tmp_path / "d", *words) == 0
    found = json.loads((tmp_path / "r.json").read_text())["answers"]
    assert [one["answer"]["median"] for one in found] == pytest.approx([4, 4], abs=1e-3)
    with Image.open(tmp_path / "drawn" / "0.png") as drawn:
        assert drawn.width > 3 * 10  # image, map and confidence
    assert run(valid, ckpt, tmp_path / "d", "--save_predictions", str(tmp_path / "kept")) == 0
    with Image.open(tmp_path / "kept" / "1.png") as kept:
        assert np.array(kept).tolist() == np.full((6, 10), 4 * 256).tolist()


def test_bad_samples_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line each, and exit code 1; the rest is evaluated."""
    folder = scenes(tmp_path / "d")
    for name in ("2", "3", "4", "5"):
        image(folder / "left" / f"{name}.png", 70)
        image(folder / "right" / f"{name}.png", 66, 6, 11 if name == "2" else 10)
        size = (5, 10) if name == "3" else (6, 10)
        Image.fromarray(np.full(size, 0 if name == "4" else 256, np.uint16)).save(folder / "disparity" / f"{name}.png")
    (folder / "left" / "5.png").write_bytes(b"no image")
    assert run(valid, two_views(tmp_path / "a.onnx"), folder, "--json", str(tmp_path / "r.json")) == 1
    assert json.loads((tmp_path / "r.json").read_text())["samples"] == 2
    text = "".join(capsys.readouterr())
    assert "Traceback" not in text
    for named in ("right/2.png", "disparity/3.png", "disparity/4.png", "left/5.png"):
        assert sum(named in line for line in text.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--metric", "abs_rel"), "epe, d1, rmse"),
        (("--value_scale", "0"), "--value_scale 0"),
        (("--least", "9", "--most", "3"), "--least 9"),
        (("--most", "-1"), "--most -1"),
        (("--pixel_values", "imagenet", "--input_size", "1", "2", "3"), "--input_size"),
    ],
)
def test_wrong_flags(tmp_path: Path, words: tuple[str, ...], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        run(valid, two_views(tmp_path / "a.onnx"), scenes(tmp_path / "d"), *words)


@pytest.mark.parametrize("notes", [{"relation": "log"}, {"multiple": 0}, {"most": "far"}, {"view_order": 1}])
def test_wrong_metadata(tmp_path: Path, notes: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=next(iter(notes))):
        run(valid, two_views(tmp_path / "a.onnx", **notes), scenes(tmp_path / "d"))


def test_models_of_another_kind(tmp_path: Path) -> None:
    file = MappedImage((image(tmp_path / "a.png", 70),))
    text = "(float[N,3,H,W] x) => (float[N,3,H,W] y) { y = Identity(x) }"
    with pytest.raises(InputError, match="one number per pixel"):
        predicted(model(tmp_path / "a.onnx", text), [file])
    text = "(float[N,3,H,W] x) => (float[N,1,H,W] confidence) { confidence = Conv(x, w) }"
    with pytest.raises(ModelError, match="only output"):
        predicted(model(tmp_path / "b.onnx", text, {"w": MEAN}), [file])
    three = "(float[N,3,H,W] a, float[N,3,H,W] b, float[N,3,H,W] c) => (float[N,3,H,W] y) { y = Sum(a, b, c) }"
    with pytest.raises(ConfigError, match="3 inputs"):
        run(valid, model(tmp_path / "c.onnx", three), scenes(tmp_path / "d"))


def test_answers_of_the_source_framework(tmp_path: Path) -> None:
    folder = scenes(tmp_path / "d")
    (tmp_path / "golden").mkdir()
    np.save(tmp_path / "golden" / "0.npy", np.full((6, 10), 4.0))
    with opened(two_views(tmp_path / "a.onnx"), "onnx") as engine:
        task = bound(DenseRegression, described(engine), "valid", models={"model": tmp_path / "a.onnx"})
        answer, missing = task.reference_answers(tmp_path / "golden", task.load({"data": folder}))
        assert missing is None
        assert task.agreement(DenseMap(np.full((6, 10), 4.0), None), answer) == 1
        assert task.agreement(DenseMap(np.full((6, 10), 5.0), None), answer) == pytest.approx(0.75)
        assert task.agreement(DenseMap(np.full((6, 11), 4.0), None), answer) == 0
