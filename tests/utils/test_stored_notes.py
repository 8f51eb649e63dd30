"""Metadata of the domains with a wrong type: errors with their key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine import ModelError
from utils.postprocess.image.layouts.noted import problem_of
from utils.preprocess.audio.features import settings_of
from utils.preprocess.features import Features
from utils.stored import ModelMetadata

SSD = {"layout": "ssd", "grids": [[2, 2]], "aspect_ratios": [[2]], "scales": [0.1, 0.2], "steps": [8], "size": [16, 16]}
CKPT = Path("m.onnx")


@pytest.mark.parametrize(
    "change",
    [
        *({"layout": value} for value in ([], {}, 3)),
        *({"strides": value} for value in (8, "8", [0], [None], [True], [8.5], [-8])),
        *({"top_k": value} for value in ("many", [], 0, -1, 2.5, True, 10**9)),
        *({"max_detections": value} for value in ("many", {}, -3)),
        *({"grids": value} for value in (3, [3], [[2]], [[2, "2"]], [[2, 2], [1, 1]], [[10**9, 2]])),
        *({"scales": value} for value in ([0.1], "ab", [0, 1], [[0.1], [0.2]])),
        *({"aspect_ratios": value} for value in (2, [2], [[0]], [["2"]], [])),
        *({"anchors": value} for value in (3, [3], [[3]], [[[1, 2, 3]]], [[["1", 2]]])),
        *({"size": value} for value in ([16], 16, [16, 0], ["a", "b"])),
        {"sizes": [8]},
        {"stride": "8"},
    ],
)
def test_notes_of_detection(change: dict[str, Any]) -> None:
    assert problem_of(SSD) is None
    problem = problem_of(SSD | change) if change != {"aspect_ratios": []} else problem_of({"aspect_ratios": [[1]]})
    assert problem is not None
    assert "\n" not in problem


@pytest.mark.parametrize("value", [[], {"kind": []}, {"kind": {}}, {"kind": None}, 3, "text"])
def test_settings_of_sound(value: object) -> None:
    with pytest.raises(ModelError, match="has no 'kind' of"):
        settings_of(ModelMetadata({"features": json.dumps(value)}, CKPT))


@pytest.mark.parametrize("key", ["hash", "kind", "transform", "values", "size"])
@pytest.mark.parametrize("value", [[[]], {}, [{}], None, True])
def test_fields_of_features(key: str, value: object) -> None:
    field = {"name": "a", "input": "ids", "kind": "hashed", "size": 5}
    with pytest.raises(ModelError, match=key):
        Features.from_json({"fields": [field | {key: value}]})


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "1e999", "9" * 400, "[" * 200 + "]" * 200, "[" * 100_000])
def test_numbers_and_depth(text: str) -> None:
    with pytest.raises(ModelError, match=r"m\.onnx: metadata 'key': .* is not JSON .*; export the model again"):
        ModelMetadata({"key": text}, CKPT).json("key")
