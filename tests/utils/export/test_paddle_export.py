from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # paddle warns about a missing compiler cache when it is imported
    paddle = pytest.importorskip("paddle")
    pytest.importorskip("paddle2onnx")

from engine import ConfigError, EngineSpec, ModelError, open_engine
from utils.export.onnx_files import ExportError
from utils.export.paddle_export import export_paddle_onnx

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


class Net(paddle.nn.Layer):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.conv = paddle.nn.Conv2D(3, 8, 3, stride=2, padding=1)
        self.norm = paddle.nn.BatchNorm2D(8)
        self.head = paddle.nn.Linear(8, 10)

    def forward(self, x: Any) -> Any:
        return self.head(paddle.nn.functional.relu(self.norm(self.conv(x))).mean(axis=[2, 3]))


@pytest.fixture(scope="module")
def net() -> Net:
    paddle.seed(0)
    return Net()


def test_writes_three_checked_files(net: Net, tmp_path: Path, images: np.ndarray) -> None:
    dynamic = {"input": {0: "batch", 2: "height", 3: "width"}}
    results = export_paddle_onnx(net, images, tmp_path / "net", dynamic=dynamic, labels=["a"] * 10)
    assert [r.path.name for r in results] == ["net.onnx", "net_dyn.onnx", "net_float16_dyn.onnx"]
    assert all(r.max_relative_error is not None and r.max_relative_error < 5e-3 for r in results)
    free = onnx.load(results[1].path)
    assert [d.dim_param for d in free.graph.input[0].type.tensor_type.shape.dim] == ["batch", "", "height", "width"]
    assert [o.name for o in free.graph.output] == ["output"]
    noted = {prop.key: prop.value for prop in free.metadata_props}
    assert json.loads(noted["class_labels"]) == ["a"] * 10
    assert json.loads(noted["provenance"])["paddle"] == paddle.__version__
    assert net.training  # as it was


def test_further_notes_are_stored(net: Net, tmp_path: Path, images: np.ndarray) -> None:
    kept = {"vocabulary": ["a", "b"], "sample_rate": 8000, "notes": {"blank": 1}}
    for result in export_paddle_onnx(net, images, tmp_path / "net", float16=False, **kept):
        noted = {prop.key: prop.value for prop in onnx.load(result.path).metadata_props}
        assert [json.loads(noted[key]) for key in ("vocabulary", "sample_rate", "blank")] == [["a", "b"], 8000, 1]


def test_outputs_match_the_source_model(net: Net, tmp_path: Path, images: np.ndarray) -> None:
    results = export_paddle_onnx(net, images, tmp_path / "net", float16=False)
    net.eval()
    wanted = net(paddle.to_tensor(images)).numpy()
    net.train()
    with open_engine("onnx", EngineSpec(ckpt=results[1].path)) as engine:
        np.testing.assert_allclose(engine(images), wanted, rtol=1e-4, atol=1e-5)


def test_failed_export_is_one_line(tmp_path: Path, images: np.ndarray) -> None:
    class Broken(paddle.nn.Layer):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x.reshape([2, -1]) if x.shape[0] == 2 else paddle.to_tensor(x.numpy())

    with pytest.raises(ExportError) as caught:
        export_paddle_onnx(Broken(), images, tmp_path / "net", float16=False)
    assert str(caught.value).startswith("net_dyn.onnx: paddle2onnx cannot export Broken: ")
    assert "rank inconsistency" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]  # the branch for the example's size


class Structured(paddle.nn.Layer):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.linear = paddle.nn.Linear(4, 1)

    def forward(self, image: Any, parts: Any, scale: float = 1.0, mask: Any = None) -> Any:
        y = self.linear(image["x"]) * scale + parts[0]
        return {"logits": y, "none": mask, "inner": (y, image["x"])}


def test_nested_inputs_and_outputs(tmp_path: Path) -> None:
    x = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)
    model, example = Structured(), {"image": {"x": x}, "parts": [paddle.to_tensor(x[:, :1])], "scale": 2.0}
    for result in export_paddle_onnx(model, example, tmp_path / "m"):
        graph = onnx.load(result.path).graph
        assert [value.name for value in graph.input] == ["image_x", "parts_0"]
        assert [value.name for value in graph.output] == ["logits", "inner_0", "inner_1"]
    with open_engine("onnx", EngineSpec(ckpt=tmp_path / "m_dyn.onnx")) as engine:
        found = engine([x[:2], x[:2, :1]])
    wanted = model({"x": paddle.to_tensor(x[:2])}, [paddle.to_tensor(x[:2, :1])], 2.0)["logits"].numpy()
    for got, one in zip(found, (wanted, wanted, x[:2]), strict=True):
        np.testing.assert_allclose(got, one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exporter": "dynamo"}, "unknown exporter 'dynamo'.*'paddle2onnx'"),
        ({"custom_translation_table": {print: print}}, "custom_translation_table.*paddle2onnx"),
        ({"output_names": ["input"]}, "'input' is the name of an input"),
        ({"output_names": ["a", "b"]}, "2 names.*: output;"),
        ({"dynamic": {"x": {0: "batch"}}}, r"dynamic names \['x'\]"),
    ],
)
def test_invalid_options_raise(
    options: dict[str, Any], message: str, net: Net, tmp_path: Path, images: np.ndarray
) -> None:
    with pytest.raises(ConfigError, match=message):
        export_paddle_onnx(net, images, tmp_path / "net", **options)
    assert not list(tmp_path.iterdir())


def test_below_float16(tmp_path: Path, images: np.ndarray) -> None:
    class Tiny(paddle.nn.Layer):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x * 1e-9

    with pytest.raises(ExportError, match=r"output 'output' is below float16: .*float16=False.*; written: net.onnx, "):
        export_paddle_onnx(Tiny(), images, tmp_path / "net")


def test_dropout_in_eval_mode_raises(tmp_path: Path, images: np.ndarray) -> None:
    class Noisy(paddle.nn.Layer):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return paddle.nn.functional.dropout(x, 0.5)

    with pytest.raises(ModelError, match=r"output 'output' .*not deterministic"):
        export_paddle_onnx(Noisy(), images, tmp_path / "net")


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype(np.float32)
