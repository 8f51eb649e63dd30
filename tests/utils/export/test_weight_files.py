# ruff: noqa: E402 - what is imported later needs what importorskip looks for
"""Weights files: checkpoints, prefixes, other containers; one-line errors of invalid files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from engine import ModelError
from utils.export.weight_files import is_weights_file, load_state, load_weights

pytestmark = pytest.mark.torch


def net(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten())


def same(one: Any, other: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


STATE = net(1).state_dict()


def prefixed(prefix: str) -> dict[str, Any]:
    return {f"{prefix}{key}": value for key, value in STATE.items()}


@pytest.mark.parametrize(
    "saved",
    [
        STATE,
        prefixed("module."),
        prefixed("_orig_mod.module."),
        {"state_dict": prefixed("module."), "epoch": 3, "best_acc1": torch.tensor(0.7), "optimizer": {"state": {}}},
        {"model": STATE, "args": argparse.Namespace(lr=0.1, data="x"), "epoch": 1},
        {"model_ema": {"x": torch.ones(1)}, "model": STATE},
        {"state_dict": prefixed("model."), "pytorch-lightning_version": "2"},
        {"n_averaged": torch.tensor(7), **prefixed("module.")},
        {key: value for key, value in STATE.items() if "num_batches" not in key},
        {**STATE, "AuxLogits.fc.weight": torch.ones(2)},
    ],
)
def test_checkpoint_layouts(saved: Any, tmp_path: Path) -> None:
    torch.save(saved, tmp_path / "x.pth")
    assert same(load_weights(net(), tmp_path / "x.pth", ["AuxLogits."]), net(1))


def test_safetensors(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    from safetensors.torch import save_file

    save_file(prefixed("module."), tmp_path / "x.safetensors")
    assert same(load_weights(net(), tmp_path / "x.safetensors"), net(1))
    (tmp_path / "y.safetensors").write_bytes((tmp_path / "x.safetensors").read_bytes()[:99])
    with pytest.raises(ModelError, match=r"y\.safetensors: damaged ") as caught:
        load_weights(net(), tmp_path / "y.safetensors")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("length", [0, 100, 900])
def test_truncated_file_is_one_line(length: int, tmp_path: Path) -> None:
    torch.save(STATE, tmp_path / "x.pth")
    (tmp_path / "x.pth").write_bytes((tmp_path / "x.pth").read_bytes()[:length])
    with pytest.raises(ModelError, match=r"x\.pth: damaged, or contains more") as caught:
        load_weights(net(), tmp_path / "x.pth")
    assert "\n" not in str(caught.value)


def test_mismatching_keys_are_reported(tmp_path: Path) -> None:
    torch.save({"state_dict": {f"conv{i}.weight": torch.ones(1) for i in range(5)}}, tmp_path / "x.pth")
    with pytest.raises(ModelError, match=r"missing 0\.weight, 0\.bias, 1\.weight and 4 .*conv0\.weight"):
        load_weights(net(), tmp_path / "x.pth")


def test_old_densenet_keys() -> None:
    layer = torch.nn.Module()
    layer.norm1 = torch.nn.BatchNorm2d(2)
    model = torch.nn.Module()
    model.denselayer1 = layer
    old = {f"denselayer1.norm.1.{key}": value + 1 for key, value in layer.norm1.state_dict().items()}
    assert load_state(model, old, "old").denselayer1.norm1.weight.tolist() == [2, 2]


def test_is_weights_file(tmp_path: Path) -> None:
    (tmp_path / "weights").touch()
    assert [is_weights_file(text) for text in ("a.PTH", "b.safetensors", "c.pth.tar", str(tmp_path / "weights"))] == [
        True
    ] * 4
    assert not is_weights_file("IMAGENET1K_V1")
