"""Drawing of pages: texts next to their lines, and characters without a font."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from utils import fonts
from utils.postprocess.text.drawn_page import draw_page

LINE = {"text": "Room 9", "points": [[20, 30], [180, 30], [180, 60], [20, 60]]}


def test_texts_are_next_to_their_lines() -> None:
    page = Image.new("RGB", (200, 100), (120, 120, 120))
    drawn = np.asarray(draw_page(page, [LINE]))
    assert drawn.shape == (100, 408, 3)
    right = (drawn[:, 208:] < 90).all(axis=2)
    rows, columns = np.nonzero(right)
    assert rows.min() >= 30
    assert rows.max() <= 60
    assert columns.min() >= 20
    assert columns.max() <= 180
    assert (np.asarray(draw_page(page, []))[:, 208:] == 255).all()


def test_a_number_replaces_text_without_a_font(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(fonts.VARIABLE, raising=False)
    monkeypatch.setattr(fonts, "_folders", lambda: iter(()))
    monkeypatch.setattr(fonts, "_downloaded", lambda: None)
    page = Image.new("RGB", (200, 100), (120, 120, 120))
    with pytest.warns(UserWarning, match=r"2 characters, .*'太初'.*--font"):
        drawn = draw_page(page, [{**LINE, "text": "太初"}])
    same = draw_page(page, [{**LINE, "text": "1: (2 characters without a font)"}])
    assert drawn.tobytes() == same.tobytes()


def test_a_large_page_is_reduced(tmp_path: Path) -> None:
    assert draw_page(Image.new("RGB", (4800, 10)), [LINE]).size == (4808, 5)
