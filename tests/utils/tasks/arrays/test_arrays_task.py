"""The task for any model, from files to metrics and answers: several inputs and outputs, any batch axis, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image

from engine import Array, ConfigError, DataError
from tecoinfer_modelzoo import evaluate, predict
from utils.tasks.arrays.task import Arrays

PAIR = """<ir_version: 8, opset_import: ["" : 17]>
pair (float[N,3] a, int32[N] b) => (float[N,3] sum, float[N] dot)
{
  c = Cast<to = 1>(b)
  axis = Constant<value_ints = [1]>()
  d = Unsqueeze(c, axis)
  sum = Add(a, d)
  e = Mul(a, sum)
  dot = ReduceSum<keepdims = 0>(e, axis)
}
"""


def saved(text: str, file: Path) -> Path:
    onnx.save(onnx.parser.parse_model(text), file)
    return file


def unary(file: Path, shape: str, op: str = "Identity", dtype: str = "float") -> Path:
    return saved(
        f'<ir_version: 8, opset_import: ["" : 17]>\nm ({dtype}[{shape}] x) => ({dtype}[{shape}] y) {{ y = {op}(x) }}',
        file,
    )


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    return saved(PAIR, tmp_path / "pair.onnx")


def pair_data(file: Path, count: int = 10, **more: Any) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(count, 3)).astype(np.float32), rng.integers(-3, 4, count).astype(np.int64)
    total = a + b[:, None]
    noise = rng.normal(0, 0.1, (count, 4))
    arrays = {"a": a, "b": b, "sum": total + noise[:, :3], "dot": (a * total).sum(axis=1) + noise[:, 3]} | more
    np.savez(file, **arrays)
    return {**arrays, "noise": noise}


@pytest.mark.parametrize("target", ["onnx", "sdaa", "cpu"])
@pytest.mark.parametrize("batch_size", [1, 4, 16])
def test_several_inputs_and_outputs(target: str, batch_size: int, pair: Path, tmp_path: Path) -> None:
    noise = pair_data(tmp_path / "val.npz")["noise"]
    report = evaluate(
        Arrays, ckpt=pair, data=tmp_path / "val.npz", target=target, dtype="float32", batch_size=batch_size,
        metric=["dot=mae", "sum=rmse"],
    )  # fmt: skip
    assert (report.metric_name, report.higher_is_better, report.samples) == ("dot_mae", False, 10)
    assert report.metric == pytest.approx(np.abs(noise[:, 3]).mean(), rel=1e-4)
    assert report.secondary["sum_rmse"] == pytest.approx(np.sqrt((noise[:, :3] ** 2).mean()), rel=1e-4)


def test_the_metric_of_other_outputs_follows_from_their_expected_arrays(pair: Path, tmp_path: Path) -> None:
    pair_data(tmp_path / "val.npz", sum=np.zeros(10, np.int64))
    report = evaluate(Arrays, ckpt=pair, data=tmp_path / "val.npz", metric=["dot=cosine"])
    assert report.metric_name == "dot_cosine"
    assert 0 <= report.secondary["sum_top1"] <= 1
    assert evaluate(Arrays, ckpt=pair, data=tmp_path / "val.npz").metric_name == "sum_top1"


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        (["rmse"], ["sum=rmse", "dot=rmse"]),
        (["dott=rmse"], ["'dott'", "did you mean 'dot'"]),
        (["dot=rmsee"], ["rmsee", "did you mean 'rmse'"]),
        (["dot=top0"], ["top0"]),
        (["dot=rmse", "dot=mae"], ["'dot' is given twice"]),
        (["rmse", "mae"], ["two metrics have no output"]),
    ],
)
def test_wrong_metrics(metric: list[str], words: list[str], pair: Path, tmp_path: Path) -> None:
    pair_data(tmp_path / "val.npz")
    with pytest.raises(ConfigError) as caught:
        evaluate(Arrays, ckpt=pair, data=tmp_path / "val.npz", metric=metric)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("flags", [{"tolerance": -1}, {"peak": 0}, {"topk": 0}, {"random_range": ["a"]}])
def test_wrong_values_of_flags(flags: dict[str, Any], pair: Path, tmp_path: Path) -> None:
    pair_data(tmp_path / "val.npz")
    with pytest.raises(ConfigError, match=f"--{next(iter(flags))}"):
        evaluate(Arrays, ckpt=pair, data=tmp_path / "val.npz", **flags)


def test_no_data(pair: Path) -> None:
    with pytest.raises(ConfigError, match="--random 64"):
        evaluate(Arrays, ckpt=pair)


def test_whole_numbers_of_a_regression_are_not_classes(tmp_path: Path) -> None:
    model = unary(tmp_path / "m.onnx", "N,1", "Neg")
    (tmp_path / "v.csv").write_text("age,label\n3,-3\n5,-4\n")
    report = evaluate(Arrays, ckpt=model, data=tmp_path / "v.csv")
    assert (report.metric_name, report.metric) == ("rmse", pytest.approx(0.5**0.5))


def test_classes_that_are_off_by_one_are_a_hint(tmp_path: Path) -> None:
    model, labels = unary(tmp_path / "m.onnx", "N,6"), np.arange(40) % 5
    np.savez(tmp_path / "v.npz", x=np.eye(6, dtype=np.float32)[labels], y=labels + 1)
    report = evaluate(Arrays, ckpt=model, data=tmp_path / "v.npz", batch_size=8)
    assert (report.metric_name, report.metric) == ("top1", 0)
    (hint,) = report.hints
    assert "output 'y'" in hint
    assert "40 of 40" in hint
    np.savez(tmp_path / "v.npz", x=np.eye(6, dtype=np.float32)[labels], y=labels)
    assert not evaluate(Arrays, ckpt=model, data=tmp_path / "v.npz", batch_size=8).hints


WRONG = {
    "shape": ({"a": np.zeros((10, 4), np.float32)}, ["'a'", "samples of shape 3", "has 4", "shape"]),
    "axes": ({"a": np.zeros((10, 1, 3), np.float32)}, ["'a'", "array[0]"]),
    "float for int": ({"b": np.zeros(10)}, ["'b'", "int32", "float64", "astype(np.int32)"]),
    "too large": ({"b": np.full(10, 2**40)}, ["'b'", "beyond int32"]),
    "infinite": ({"a": np.full((10, 3), 1e300)}, ["'a'", "beyond float32"]),
    "expected": ({"sum": np.zeros((10, 2))}, ["output 'sum'", "3", "2"]),
}


@pytest.mark.parametrize("kind", WRONG)
def test_arrays_that_do_not_fit_the_model_are_one_line(kind: str, pair: Path, tmp_path: Path) -> None:
    changed, words = WRONG[kind]
    pair_data(tmp_path / "val.npz", **changed)
    with pytest.raises(DataError) as caught:
        evaluate(Arrays, ckpt=pair, data=tmp_path / "val.npz", metric=["sum=rmse"])
    text = str(caught.value)
    assert "\n" not in text
    assert text.count("'a'") + text.count("'b'") + text.count("'sum'") == 1, "one line for the file, not one per sample"
    assert all(word in text for word in words), text
    assert "val.npz" in text


def test_a_wrong_expected_array_names_its_file(pair: Path, tmp_path: Path) -> None:
    """Of a folder, the file whose expected array does not fit; the first two do."""
    arrays = pair_data(tmp_path / "all.npz")
    folder = tmp_path / "samples"
    folder.mkdir()
    for place in range(3):
        own = {name: array[place] for name, array in arrays.items() if name != "noise"}
        own["sum"] = np.zeros(2) if place == 2 else own["sum"]
        np.savez(folder / f"{place}.npz", **own)
    with pytest.raises(DataError, match=r"2\.npz: output 'sum'.* 2;"):
        evaluate(Arrays, ckpt=pair, data=folder, metric=["sum=rmse"], batch_size=3)


def test_another_order_of_axes_is_suggested(tmp_path: Path) -> None:
    model = unary(tmp_path / "m.onnx", "N,3,8,9")
    np.savez(tmp_path / "v.npz", x=np.zeros((2, 8, 9, 3), np.float32))
    with pytest.raises(DataError, match=r"sample\.transpose\(2, 0, 1\)"):
        predict(Arrays, tmp_path / "v.npz", ckpt=model)


def test_a_wrong_file_of_a_folder_does_not_stop_the_others(pair: Path, tmp_path: Path) -> None:
    arrays = pair_data(tmp_path / "all.npz")
    folder = tmp_path / "samples"
    folder.mkdir()
    for place in range(4):
        rows = {name: arrays[name][place] for name in ("a", "b", "sum", "dot")}
        np.savez(folder / f"{place}.npz", **(rows | ({"a": np.zeros(7, np.float32)} if place == 2 else {})))
    report = evaluate(Arrays, ckpt=pair, data=folder, metric=["sum=mae"], batch_size=4)
    assert report.samples == 3
    (failure,) = report.failures
    assert failure.name.endswith("2.npz")
    assert "'a'" in failure.reason


def test_nan_in_an_input_is_listed(pair: Path, tmp_path: Path) -> None:
    arrays = pair_data(tmp_path / "val.npz")
    a = arrays["a"].copy()
    a[3, 1] = np.nan
    pair_data(tmp_path / "val.npz", a=a)
    report = evaluate(Arrays, ckpt=pair, data=tmp_path / "val.npz", metric=["sum=mae"], batch_size=4)
    assert [Path(name).name for name in report.nan_inputs] == ["val.npz[3]"]


@pytest.mark.parametrize("target", ["onnx", "sdaa"])
def test_time_major_model(target: str, tmp_path: Path) -> None:
    model = unary(tmp_path / "m.onnx", "6,batch,2", "Neg")
    x = np.random.default_rng(0).normal(size=(5, 6, 2)).astype(np.float32)
    np.savez(tmp_path / "v.npz", x=x, y=-x)
    report = evaluate(Arrays, ckpt=model, data=tmp_path / "v.npz", target=target, batch_size=4)
    assert (report.metric_name, report.samples) == ("rmse", 5)
    assert report.metric < 1e-2


@pytest.mark.parametrize("target", ["onnx", "sdaa"])
def test_model_of_a_fixed_batch(target: str, tmp_path: Path) -> None:
    model = unary(tmp_path / "m.onnx", "2,3", "Neg")
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    np.savez(tmp_path / "v.npz", x=x, y=-x)
    report = evaluate(Arrays, ckpt=model, data=tmp_path / "v.npz", target=target, batch_size=8)
    assert report.samples == 5
    assert report.metric < 1e-2


def test_input_without_a_batch_axis(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[N,2] x, float[2] scale) => (float[N,2] y) { y = Mul(x, scale) }"""
    model = saved(text, tmp_path / "m.onnx")
    x, scale = np.ones((4, 2), np.float32), np.tile(np.float32([2, 3]), (4, 1))
    np.savez(tmp_path / "v.npz", x=x, scale=scale, y=x * scale)
    assert evaluate(Arrays, ckpt=model, data=tmp_path / "v.npz", batch_size=4).metric == 0
    scale[2] = 5
    np.savez(tmp_path / "v.npz", x=x, scale=scale, y=x * scale)
    assert evaluate(Arrays, ckpt=model, data=tmp_path / "v.npz", batch_size=1).metric == 0
    with pytest.raises(DataError, match="scale"):
        evaluate(Arrays, ckpt=model, data=tmp_path / "v.npz", batch_size=4)


def test_samples_of_different_sizes(tmp_path: Path) -> None:
    model = unary(tmp_path / "m.onnx", "N,time", "Neg")
    folder = tmp_path / "samples"
    folder.mkdir()
    for place, size in enumerate((3, 5)):
        np.savez(folder / f"{place}.npz", x=np.ones(size, np.float32), y=-np.ones(size, np.float32))
    assert evaluate(Arrays, ckpt=model, data=folder, batch_size=1).metric == 0
    with pytest.raises(DataError, match=r"different shapes|bring them to one shape"):
        evaluate(Arrays, ckpt=model, data=folder, batch_size=2)
    (first, second) = predict(Arrays, folder, ckpt=model, batch_size=2, pad=7.0)
    assert first.answer["y"] == [-1, -1, -1, -7, -7]
    assert second.answer["y"] == [-1] * 5


def test_a_table_takes_the_shape_of_the_input(tmp_path: Path) -> None:
    model = unary(tmp_path / "m.onnx", "N,1,2,2", "Neg", "int32")
    (tmp_path / "v.csv").write_text("1,2,3,4\n5,6,7,8\n")
    found = predict(Arrays, tmp_path / "v.csv", ckpt=model)
    assert [one.answer["y"] for one in found] == [[[[-1, -2], [-3, -4]]], [[[-5, -6], [-7, -8]]]]
    (tmp_path / "v.csv").write_text("1,2,3,4.5\n")
    with pytest.raises(DataError, match="int32"):
        predict(Arrays, tmp_path / "v.csv", ckpt=model)


def test_samples_of_python_calls(pair: Path) -> None:
    a = np.float32([1, 2, 3])
    samples = [{"a": a, "b": np.int32(2)}, (a, np.int32(3)), [a, np.array(4)]]
    assert [one.answer["sum"] for one in predict(Arrays, samples, ckpt=pair)] == [[3, 4, 5], [4, 5, 6], [5, 6, 7]]
    failures = predict(Arrays, [{"a": a}, (a,), *samples], ckpt=pair).failures
    assert ["'b'" in one.reason or "a, b" in one.reason for one in failures] == [True, True]


SHAPES = {
    "3,16,20": ("image", (20, 16)),
    "16,20,3": ("image", (20, 16)),
    "1,16,20": ("map", (20, 16)),
    "16,20": ("map", (20, 16)),
    "40": ("curve", (512, 256)),
    "2,40": ("curve", (512, 256)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_images_maps_and_curves_are_drawn(shape: str, tmp_path: Path) -> None:
    sizes = [int(size) for size in shape.split(",")]
    x = np.linspace(0, 1, int(np.prod(sizes)), dtype=np.float32).reshape(1, *sizes)
    np.savez(tmp_path / "v.npz", x=x)
    (found,) = predict(Arrays, tmp_path / "v.npz", ckpt=unary(tmp_path / "m.onnx", f"N,{shape}"))
    file = found.save(tmp_path / "out")
    kind, (width, height) = SHAPES[shape]
    with Image.open(file) as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    factor = max(1, 256 // max(width, height)) if kind != "curve" else 1
    left = (pixels.shape[1] - width * factor) // 2
    drawn = pixels[: height * factor : factor, left : left + width * factor : factor]
    if kind == "curve":
        lit = (drawn.max(axis=2) > 100).any(axis=0)
        assert lit[10:-10].all(), "the line goes from the left to the right"
    else:
        expected = x[0] if sizes[0] not in (1, 3) else np.moveaxis(x[0], 0, -1)
        expected = np.broadcast_to(expected.reshape(height, width, -1), drawn.shape)
        np.testing.assert_allclose(drawn, expected * 255, atol=1)


def test_nothing_is_drawn_for_few_numbers(pair: Path) -> None:
    (found,) = predict(Arrays, [(np.zeros(3, np.float32), np.int32(1))], ckpt=pair)
    with pytest.raises(ConfigError):
        found.save("out")
    assert found.text == "sum 1 1 1; dot 0"


def test_labels_of_the_model_are_shown(tmp_path: Path) -> None:
    file = unary(tmp_path / "m.onnx", "N,3")
    model = onnx.load(file)
    onnx.helper.set_model_props(model, {"class_labels": json.dumps(["cat", "dog", "owl"])})
    onnx.save(model, file)
    (found,) = predict(Arrays, [np.float32([0.1, 0.7, 0.2])], ckpt=file)
    assert found.text.startswith("dog")
    assert found.answer == {"y": pytest.approx([0.1, 0.7, 0.2])}


def test_large_outputs_are_described_in_the_answer(tmp_path: Path) -> None:
    x = np.arange(600, dtype=np.float32)
    (found,) = predict(Arrays, [x], ckpt=unary(tmp_path / "m.onnx", "N,600"))
    assert found.answer == {"y": {"shape": [600], "min": 0, "max": 599}}
