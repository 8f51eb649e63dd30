# ruff: noqa: E402 - what is imported later needs what importorskip looks for
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxsim")

import onnx

from engine import ConfigError, ModelError
from utils.export.networks.torchvision_models import build, images_of, import_torchvision, plain

pytestmark = pytest.mark.torch

SCRIPT = "classification/resnet/export_onnx.py"


@pytest.fixture(scope="module", autouse=True)
def torchvision() -> object:
    return import_torchvision()


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "empty"))
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # the discard port: refused at once
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


def test_import_twice_gives_the_same_module(torchvision: object) -> None:
    assert import_torchvision() is torchvision


def test_random_weights_are_seeded_and_stay_in_range() -> None:
    (one, labels, preprocess), (two, _, _) = build("resnet18", "random"), build("resnet18", "random")
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))
    assert not one.training
    assert len(labels) == 1000
    assert labels[281] == "tabby"
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    sizes = {"resize_shape": 256, "crop_shape": 224}
    assert preprocess == {**sizes, "mean": mean, "std": std, "interpolation": "bilinear"}
    with torch.no_grad():
        answer = one(torch.randn(2, 3, 64, 64))
    assert 0.01 < answer.std() < 100


def test_preprocessing_of_published_weights(torchvision: Any) -> None:
    bicubic = plain(images_of(torchvision.models.Swin_T_Weights.IMAGENET1K_V1).scaled())
    assert bicubic == {"resize_shape": 232, "crop_shape": 224, "interpolation": "bicubic"} | {
        "mean": [0.485, 0.456, 0.406],
        "std": [0.229, 0.224, 0.225],
    }
    assert plain(images_of(torchvision.models.EfficientNet_V2_L_Weights.IMAGENET1K_V1).scaled())["mean"] == [
        0.5,
        0.5,
        0.5,
    ]


def test_preset_with_two_sizes_and_nearest_exact(torchvision: Any) -> None:
    preset = torchvision.transforms._presets.ImageClassification(
        crop_size=4, interpolation=torchvision.transforms.InterpolationMode.NEAREST_EXACT
    )
    preset.resize_size = [8, 6]
    weights = SimpleNamespace(transforms=lambda: preset, meta={"categories": ["a"]})
    found = plain(images_of(weights).scaled())
    assert (found["resize_shape"], found["crop_shape"], found["interpolation"]) == ([8, 6], 4, "nearest")


def test_the_callers_random_state_is_kept() -> None:
    torch.manual_seed(7)
    wanted = torch.rand(1)
    torch.manual_seed(7)
    build("resnet18", "random")
    assert torch.equal(torch.rand(1), wanted)


def test_weights_from_a_file(tmp_path: Path) -> None:
    source = build("resnet18", "random")[0]
    torch.save(source.state_dict(), tmp_path / "mine.pth")
    loaded = build("resnet18", str(tmp_path / "mine.pth"))[0]
    assert not loaded.training
    assert torch.equal(loaded.fc.weight, source.fc.weight)


@pytest.mark.parametrize(
    ("arch", "weights", "message"),
    [
        ("resnet5", "random", "unknown arch 'resnet5'; did you mean 'resnet50'"),
        ("zzz", "random", "unknown arch 'zzz'; use one of "),
        (
            "resnet18",
            "IMAGENET1K_V2",
            "unknown weights 'IMAGENET1K_V2' for resnet18; did you mean 'IMAGENET1K_V1'.* random, or the",
        ),
    ],
)
def test_unknown_names(arch: str, weights: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(arch, weights)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        build("resnet18", str(tmp_path / "none.pth"))


@pytest.mark.usefixtures("no_network")
def test_failed_download_is_one_line() -> None:
    with pytest.raises(ModelError, match=r"resnet50 IMAGENET1K_V2.*https://.*--weights path.pth") as caught:
        build("resnet50", "IMAGENET1K_V2")
    assert "\n" not in str(caught.value)


class TestScript:
    @pytest.mark.long
    @pytest.mark.slow
    def test_export_with_random_weights(
        self, script: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        options = ("--arch", "resnet18", "--weights", "random", "--input_size", 64, "--batch_size", 2)
        assert script(SCRIPT, *options, "--out", tmp_path) == 0
        first, *lines = capsys.readouterr().out.splitlines()
        assert first == "random weights: for functional and speed checks only"
        names = ["resnet18.onnx", "resnet18_dyn.onnx", "resnet18_float16_dyn.onnx"]
        assert sorted(path.name for path in tmp_path.iterdir()) == names
        assert all(name in line and "largest relative error" in line for name, line in zip(names, lines, strict=True))
        static = onnx.load(tmp_path / "resnet18.onnx")
        assert [d.dim_value for d in static.graph.input[0].type.tensor_type.shape.dim] == [2, 3, 64, 64]
        stored = {prop.key: prop.value for prop in static.metadata_props}
        assert '"crop_shape": 64' in stored["preprocess"]
        assert '"resize_shape": 73' in stored["preprocess"]
        assert '"weights": "random"' in stored["provenance"]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--weights", "none.pth"], "none.pth does not exist"),
            (["--weights", "IMAGENET1K_V9"], "unknown weights 'IMAGENET1K_V9'"),
            (["--batch_size", "0"], "--batch_size 0 must be at least 1"),
        ],
    )
    def test_invalid_flags_exit_with_2(
        self,
        options: list[str],
        message: str,
        script: Callable[..., int],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        assert script(SCRIPT, *options, "--out", tmp_path) == 2
        printed = capsys.readouterr().err
        assert message in printed
        assert printed.count("\n") == 1
        assert not list(tmp_path.iterdir())
