# ruff: noqa: E402 - what is imported later needs what importorskip looks for
"""Networks for image restoration by name: sizes of the published ones, files equal to PyTorch, folders of weights."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxsim")
if not find_spec("torchvision") or not find_spec("transformers"):
    pytest.skip("needs torchvision and transformers", allow_module_level=True)

from exported_networks import check_metric, check_outputs, exported, parameters
from PIL import Image

from engine import ConfigError, ModelError
from utils.export.networks.transformers_detectors import transformers
from utils.export.networks.vision.architecture import Asked, network
from utils.export.networks.vision.categories import Categories
from utils.export.networks.vision.restoration_networks import ARCHS, LIGHT, TINY, from_folder
from utils.export.scripts.image_network import RESTORATION, export_network
from utils.tasks.image_restoration.task import ImageRestoration

pytestmark = pytest.mark.torch

PUBLISHED = {
    "edsr_baseline_x2": 1.369859,
    "edsr_baseline_x3": 1.554499,
    "edsr_baseline_x4": 1.517571,
    "edsr_x2": 40.7,
    "edsr_x3": 43.7,
    "edsr_x4": 43.1,
    "swin2sr_lightweight_x2": 1.0,
    "swin2sr_classical_x2": 12.1,
}
"""Millions of parameters: EDSR by the paper and its authors' logs, Swin2SR by its paper."""

MEAN_SHIFTS = 24 / 1e6
"""Of EDSR's fixed layers, which its authors count."""


@pytest.mark.parametrize("arch", PUBLISHED)
def test_as_many_parameters_as_published(arch: str) -> None:
    found = parameters(ARCHS[arch], Asked(ARCHS[arch].size, Categories())) / 1e6
    assert found + (MEAN_SHIFTS if arch.startswith("edsr") else 0) == pytest.approx(PUBLISHED[arch], rel=0.02)


def test_weights_have_the_published_names() -> None:
    asked = Asked((48, 48), Categories())
    with torch.device("meta"):
        edsr, espcn = (ARCHS[name].build(asked).state_dict() for name in ("edsr_baseline_x4", "espcn_x3"))
    wanted = {
        "sub_mean.weight": (3, 3, 1, 1),
        "head.0.bias": (64,),
        "body.15.body.2.weight": (64, 64, 3, 3),
        "body.16.weight": (64, 64, 3, 3),
        "tail.0.2.weight": (256, 64, 3, 3),
        "tail.1.bias": (3,),
    }
    assert {key: tuple(edsr[key].shape) for key in wanted} == wanted
    assert [tuple(espcn[f"conv{place}.weight"].shape[:2]) for place in range(1, 5)] == [
        (64, 1),
        (64, 64),
        (32, 64),
        (9, 32),
    ]
    assert len(espcn) == 8


def originals(folder: Path) -> Path:
    rng = np.random.default_rng(2)
    (folder / "HR").mkdir(parents=True)
    for place in range(2):
        noise = Image.fromarray(rng.integers(0, 256, (7, 9, 3)).astype(np.uint8))
        noise.resize((60, 44), Image.Resampling.BICUBIC).save(folder / "HR" / f"{place}.png")
    return folder


SIZES = {"espcn_x2": [16, 24], "edsr_baseline_x2": [16], "swin2sr_tiny_x2": [16]}


@pytest.mark.slow
@pytest.mark.parametrize("arch", SIZES)
@pytest.mark.long
def test_outputs_and_metric_equal_pytorchs(arch: str, tmp_path: Path) -> None:
    found = network(ARCHS, arch, "random", SIZES[arch])
    ckpt = exported(found, tmp_path)
    check_outputs(found, ckpt)
    check_metric(ImageRestoration, found, ckpt, originals(tmp_path), input_size=list(found.asked.size), y_channel=True)


def test_edsr_with_zero_weights_returns_the_mean() -> None:
    made = ARCHS["edsr_baseline_x3"].build(Asked((8, 8), Categories()))
    with torch.no_grad():
        for value in made.parameters():
            if value.requires_grad:
                value.zero_()
        found = made(torch.full((1, 3, 8, 8), 255.0))
    wanted = 255 * torch.tensor([0.4488, 0.4371, 0.4040])
    torch.testing.assert_close(found, wanted.reshape(1, 3, 1, 1).expand(1, 3, 24, 24))


@pytest.mark.slow
@pytest.mark.long
def test_a_folder_of_transformers(tmp_path: Path) -> None:
    found = transformers()
    torch.manual_seed(0)
    made = found.Swin2SRForImageSuperResolution(found.Swin2SRConfig(**TINY, window_size=4, upscale=3))
    made.save_pretrained(tmp_path / "mine")
    small = network(ARCHS, "unused", str(tmp_path / "mine"), [16], folders=from_folder)
    assert (small.name, small.of.multiple) == ("mine", 4)
    assert small.of.notes(small.asked)["restoration"]["scale"] == 3
    check_outputs(small, exported(small, tmp_path))
    assert export_network("x", tmp_path, RESTORATION, [
        "--weights", str(tmp_path / "mine"), "--input_size", "16", "--forms", "float16_dyn"
    ]) == 0  # fmt: skip
    assert (tmp_path / "mine_float16_dyn.onnx").is_file()


def test_published_configurations_are_whole() -> None:
    config = transformers().Swin2SRConfig(**LIGHT)
    assert (config.num_layers, config.window_size, config.image_size) == (4, 8, 64)


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["--arch", "edsr_x5"], ConfigError, "unknown arch 'edsr_x5'; did you mean 'edsr_x"),
        (["--arch", "swin2sr_tiny_x2", "--input_size", "20"], ConfigError, "swin2sr_tiny_x2 takes .* multiples of 8"),
        (["--weights", "mine.pth"], ModelError, "mine.pth does not exist"),
    ],
)
def test_invalid_flags_are_one_line(words: list[str], error: type[Exception], message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message) as got:
        export_network("x", tmp_path, RESTORATION, ["--weights", "random", *words])
    assert "\n" not in str(got.value)


def test_other_models_in_folders_are_one_line(tmp_path: Path) -> None:
    made = transformers().Swin2SRForImageSuperResolution(transformers().Swin2SRConfig(num_channels=1, **TINY))
    made.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="a swin2sr of 1 channels; use Swin2SR of RGB images"):
        from_folder(str(tmp_path))
