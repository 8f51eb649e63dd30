"""torchvision's segmentation networks: custom and random weights, metadata."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from engine import ConfigError, EngineSpec, ModelError, open_engine
from utils.export.networks.torchvision_models import import_torchvision
from utils.export.networks.torchvision_segmentation import ARCHS, segmenter
from utils.export.scripts.segmenter import export_segmenter
from utils.tasks.model import Model

pytestmark = pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")

SMALLEST = "lraspp_mobilenet_v3_large"


def test_archs_are_all_segmentation_networks_of_torchvision() -> None:
    models = import_torchvision().models
    assert sorted(models.list_models(module=models.segmentation)) == sorted(ARCHS)


def own_weights(folder: Path, classes: int, *, auxiliary: bool = False) -> Path:
    """Write a state dict of a small network with the key prefix of a wrapper."""
    models = import_torchvision().models
    torch.manual_seed(1)
    made = models.get_model(SMALLEST, weights=None, weights_backbone=None, num_classes=classes)
    state = {f"module.{key}": value for key, value in made.state_dict().items()}
    state |= {"module.aux_classifier.0.weight": torch.zeros(3)} if auxiliary else {}
    torch.save({"model": state}, folder / "mine.pth")
    return folder / "mine.pth"


def test_custom_weights(tmp_path: Path) -> None:
    found = segmenter(SMALLEST, str(own_weights(tmp_path, 5, auxiliary=False)))
    assert found.labels is None
    assert (found.weights, found.short_side) == ("mine.pth", 520)
    image = torch.rand(1, 3, 48, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert found.module(image).shape == (1, 5, 48, 64)
    known = segmenter(SMALLEST, str(own_weights(tmp_path, 21)))
    assert known.labels is not None
    assert known.labels[15] == "person"


def test_invalid_weights_raise(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown weights 'BEST'.*COCO_WITH_VOC_LABELS_V1"):
        segmenter(SMALLEST, "BEST")
    torch.save({"conv.weight": torch.zeros(2)}, tmp_path / "other.pth")
    with pytest.raises(ModelError, match=r"other.pth: .*classifier.4.weight or"):
        segmenter(SMALLEST, str(tmp_path / "other.pth"))
    with pytest.raises(ModelError, match="does not exist"):
        segmenter(SMALLEST, str(tmp_path / "none.pth"))


@pytest.mark.parametrize(
    ("words", "flag"), [(["--input_size", "16"], "--input_size 16"), (["--batch_size", "0"], "--batch_size 0")]
)
def test_invalid_sizes_raise(words: list[str], flag: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=flag):
        export_segmenter("x", tmp_path, (SMALLEST,), ["--weights", "random", *words])


def test_invalid_labels_raise(tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text("{}")
    words = [
        "--weights",
        "random",
        "--labels",
        str(tmp_path / "labels.json"),
        "--forms",
        "static",
        "--input_size",
        "32",
    ]
    with pytest.raises(ConfigError, match=r"labels.json: is not a JSON list"):
        export_segmenter("x", tmp_path, (SMALLEST,), words)


@pytest.mark.slow
def test_an_export_of_random_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--weights", "random", "--input_size", "64", "96", "--forms", "dyn", "--exporter", "torchscript"]
    assert export_segmenter("x", tmp_path, (SMALLEST,), words) == 0
    assert "random weights: for functional and speed checks only" in capsys.readouterr().out
    with open_engine("onnx", EngineSpec(ckpt=tmp_path / f"{SMALLEST}_dyn.onnx", batch_size=2)) as engine:
        model = Model.of(engine)
        found = engine(np.zeros((2, 3, 40, 72), np.float32))
    assert found.shape == (2, 21, 40, 72)
    assert [spec.name for spec in model.outputs] == ["logits"]
    assert model.stored.image.resize == 520
    assert model.stored.labels is not None
    assert model.stored.labels[0] == "__background__"
    assert json.loads(model.metadata["segmentation"]) == {"resize": "short_side"}
    assert model.stored.provenance["weights"] == "random"
