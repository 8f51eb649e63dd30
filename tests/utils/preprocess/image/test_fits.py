"""Placement of images as in other frameworks, and stored fits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from engine import ConfigError
from utils.preprocess.image.fits import KINDS, ROUNDINGS, Fit, between_pixels, fitted
from utils.preprocess.image.letterbox import to_image, to_input

lengths = st.integers(1, 90)


@settings(max_examples=60)
@given(lengths, lengths, st.sampled_from(KINDS), st.sampled_from(ROUNDINGS))
def test_roundtrip_of_boxes_for_every_fit(width: int, height: int, kind: str, rounding: str) -> None:
    fit = Fit(kind, kind != "stretch", shorter=24, longer=40, multiple=8, rounding=rounding)
    size = None if kind == "shorter" else (16, 24) if kind == "stretch" else (20, 20)
    pixels, geometry, canvas = fitted(Image.new("RGB", (width, height), (9, 9, 9)), fit, size)
    assert pixels.dtype == np.float32
    assert all(side <= room for side, room in zip(pixels.shape[1:], canvas, strict=True))
    if kind == "shorter":
        assert [side % 8 for side in canvas] == [0, 0]
        # transformers rounds the shorter side, to one pixel at least, and the longer one follows by their ratio
        beyond = max(width, height) / min(width, height) if rounding == "transformers" else 0
        assert max(pixels.shape[1:]) <= 40 + beyond
    boxes = np.array([[0, 0, width, height], [width / 4, height / 3, width / 2, height]])
    np.testing.assert_allclose(to_image(to_input(boxes, geometry), geometry), boxes, atol=1e-9)
    inner = to_input(boxes[:1], geometry)[0]
    if kind == "square":
        side = max(width, height)
        np.testing.assert_allclose(inner, [0, 0, width * 20 / side, height * 20 / side], atol=1e-9)
    else:
        np.testing.assert_allclose(inner, [0, 0, *pixels.shape[:0:-1]], atol=1e-9)


@given(lengths, lengths, lengths, lengths)
def test_a_constant_image_stays_constant(width: int, height: int, new_width: int, new_height: int) -> None:
    pixels = between_pixels(np.full((height, width, 3), 7.5, np.float32), (new_height, new_width))
    assert pixels.shape == (new_height, new_width, 3)
    np.testing.assert_allclose(pixels, 7.5, rtol=1e-6)


def test_an_input_of_fixed_size_contains_the_image() -> None:
    for rounding in ("torchvision", "transformers"):
        fit = Fit("shorter", shorter=800, longer=1333, rounding=rounding)
        for size in ((300, 100), (100, 300), (90, 90)):
            pixels, geometry, canvas = fitted(Image.new("RGB", size), fit, (64, 96))
            assert canvas == (64, 96)
            assert pixels.shape[1] <= 64
            assert pixels.shape[2] <= 96
            assert geometry.across == pixels.shape[2] / size[0]


def test_invalid_fits() -> None:
    with pytest.raises(ConfigError, match="--input_size"):
        fitted(Image.new("RGB", (4, 4)), Fit("stretch"), None)
    for found in (
        {"kind": "crop"},
        {"shorter": 0},
        {"plain": 1},
        {"width": 3},
        [],
        {"rounding": "up"},
        {"longer": "9"},
    ):
        with pytest.raises(ConfigError, match=r"m\.onnx: metadata 'detection': fit .* is invalid"):
            Fit.read(found, Path("m.onnx"))
    assert Fit.read({"kind": "square"}, Path("m.onnx")).kind == "square"
