"""Text lines as a recogniser's input, compared with PP-OCR's steps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

from engine import ConfigError
from utils.preprocess.image.letterbox import between_pixels
from utils.preprocess.image.lines import LineForm, line_input

PP_OCR = LineForm()
RNG = np.random.default_rng(0)


def blank(width: int, height: int) -> Image.Image:
    return Image.fromarray(RNG.integers(0, 256, (height, width, 3), dtype=np.uint8))


@given(st.integers(1, 900), st.integers(1, 120))
def test_the_width_follows_the_proportions_rounded_up(width, height):
    wanted = min(math.ceil(48 * width / height), 3200)
    assert PP_OCR.width((width, height)) == wanted
    assert PP_OCR.room(wanted) == max(320, wanted)
    assert LineForm(least=4, multiple=4).room(wanted) == math.ceil(wanted / 4) * 4


@pytest.mark.parametrize("size", [(200, 30), (700, 31), (90, 48)])
def test_line_input_equals_pp_ocrs(size):
    """Resized to 48 rows, blue first, (x / 255 - 0.5) / 0.5, zeros at the right."""
    image = blank(*size)
    array, width = line_input(image, PP_OCR)
    wanted = between_pixels(np.asarray(image)[..., ::-1], (width, 48)).astype(np.float32)
    wanted = (wanted.transpose(2, 0, 1) / 255 - 0.5) / 0.5
    assert array.shape == (3, 48, max(320, width))
    assert np.abs(array[..., :width] - wanted).max() < 1e-6
    assert not array[..., width:].any()


def test_grey_lines_fixed_widths_and_a_sliver():
    form = LineForm(32, 100, 100, channel_order="GRAY", interpolation="bilinear", pixel_values="0..1")
    wide, narrow = (line_input(blank(*size), form, "float16")[0] for size in ((900, 20), (1, 400)))
    assert wide.shape == narrow.shape == (1, 32, 100)
    assert wide.dtype == np.float16
    assert wide[..., 99].any()
    assert not narrow[..., 1:].any()
    assert line_input(blank(50, 20).convert("P"), form)[0].shape == (1, 32, 100)


def test_unknown_names():
    with pytest.raises(ConfigError, match=r"channel order 'rgb' of text lines must be one of GRAY, RGB, BGR"):
        line_input(blank(9, 9), LineForm(channel_order="rgb"))
