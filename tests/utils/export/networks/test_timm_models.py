# ruff: noqa: E402 - what is imported later needs what importorskip looks for
"""timm networks: preprocessing equal to timm's, labels, sizes, unknown names."""

from __future__ import annotations

import socket
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")
if not find_spec("timm") or not find_spec("torchvision"):
    pytest.skip("timm is not installed", allow_module_level=True)

from engine import ConfigError, ModelError
from utils.export.networks.timm_models import classifier, images_of, import_timm
from utils.export.networks.torchvision_models import plain
from utils.imagenet_classes import WNIDS
from utils.preprocess.pytorch.classification import preprocess

pytestmark = pytest.mark.torch

SIZES = [(500, 375), (333, 500), (300, 90), (61, 47)]


@pytest.fixture(scope="module")
def timm() -> Any:
    return import_timm()


def configs(timm: Any) -> dict[str, Any]:
    """Return data configs by the first name that has each; for images of at most 300 pixels."""
    found: dict[Any, tuple[str, Any]] = {}
    for name in timm.list_pretrained():
        config = timm.data.resolve_data_config(pretrained_cfg=timm.get_pretrained_cfg(name).to_dict())
        if config["crop_mode"] != "border" and config["input_size"][0] == 3 and max(config["input_size"]) <= 300:
            found.setdefault(str(sorted(config.items())), (name, config))
    return dict(found.values())


def test_preprocessing_matches_timm_for_every_data_config(timm: Any) -> None:
    found = configs(timm)
    assert {config["crop_mode"] for config in found.values()} == {"center", "squash"}
    assert {config["interpolation"] for config in found.values()} == {"bilinear", "bicubic"}
    assert len(found) > 50
    rng = np.random.default_rng(0)
    images = [Image.fromarray(rng.integers(0, 256, (high, wide, 3), dtype=np.uint8)) for wide, high in SIZES]
    for place, (name, config) in enumerate(found.items()):
        image = images[place % len(images)]
        theirs = timm.data.create_transform(**config, is_training=False)(image).numpy()
        ours = preprocess(image, "float32", **images_of(config, name).scaled())[0]
        np.testing.assert_array_equal(ours, theirs, err_msg=f"{name} {image.size}")


def test_a_small_network_with_its_labels_and_its_preprocessing(timm: Any, tmp_path: Path) -> None:
    found = classifier("mobilenetv3_small_050", "random", (64, 64))
    assert found.labels is not None
    assert (len(found.labels), found.labels[0], found.class_ids) == (1000, "tench, Tinca tinca", list(WNIDS))
    assert (found.source, found.weights, found.free) == ("timm mobilenetv3_small_050", "random", True)
    assert plain(found.images.scaled())["interpolation"] == "bicubic"
    with torch.no_grad():
        answer = found.module(torch.randn(2, 3, 64, 64))
    assert answer.shape == (2, 1000)
    assert 0.01 < answer.std() < 100
    torch.save({"state_dict": {f"module.{k}": v for k, v in found.module.state_dict().items()}}, tmp_path / "mine.pth")
    loaded = classifier("mobilenetv3_small_050", str(tmp_path / "mine.pth"), (64, 64))
    assert loaded.weights == "mine.pth"
    with torch.no_grad():
        assert torch.equal(loaded.module(torch.ones(1, 3, 64, 64)), found.module(torch.ones(1, 3, 64, 64)))


def test_transformer_has_a_fixed_size() -> None:
    found = classifier("vit_tiny_patch16_224", "random", (64, 64))
    assert not found.free
    with torch.no_grad():
        assert found.module(torch.randn(1, 3, 64, 64)).abs().max() > 0


@pytest.mark.parametrize(
    ("arch", "weights", "message"),
    [
        (
            "inception_v5",
            "random",
            r"unknown arch 'timm/inception_v5'; did you mean 'inception_v\d'\? timm [\d.]+ has",
        ),
        ("inception_v4", "tf_in2k", r"unknown weights 'tf_in2k' for timm/inception_v4; did you mean 'tf_in1k'"),
        ("inception_v4.nothing", "random", "unknown weights 'nothing' for timm/inception_v4"),
        ("deepseek_vit_412m", "random", "crop_mode border"),
        ("vit_small_patch16_224.dino", "random", "timm/vit_small_patch16_224.dino has no classifier"),
    ],
)
def test_unknown_names_raise_one_line(arch: str, weights: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        classifier(arch, weights)
    assert "\n" not in str(caught.value)


def test_without_a_network_the_hub_is_asked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants

    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = f"http://127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setattr(constants, "ENDPOINT", closed)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=f"cannot download timm/resnet18.a1_in1k \\({closed}: .* --weights") as caught:
        classifier("resnet18.a1_in1k", "DEFAULT")
    assert "\n" not in str(caught.value)
