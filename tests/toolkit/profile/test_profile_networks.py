"""--suggest and --apply on exported networks: predicted times equal simulated times."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import EngineSpec, open_engine
from toolkit.cli import execute

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

Export = Callable[..., Path]


def encoder() -> Any:
    layer = torch.nn.TransformerEncoderLayer(32, 2, 64, activation="gelu", batch_first=True)
    return torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)


def vision_transformer() -> Any:
    """Return a small instance of torchvision's class of vit_b_16."""
    from utils.export.networks.torchvision_models import import_torchvision

    made = import_torchvision().models.VisionTransformer
    return made(image_size=32, patch_size=16, num_layers=1, num_heads=2, hidden_dim=32, mlp_dim=64, num_classes=10)


def mobile_net(version: int) -> Any:
    """Return torchvision's class with three kinds of blocks; batch norms are adapted to random images, so that values
    neither vanish nor explode.
    """
    from utils.export.networks.torchvision_models import import_torchvision

    torch.manual_seed(0)
    models = import_torchvision().models
    if version == 2:
        made = models.MobileNetV2(num_classes=10, inverted_residual_setting=[[1, 8, 1, 1], [6, 8, 2, 2], [6, 16, 1, 2]])
    else:
        kinds = ((16, 3, 16, 16, True, "RE"), (16, 3, 72, 24, False, "RE"), (24, 5, 96, 40, True, "HS"))
        blocks = [models.mobilenetv3.InvertedResidualConfig(*kind, 2, 1, width_mult=0.5) for kind in kinds]
        made = models.MobileNetV3(blocks, last_channel=64, num_classes=10)
    model = made.train()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
    model(torch.randn(8, 3, 64, 64))
    return model


def exported(model: Any, shape: tuple[int, ...], opset: int, path: Path) -> Path:
    """Write a model with the older exporter, which is fast and decomposes operators missing in its opset."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model.eval(), (torch.zeros(*shape),), str(path), dynamo=False, opset_version=opset)
    return path


def proven(path: Path, shape: tuple[int, ...], made: Path) -> dict[str, Any]:
    """Apply the suggestion and check values and simulated time; return it."""
    out = made.with_suffix(".json")
    assert execute(["profile", str(path), "--batch_size", "4", "--apply", str(made), "--json", str(out)]) == 0
    found: dict[str, Any] = json.loads(out.read_text())["suggestion"]
    x = np.random.default_rng(0).standard_normal((4 * shape[0], *shape[1:])).astype(np.float16)
    results, costs = [], []
    for pass_path in (None, made):
        given = EngineSpec(path, batch_size=4 * shape[0], pass_path=pass_path)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*of a size not known beforehand")  # the older exporter computes shapes
            engine = open_engine("sdaa", given)
        with engine:
            results.append(np.asarray(engine(x)[0], np.float32))
            costs.append(engine.cost)  # type: ignore[attr-defined]
    assert np.abs(results[1] - results[0]).max() <= 2e-2 * np.abs(results[0]).max()
    assert costs[1].compute == pytest.approx(found["after"], rel=0.01)
    calls = [cost.copy_in + cost.compute + cost.copy_out for cost in costs]
    if not costs[0].unknown:  # else the time without the pass is not all of it
        assert calls[0] - calls[1] == pytest.approx(found["before"] - found["after"], rel=0.01)
    return found


def test_decomposed_encoder(tmp_path: Path) -> None:
    shape = (1, 8, 32)
    path = exported(encoder(), shape, 16, tmp_path / "m.onnx")  # no LayerNormalization, Gelu or Attention yet
    found = proven(path, shape, tmp_path / "p.py")
    rules = {gain["rule"]: gain for gain in found["chosen"]}
    assert rules.keys() >= {"layer_norm", "gelu", "attention"}
    assert [rules[name]["fired"] for name in ("layer_norm", "gelu", "attention")] == [4, 1, 1]  # two steps a norm
    assert all(rules[name]["before"] > rules[name]["after"] for name in ("layer_norm", "gelu", "attention"))
    assert found["opset"] == 23
    assert found["after"] < 0.6 * found["before"]


def test_vision_transformer_is_optimised(tmp_path: Path) -> None:
    shape = (1, 3, 32, 32)
    path = exported(vision_transformer(), shape, 17, tmp_path / "m.onnx")
    rules = {gain["rule"] for gain in proven(path, shape, tmp_path / "p.py")["chosen"]}
    assert rules >= {"gelu", "attention"}


def test_mobile_net_v3_of_an_older_opset(tmp_path: Path) -> None:
    shape = (1, 3, 64, 64)
    path = exported(mobile_net(3), shape, 13, tmp_path / "m.onnx")
    found = proven(path, shape, tmp_path / "p.py")
    assert [(gain["rule"], gain["fired"]) for gain in found["chosen"]] == [("hard_swish", 5)]
    assert found["opset"] == 14


def test_no_rule_saves_time_on_mobile_net_v2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = exported(mobile_net(2), (1, 3, 64, 64), 18, tmp_path / "m.onnx")
    assert execute(["profile", str(path), "--apply", str(tmp_path / "p.py")]) == 1
    assert "p.py, since no rewrite rule saves time on this model" in capsys.readouterr().out
    assert not (tmp_path / "p.py").exists()
