# ruff: noqa: E402 - what is imported later needs what importorskip looks for
from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxsim")

from engine import ConfigError, EngineSpec, ModelError, open_engine
from utils.export.onnx_files import ExportError, ExportResult
from utils.export.torch_export import export_onnx, load_weights

pytestmark = pytest.mark.torch


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(8, 10)

    def forward(self, x: Any) -> Any:
        return self.head(torch.relu(self.norm(self.conv(x))).mean(dim=(2, 3)))


class Calls(torch.nn.Module):
    """A model of a function with one input."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


class Two(torch.nn.Module):
    def forward(self, x: Any, ids: Any) -> Any:
        return x * 2 + ids, ids + 1


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net().train()


@pytest.fixture(scope="module")
def images() -> Any:
    return torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def exported(net: Net, images: Any, tmp_path_factory: pytest.TempPathFactory) -> list[ExportResult]:
    stem = tmp_path_factory.mktemp("export") / "net"
    dynamic = {"input": {0: "batch", 2: "height", 3: "width"}, "output": {0: "batch"}}
    notes = {"labels": list("abcdefghij"), "preprocess": {"crop_shape": 16}, "provenance": {"weights": "seed 0"}}
    return export_onnx(net, images, stem, dynamic=dynamic, **notes)


def dims(path: Path) -> list[int | str]:
    [value] = onnx.load(path).graph.input
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


def answers(net: Net, x: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        answer: np.ndarray = net.eval()(torch.from_numpy(x)).numpy()
    net.train()
    return answer


@pytest.mark.slow
def test_three_files_static_and_dynamic(exported: list[ExportResult]) -> None:
    assert [r.path.name for r in exported] == ["net.onnx", "net_dyn.onnx", "net_float16_dyn.onnx"]
    assert dims(exported[0].path) == [1, 3, 16, 16]
    assert dims(exported[1].path) == dims(exported[2].path) == ["batch", 3, "height", "width"]
    half = onnx.load(exported[2].path).graph
    assert {v.type.tensor_type.elem_type for v in (*half.input, *half.output)} == {onnx.TensorProto.FLOAT16}


class Tokens(torch.nn.Module):
    """The reshapes of a transformer: class token, positions cut to the length, heads."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = torch.nn.Parameter(torch.ones(1, 1, 8)), torch.nn.Parameter(torch.rand(1, 64, 8))
        self.mix = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, length, width = x.shape
        x = torch.cat([self.token.expand(n, -1, -1), x], dim=1) + self.position[:, : length + 1]
        heads = self.mix(x).reshape(n, length + 1, 2, width // 2).transpose(1, 2)
        weights = torch.softmax(heads @ heads.transpose(2, 3), -1)
        answer: torch.Tensor = (weights @ heads).transpose(1, 2).reshape(n, length + 1, width)
        return answer


@pytest.mark.slow
def test_static_file_does_not_compute_shapes(tmp_path: Path) -> None:
    """It is derived from the dynamic graph, which computes sizes for reshapes."""
    static, free, _ = export_onnx(
        Tokens(), torch.rand(1, 5, 8), tmp_path / "tokens", dynamic={"input": {0: "batch", 1: "length"}}
    )
    kinds = [{node.op_type for node in onnx.load(result.path).graph.node} for result in (static, free)]
    assert "Shape" in kinds[1]
    assert not kinds[0] & {"Shape", "Expand", "Gather", "Slice"}
    graph = onnx.load(static.path).graph
    values = (*graph.input, *graph.output, *graph.value_info)
    assert [[dim.dim_value for dim in v.type.tensor_type.shape.dim] for v in values][:2] == [[1, 5, 8], [1, 6, 8]]
    assert not any(dim.dim_param for v in values for dim in v.type.tensor_type.shape.dim)


def test_errors_are_small_and_stored(exported: list[ExportResult]) -> None:
    for result, most in zip(exported, (1e-5, 1e-5, 1e-2), strict=True):
        stored = {prop.key: prop.value for prop in onnx.load(result.path).metadata_props}
        assert result.max_relative_error is not None
        assert 0 < result.max_relative_error < most
        assert stored["max_relative_error"] == f"{result.max_relative_error:.1e}"
        assert json.loads(stored["class_labels"]) == list("abcdefghij")
        assert json.loads(stored["preprocess"]) == {"crop_shape": 16}
        assert json.loads(stored["provenance"]) == {"weights": "seed 0", "torch": torch.__version__, "opset": "18"}


@pytest.mark.slow
def test_further_notes_are_stored_and_invalid_ones_raise(net: Net, images: Any, tmp_path: Path) -> None:
    kept = {"vocabulary": ["a", "b"], "sample_rate": 8000, "notes": {"blank": 1}}
    results = export_onnx(net, images, tmp_path / "net", **kept)
    for result in results:
        found = {prop.key: prop.value for prop in onnx.load(result.path).metadata_props}
        assert [json.loads(found[key]) for key in ("vocabulary", "sample_rate", "blank")] == [["a", "b"], 8000, 1]
    with pytest.raises(ConfigError, match=r"'preprocess': interpolation 'cubic'.*bilinear, "):
        export_onnx(torch.nn.Identity(), images, tmp_path / "none", preprocess={"interpolation": "cubic"})
    with pytest.raises(ConfigError, match=r"notes: key 'provenance'"):
        export_onnx(torch.nn.Identity(), images, tmp_path / "none", notes={"provenance": {}})
    assert not list(tmp_path.glob("none*"))


def test_files_contain_no_data_of_this_machine(exported: list[ExportResult]) -> None:
    for result in exported:
        data = result.path.read_bytes()
        assert b"torch_export" not in data
        assert b"site-packages" not in data


@pytest.mark.parametrize("shape", [(1, 3, 16, 16), (5, 3, 16, 16), (2, 3, 24, 40)])
def test_dynamic_files_match_the_source_model(net: Net, exported: list[ExportResult], shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    wanted = answers(net, x)
    for result, dtype, atol in ((exported[1], "float32", 1e-5), (exported[2], "float16", 1e-2)):
        with open_engine("onnx", EngineSpec(ckpt=result.path, dtype=dtype)) as engine:
            np.testing.assert_allclose(engine(x.astype(dtype)), wanted, rtol=1e-2, atol=atol)


def test_the_model_keeps_its_mode(net: Net, exported: list[ExportResult]) -> None:
    assert exported
    assert net.training


def test_batch_norms_are_folded(exported: list[ExportResult]) -> None:
    assert "BatchNormalization" not in {node.op_type for node in onnx.load(exported[0].path).graph.node}


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    inputs = (torch.randn(2, 4), torch.arange(8).reshape(2, 4))
    results = export_onnx(
        Two(), inputs, tmp_path / "two", input_names=["x", "ids"], output_names=["y", "next"], float16=False
    )
    assert [r.path.name for r in results] == ["two.onnx", "two_dyn.onnx"]
    with open_engine("onnx", EngineSpec(ckpt=results[1].path)) as engine:
        y, following = engine([inputs[0].numpy(), inputs[1].numpy()])
    np.testing.assert_allclose(y, (inputs[0] * 2 + inputs[1]).numpy(), rtol=1e-6)
    np.testing.assert_array_equal(following, inputs[1].numpy() + 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: torch.from_numpy(np.linalg.pinv(x.numpy())), "torch.onnx cannot export Calls: "),
        (lambda x: x.reshape(2, 8) * 2, r"cannot run inputs of shapes \[\[5, 8\]\]: .*leave the axis out of dynamic"),
        (
            lambda x: x * x.shape[0] if x.shape[0] == 5 else x,
            r"shape of 5 for dimension input.shape\[0\]; leave .*dynamic",
        ),
    ],
    ids=["no operator", "fixed batch", "constant axis"],
)
def test_models_that_cannot_be_exported(function: Callable[[Any], Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"old")
    with pytest.raises(ModelError, match=message) as caught:
        export_onnx(Calls(function), torch.randn(2, 8), tmp_path / "net", float16=False)
    assert "\n" not in str(caught.value)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("net.onnx", b"old")]


@pytest.mark.slow
def test_a_float16_overflow_is_found_and_the_other_files_are_written(tmp_path: Path) -> None:
    with pytest.raises(ExportError) as caught:
        export_onnx(Calls(lambda x: x * 3e4), torch.full((2, 3), 100.0), tmp_path / "net")
    assert re.fullmatch(
        r"net_float16_dyn.onnx: output 'output' is above float16: .* 3\.0e\+06, .* 65504; .*float16=False.*; "
        r"written: net.onnx, net_dyn.onnx",
        str(caught.value),
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.onnx", "net_dyn.onnx"]


def test_unknown_dynamic_name_raises(net: Net, images: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="dynamic names"):
        export_onnx(net, images, tmp_path / "net", dynamic={"image": {0: "batch"}})


class TestLoadWeights:
    def test_saved_files_are_loaded(self, net: Net, tmp_path: Path) -> None:
        torch.save(net.state_dict(), tmp_path / "net.pth")
        loaded = load_weights(Net(), tmp_path / "net.pth")
        assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), net.parameters(), strict=True))

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match=r"none.pth does not exist"):
            load_weights(Net(), tmp_path / "none.pth")

    @pytest.mark.parametrize("data", [b"", b"PK\x03\x04 cut short", b"text, not weights"])
    def test_damaged(self, data: bytes, tmp_path: Path) -> None:
        (tmp_path / "net.pth").write_bytes(data)
        with pytest.raises(ModelError, match=r"net.pth: damaged, or contains more") as caught:
            load_weights(Net(), tmp_path / "net.pth")
        assert "\n" not in str(caught.value)

    def test_code_is_not_run(self, net: Net, tmp_path: Path) -> None:
        torch.save(net, tmp_path / "net.pth")
        with pytest.raises(ModelError, match=r"net.pth: damaged, or contains more"):
            load_weights(Net(), tmp_path / "net.pth")

    def test_not_a_state_dict(self, tmp_path: Path) -> None:
        torch.save([1], tmp_path / "net.pth")
        with pytest.raises(ModelError, match="contains a list"):
            load_weights(Net(), tmp_path / "net.pth")

    def test_mismatching_keys_are_reported(self, net: Net, tmp_path: Path) -> None:
        state = net.state_dict()
        state["other"] = state.pop("conv.weight")
        state["head.bias"] = torch.zeros(3)
        for key in [key for key in state if key.startswith("norm.")]:
            del state[key]
        torch.save(state, tmp_path / "net.pth")
        wanted = (
            "does not match Net: missing conv.weight, norm.weight, norm.bias and 2 more; "
            "unknown other; of another shape head.bias"
        )
        with pytest.raises(ModelError, match=wanted):
            load_weights(Net(), tmp_path / "net.pth")
