# ruff: noqa: E402 - what is imported later needs what importorskip looks for
"""Networks for depth and disparity by name: sizes of the published ones, files equal to PyTorch, folders of weights."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxsim")
if not all(map(find_spec, ("torchvision", "timm", "transformers"))):
    pytest.skip("needs torchvision, timm and transformers", allow_module_level=True)

from exported_networks import check_metric, check_outputs, exported, parameters
from PIL import Image

from engine import ConfigError, ModelError
from utils.export.networks.transformers_detectors import transformers
from utils.export.networks.vision.architecture import Asked, Network, network
from utils.export.networks.vision.categories import Categories
from utils.export.networks.vision.depth_networks import ARCHS, from_folder
from utils.export.scripts.image_network import DEPTH, export_network
from utils.tasks.dense_regression.task import DenseRegression

pytestmark = pytest.mark.torch

PUBLISHED = {
    "midas_v21_small": 21,
    "midas_v21": 105,
    "dpt_large": 344,
    "depth_anything_small": 24.8,
    "depth_anything_base": 97.5,
    "depth_anything_large": 335.3,
    "depth_anything_v2_small": 24.8,
    "depth_anything_v2_base": 97.5,
    "depth_anything_v2_large": 335.3,
    "psmnet": 5.224768,
}
"""Millions of parameters by the pages of MiDaS (also for DPT), Depth Anything and PSMNet."""


def any_classes(size: tuple[int, int]) -> Asked:
    return Asked(size, Categories())


@pytest.mark.parametrize("arch", PUBLISHED)
def test_as_many_parameters_as_published(arch: str) -> None:
    found = ARCHS[arch]
    assert parameters(found, any_classes(found.size)) / 1e6 == pytest.approx(PUBLISHED[arch], rel=0.02)


@pytest.mark.parametrize(
    ("arch", "key", "shape"),
    [
        ("midas_v21_small", "pretrained.layer1.0.weight", (32, 3, 3, 3)),
        ("midas_v21_small", "pretrained.layer1.4.0.conv_pw.weight", (144, 24, 1, 1)),
        ("midas_v21_small", "scratch.refinenet4.out_conv.weight", (256, 512, 1, 1)),
        ("midas_v21_small", "scratch.output_conv.4.bias", (1,)),
        ("midas_v21", "pretrained.layer1.4.0.conv2.weight", (256, 8, 3, 3)),
        ("midas_v21", "scratch.refinenet1.resConfUnit2.conv2.bias", (256,)),
        ("psmnet", "feature_extraction.firstconv.0.0.weight", (32, 3, 3, 3)),
        ("psmnet", "feature_extraction.branch1.1.0.weight", (32, 128, 1, 1)),
        ("psmnet", "dres4.conv6.0.weight", (64, 32, 3, 3, 3)),
        ("psmnet", "classif3.2.weight", (1, 32, 3, 3, 3)),
        ("dpt_large", "neck.reassemble_stage.readout_projects.3.0.weight", (1024, 2048)),
        ("depth_anything_v2_small", "neck.convs.3.weight", (64, 384, 3, 3)),
    ],
)
def test_weights_have_the_published_names(arch: str, key: str, shape: tuple[int, ...]) -> None:
    with torch.device("meta"):
        state = ARCHS[arch].build(any_classes(ARCHS[arch].size)).state_dict()
    assert state[key].shape == shape


def scenes(folder: Path, size: tuple[int, int] = (48, 80)) -> Path:
    """Write three pairs of smooth images, and true values that increase to the right."""
    rng, (height, width) = np.random.default_rng(3), size
    for place in range(3):
        noise = rng.integers(0, 256, (5, 9, 3)).astype(np.uint8)
        whole = np.asarray(Image.fromarray(noise).resize((width + 8, height), Image.Resampling.BICUBIC))
        truth = np.tile(np.linspace(2, 12, width), (height, 1)) * (1 + place)
        values = {"left": whole[:, 8:], "right": whole[:, :-8], "disparity": (256 * truth).astype(np.uint16)}
        for name, pixels in values.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / name / f"{place}.png")
    return folder


SIZES = {"midas_v21_small": [64, 96], "depth_anything_v2_small": [42, 70]}


@pytest.mark.slow
@pytest.mark.parametrize("arch", SIZES)
@pytest.mark.long
def test_depth_of_one_image_equals_pytorchs(arch: str, tmp_path: Path) -> None:
    found = network(ARCHS, arch, "random", SIZES[arch])
    ckpt, data = exported(found, tmp_path), scenes(tmp_path)
    check_outputs(found, ckpt)
    paths = {"images": data / "left", "truth": data / "disparity"}
    check_metric(DenseRegression, found, ckpt, paths, quantity="disparity", relation="same", align="scale_shift")


@pytest.mark.slow
@pytest.mark.long
def test_disparity_of_two_images_equals_pytorchs(tmp_path: Path) -> None:
    found = network(ARCHS, "psmnet", "random", [256, 256], disparities=16)
    ckpt, data = exported(found, tmp_path), scenes(tmp_path)
    check_outputs(found, ckpt, batch=2)
    assert check_metric(DenseRegression, found, ckpt, data, limit=1) > 0


def small_folder(folder: Path, kind: str, **config: Any) -> Network:
    """Write a small model of transformers into a folder, and return it as a network."""
    found = transformers()
    torch.manual_seed(0)
    levels = {"neck_hidden_sizes": [8, 8, 8, 8], "fusion_hidden_size": 8}
    if kind == "dpt":
        config |= {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2}
        config |= {"backbone_out_indices": [0, 1, 2, 3], "image_size": 64, **levels}
        made = found.DPTForDepthEstimation(found.DPTConfig(**config))
    else:
        body = found.Dinov2Config(
            hidden_size=16, num_hidden_layers=4, num_attention_heads=2, image_size=56, out_indices=[1, 2, 3, 4],
            reshape_hidden_states=False, apply_layernorm=True,
        )  # fmt: skip
        config |= {"backbone_config": body, "reassemble_hidden_size": 16, "head_hidden_size": 4, **levels}
        made = found.DepthAnythingForDepthEstimation(found.DepthAnythingConfig(**config))
    with torch.no_grad():
        for value in made.parameters():
            value.normal_(std=0.2)
    made.save_pretrained(folder)
    return network(ARCHS, "unused", str(folder), folders=from_folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "config", "size", "relation"),
    [
        ("dpt", {}, (64, 64), "inverse"),
        ("depth_anything", {}, (56, 56), "inverse"),
        ("depth_anything", {"depth_estimation_type": "metric", "max_depth": 20}, (56, 56), "same"),
    ],
)
@pytest.mark.slow
@pytest.mark.long
def test_a_folder_of_transformers(
    kind: str, config: dict[str, Any], size: tuple[int, int], relation: str, tmp_path: Path
) -> None:
    found = small_folder(tmp_path / "mine", kind, **config)
    assert (found.name, found.weights, found.asked.size) == ("mine", "mine", size)
    assert found.of.notes(found.asked)["dense_regression"]["relation"] == relation
    check_outputs(found, exported(found, tmp_path))


def test_preprocessing_of_a_folder_is_used(tmp_path: Path) -> None:
    small_folder(tmp_path / "mine", "dpt")
    stored = {"size": {"height": 96, "width": 96}, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
    (tmp_path / "mine" / "preprocessor_config.json").write_text(json.dumps(stored))
    found = from_folder(str(tmp_path / "mine"))
    assert (found.size, found.scale) == ((96, 96), ([0.1, 0.2, 0.3], [0.4, 0.5, 0.6]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--arch", "midas"], "unknown arch 'midas'.* known: midas_v21_small, midas_v21,"),
        (["--arch", "depth_anything_small", "--input_size", "64"], "depth_anything_small takes .* multiples of 14"),
        (["--arch", "psmnet", "--input_size", "128"], "psmnet takes .* multiples of 16, at least 256"),
        (["--arch", "psmnet", "--disparities", "20"], "--disparities 20 must be a positive multiple of 16"),
        (["--weights", "no_such_folder"], "unknown weights 'no_such_folder' .*or of a folder of save_pretrained"),
    ],
)
def test_invalid_flags_are_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message) as got:
        export_network("x", tmp_path, DEPTH, ["--weights", "random", *words])
    assert "\n" not in str(got.value)


def test_folders_of_other_models_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"not a folder with a config\.json"):
        network(ARCHS, "psmnet", str(tmp_path), folders=from_folder)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises((ConfigError, ModelError), match=str(tmp_path)) as got:
        network(ARCHS, "psmnet", str(tmp_path), folders=from_folder)
    assert "\n" not in str(got.value)


def test_weights_that_do_not_fit_name_the_first_key(tmp_path: Path) -> None:
    torch.save({"conv.weight": torch.zeros(2)}, tmp_path / "other.pth")
    with pytest.raises(ModelError, match=r"other\.pth .*missing feature_extraction\.firstconv\.0\.0\.weight"):
        network(ARCHS, "psmnet", str(tmp_path / "other.pth"))
