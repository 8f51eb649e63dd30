"""Inputs with channels last, of one channel, and of every dtype: images go in right, or one line says why not."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from constructed_models import bound
from hypothesis import given, strategies as st
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from engine import ConfigError, EngineSpec, TensorSpec, open_engine
from toolkit.graph.inputs import load_inputs
from utils.pipeline import valid
from utils.preprocess.image.forms import image_form
from utils.stored import ModelMetadata
from utils.tasks.base import Task
from utils.tasks.classification.task import Classification
from utils.tasks.detection.task import Detection
from utils.tasks.model import Model
from utils.tasks.segmentation.task import Segmentation
from utils.tasks.text_recognition.task import TEXT_RECOGNITION

SIDE = 8
PLAIN = {"mean": [0.25, 0.5, 0.75], "std": [0.5, 0.25, 1.0], "resize_shape": SIDE, "crop_shape": SIDE}
GREY = {**PLAIN, "mean": [0.25], "std": [0.5]}
KINDS = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "float64": TensorProto.DOUBLE,
    "uint8": TensorProto.UINT8,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
}


def network(
    path: Path, dtype: str = "float32", last: bool = False, channels: int = 3, shape: Any = None, notes: Any = PLAIN
) -> Path:
    """Write a classifier whose scores are the means of the channels (of one channel: mean, its negative and 0)."""
    sizes = shape or (["N", SIDE, SIDE, channels] if last else ["N", channels, SIDE, SIDE])
    x = helper.make_tensor_value_info("x", KINDS.get(dtype, TensorProto.INT8), sizes)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])
    weights = np.eye(3) if channels == 3 else np.array([[1.0, -1.0, 0.0]])
    nodes = [helper.make_node("Cast", ["x"], ["floats"], to=TensorProto.FLOAT)]
    nodes += [helper.make_node("Transpose", ["floats"], ["planes"], perm=[0, 3, 1, 2])] if last else []
    nodes += [
        helper.make_node("GlobalAveragePool", ["planes" if last else "floats"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(weights.astype(np.float32), "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if notes is not None:
        helper.set_model_props(model, {"preprocess": json.dumps(notes)})
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(5)
    for label in range(3):
        (folder / str(label)).mkdir()
        for i in range(4):
            levels = rng.integers(0, 90, (13, 17, 3))
            levels[..., label] += 160
            Image.fromarray(levels.astype(np.uint8)).save(folder / str(label) / f"{i}.png")
    return folder


def prepared(path: Path, data: Path, target: str = "onnx") -> tuple[np.ndarray, np.ndarray]:
    """Return what ``prepare`` makes of all images, and what the model answers."""
    task = bound(Classification, None, input_size=[SIDE])
    with open_engine(target, EngineSpec(path, dtype="float32", input_size=task.input_size(), images=True)) as engine:
        found = task.bind(Model.of(engine)).prepare(sorted(data.glob("*/*.png")))
        (array,) = task.collate([found])
        assert array.dtype == engine.inputs[0].dtype
        return array, engine(array)  # type: ignore[return-value]


@pytest.mark.parametrize("target", ["onnx", "cpu", "sdaa"])
@pytest.mark.parametrize("shape", [None, ["N", "h", "w", 3], [1, SIDE, SIDE, 3], ["N", SIDE, "w", 3]])
def test_channels_last_are_the_transposed_input(shape: Any, target: str, data: Path, tmp_path: Path) -> None:
    first, scores = prepared(network(tmp_path / "first.onnx"), data, target)
    last, same = prepared(network(tmp_path / "last.onnx", last=True, shape=shape), data, target)
    np.testing.assert_array_equal(last, first.transpose(0, 2, 3, 1))
    # target cpu takes the fastest engine for each of the two graphs, which need not be the same one
    np.testing.assert_allclose(same, scores, rtol=1e-6 if target == "cpu" else 0, atol=0)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", list(KINDS))
def test_dtypes_hold_the_normalised_samples_or_the_levels(dtype: str, last: bool, data: Path, tmp_path: Path) -> None:
    array, _ = prepared(network(tmp_path / "m.onnx", dtype, last), data)
    wanted, _ = prepared(
        network(tmp_path / "f.onnx", notes={**PLAIN, "mean": 0, "std": 1} if "int" in dtype else PLAIN), data
    )
    wanted = np.rint(wanted * 255) if "int" in dtype else wanted
    wanted = wanted.transpose(0, 2, 3, 1) if last else wanted
    np.testing.assert_array_equal(array, wanted.astype(dtype))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_grey_inputs(dtype: str, last: bool, data: Path, tmp_path: Path) -> None:
    array, _ = prepared(network(tmp_path / "m.onnx", dtype, last, channels=1, notes=GREY), data)
    image = Image.open(min(data.glob("*/*.png"))).convert("L")
    assert array.shape[1:] == ((SIDE, SIDE, 1) if last else (1, SIDE, SIDE))
    mean = float(array[0].mean(dtype=np.float64))
    mean = mean if dtype == "uint8" else (mean * 0.5 + 0.25) * 255
    assert mean == pytest.approx(np.asarray(image, np.float64)[:, 2:-2].mean(), abs=6)


@pytest.mark.parametrize("notes", [None, PLAIN])
def test_a_grey_input_needs_its_own_mean(notes: Any, data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="store one"):
        prepared(network(tmp_path / "m.onnx", channels=1, notes=notes), data)


@pytest.mark.parametrize(
    ("shape", "dtype", "said"),
    [
        ((None, 4, 8, 8), "float32", "images need"),
        ((None, 8, 8, 4), "float32", "images need"),
        ((None, 8, 8), "float32", "images need"),
        ((None, 3, 8, 8, 8), "float32", "images need"),
        ((None, 3, 8, 8), "int8", "takes int8"),
        ((None, 8, 8, 3), "bool", "takes bool"),
        ((None, 3, 8, 8), "object", "takes object"),
    ],
)
def test_models_without_an_image_input_are_one_line(shape: Any, dtype: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        image_form(TensorSpec("x", np.dtype(dtype), shape), Path("m.onnx"))
    assert "\n" not in str(caught.value)


SIZES = st.none() | st.integers(1, 9)


@given(st.tuples(st.none(), SIZES, SIZES, SIZES))
def test_the_only_possible_channel_axis_is_used(shape: tuple[int | None, ...]) -> None:
    first, last = shape[1] in (1, 3), shape[3] in (1, 3)
    try:
        form = image_form(TensorSpec("x", np.dtype(np.float32), shape), Path("m.onnx"))
    except ConfigError:
        assert not first
        assert not last
        assert shape[1] is not None
        return
    assert form.last == (last and not first)
    assert form.size == (shape[1:3] if form.last else shape[2:])
    assert form.either == (first and last)
    assert bool(form.line) or (shape[1] in (3, None) and not last)


def run(task: type[Task], path: Path, data: Path, result: Path, *words: str) -> dict[str, Any]:
    argv = ["--target", "onnx", "--json", str(result), *words]
    assert valid.main(None, task, argv=argv, ckpt=path, data_path=data, batch_size=5) == 0
    found: dict[str, Any] = json.loads(result.read_text())
    return found


@pytest.mark.parametrize("dtype", ["float32", "uint8", "float64"])
def test_a_run_reports_it(dtype: str, data: Path, tmp_path: Path) -> None:
    path = network(tmp_path / "m.onnx", dtype, last=True, notes=None)
    with pytest.warns(UserWarning, match="channels come last"):
        assert run(Classification, path, data, tmp_path / "r.json", "--input_size", str(SIDE))["metric"] == 1


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.filterwarnings("ignore:.*(channels come last|levels 0 to 255)")
def test_segmentation_and_detection_take_them_too(dtype: str, tmp_path: Path) -> None:
    Image.new("RGB", (SIDE, SIDE), (250, 20, 120)).save(tmp_path / "a.png")
    arrays = {}
    for last in (False, True):
        kind = np.dtype(dtype)
        shape = (None, SIDE, SIDE, 3) if last else (None, 3, SIDE, SIDE)
        spec = TensorSpec("x", kind, shape, symbols=("N", None, None, None))
        notes = {"preprocess": json.dumps(PLAIN), "detection": json.dumps({"resize": "stretch"})}
        model = Model(Path("m.onnx"), (spec,), (), dtype, metadata=notes)
        for kind_of_task in (Segmentation, Detection):
            task = bound(kind_of_task, model, "single")
            (array,) = task.collate([task.prepare([tmp_path / "a.png"])])
            assert array.shape[1:] == shape[1:]
            arrays[task.name, last] = array.transpose(0, 3, 1, 2) if last else array
    for task in (Segmentation, Detection):
        np.testing.assert_array_equal(arrays[task.name, False], arrays[task.name, True])
        if dtype == "uint8":
            assert arrays[task.name, True][0, :, 0, 0].tolist() == [250, 20, 120]


@pytest.mark.parametrize(("dtype", "last"), [("uint8", False), ("uint8", True), ("float64", True), ("float32", True)])
def test_tools_give_an_image_in_the_same_form(dtype: str, last: bool, data: Path, tmp_path: Path) -> None:
    array, _ = prepared(network(tmp_path / "m.onnx", dtype, last), data)
    shape = (None, SIDE, SIDE, 3) if last else (None, 3, SIDE, SIDE)
    spec = TensorSpec("x", np.dtype(dtype), shape)
    file = min(data.glob("*/*.png"))
    (found,) = load_inputs([file], [spec], 1, ModelMetadata({"preprocess": json.dumps(PLAIN)}))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, array[:1])


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64", "bool"])
def test_tasks_that_give_floats_refuse_other_inputs(dtype: str, data: Path) -> None:
    spec = TensorSpec("x", np.dtype(dtype), (None, 3, 32, None), symbols=("N", None, None, "w"))
    with pytest.raises(ConfigError, match="gives floats"):
        bound(TEXT_RECOGNITION, Model(Path("m.onnx"), (spec,), (), dtype)).prepare([min(data.glob("*/*.png"))])
    assert Model(Path("m.onnx"), dtype="float64").float_dtype == "float64"


def test_another_model_replaces_the_settings_of_the_first(data: Path) -> None:
    task, files = bound(Classification, None, input_size=[SIDE]), sorted(data.glob("*/*.png"))[:2]
    given = [json.dumps({"mean": [mean] * 3, "std": [1.0] * 3}) for mean in (0.0, 1.0)]
    spec = TensorSpec("x", np.dtype(np.float32), (None, 3, SIDE, SIDE))
    models = [Model(Path("m.onnx"), (spec,), metadata={"preprocess": one}) for one in given]
    first, second = (task.bind(model).prepare(files).arrays[0] for model in models)
    np.testing.assert_allclose(first - second, 1, atol=1e-6)
    again = pickle.loads(pickle.dumps(task)).prepare(files).arrays[0]  # noqa: S301
    np.testing.assert_array_equal(again, second)
