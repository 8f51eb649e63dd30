"""Preprocessing as transformers and timm store it."""

from __future__ import annotations

from typing import Any

import pytest

from engine import ModelError
from utils.export.image_processors import HALF, of_timm, of_transformers, sides

USUAL = (224, 224)


@pytest.mark.parametrize(
    ("found", "resize", "crop"),
    [
        ({"size": {"height": 384, "width": 256}}, [384, 256], [384, 256]),  # ViT
        ({"size": 224}, [224, 224], [224, 224]),
        ({"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}}, 256, [224, 224]),  # ResNet
        ({"size": {"shortest_edge": 256}, "crop_size": 224, "do_center_crop": False}, [256, 256], [256, 256]),
        ({"size": {"shortest_edge": 224}, "crop_pct": 0.875}, 256, [224, 224]),  # ConvNeXt
        ({"size": {"shortest_edge": 384}, "crop_pct": 0.875}, [384, 384], [384, 384]),
        ({}, [224, 224], [224, 224]),
    ],
)
def test_sizes_of_transformers(found: dict[str, Any], resize: Any, crop: list[int]) -> None:
    made = of_transformers(found, USUAL, "p.json")
    assert (made["resize_shape"], made["crop_shape"], made["interpolation"]) == (resize, crop, "bilinear")
    assert made["mean"] == list(HALF)


def test_values_of_transformers() -> None:
    made = of_transformers({"do_normalize": False, "resample": 3}, USUAL, "p.json")
    assert (made["mean"], made["std"], made["interpolation"]) == ([0.0] * 3, [1.0] * 3, "bicubic")
    levels = {"do_rescale": False, "image_mean": [127.5] * 3, "image_std": [255.0] * 3}
    made = of_transformers(levels, USUAL, "p.json")
    assert (made["mean"], made["std"]) == ([0.5] * 3, [1.0] * 3)


def test_timm() -> None:
    made = of_timm({"input_size": [3, 224, 200], "crop_pct": 0.875, "interpolation": "bilinear"}, "c.json")
    assert (made["resize_shape"], made["crop_shape"], made["interpolation"]) == (228, [224, 200], "bilinear")
    made = of_timm({"input_size": [3, 64, 64], "crop_mode": "squash", "crop_pct": 0.9}, "c.json")
    assert (made["resize_shape"], made["interpolation"]) == ([64, 64], "bicubic")


@pytest.mark.parametrize(
    "found", [{"size": {"longest_edge": 8}}, {"size": "large"}, {"size": 8, "resample": "bilinear"}]
)
def test_invalid_values(found: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"p\.json: .*correct the file"):
        of_transformers(found, USUAL, "p.json")
    with pytest.raises(ModelError, match="input_size"):
        of_timm({}, "c.json")


def test_sides() -> None:
    assert [sides(one) for one in (8, [4, 5], {"height": 2, "width": 3}, {"height": 2}, [0, 1], "8", None)] == [
        (8, 8), (4, 5), (2, 3), None, None, None, None,
    ]  # fmt: skip
