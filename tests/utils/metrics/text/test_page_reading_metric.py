"""Metrics of pages: areas compared with counted pixels, matches by ICDAR's rules, rates computed by hand."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image, ImageDraw

from engine import ConfigError, DataError
from utils.datasets.image.pages import Truth, Word
from utils.metrics.text.page_reading import PageErrorRate
from utils.metrics.text.polygons import Polygon


class Line(NamedTuple):
    text: str
    outline: np.ndarray


def box(left: float, top: float = 0, width: float = 100, height: float = 20) -> np.ndarray:
    return np.array([[left, top], [left + width, top], [left + width, top + height], [left, top + height]])


def pixels(outline: np.ndarray) -> np.ndarray:
    image = Image.new("1", (1000, 1000), 0)
    ImageDraw.Draw(image).polygon([tuple(point) for point in outline.tolist()], fill=1)
    return np.asarray(image)


@pytest.mark.parametrize("seed", range(6))
def test_overlaps_equal_counted_pixels(seed: int) -> None:
    chance = np.random.default_rng(seed)
    outlines = []
    for _ in range(2):
        x = np.sort(chance.integers(100, 900, 5))
        middle = chance.integers(350, 650, 5)
        upper, lower = np.stack([x, middle - 120], axis=1), np.stack([x, middle + 120], axis=1)
        outline = np.concatenate([upper, lower[::-1]]).astype(float)
        outlines.append(outline[::-1] if seed % 2 else outline)
    one, other = (pixels(outline) for outline in outlines)
    assert Polygon(outlines[0]).area == pytest.approx(one.sum(), rel=0.01)
    found = Polygon(outlines[0]).overlap(Polygon(outlines[1]))
    assert found == pytest.approx((one & other).sum() / (one | other).sum(), abs=0.01)
    assert Polygon(outlines[0]).overlap(Polygon(outlines[0])) == pytest.approx(1)


def test_rotated_and_concave_outlines() -> None:
    diamond = np.array([[50, 0], [100, 50], [50, 100], [0, 50]], float)
    assert Polygon(box(0, 0, 100, 100)).common(Polygon(diamond)) == pytest.approx(5000)
    dented = np.array([[0, 0], [100, 0], [30, 30], [0, 100]], float)
    assert Polygon(dented).area == pytest.approx(3000)
    assert Polygon(diamond[:3]).area == pytest.approx(2500)  # an odd number of points
    assert Polygon(box(0, 0, 0, 10)).overlap(Polygon(box(0, 0, 0, 10))) == 0


def test_self_intersecting_outlines() -> None:
    crossed = Polygon(np.array([[24.0, 49], [39, 15], [13, 43], [19, 21]]))
    assert crossed.overlap(crossed) == pytest.approx(1)


def measured(lines: list[Line], truth: Any, **options: Any) -> PageErrorRate:
    metric = PageErrorRate(**options)
    metric.update([lines], [truth])
    return metric


def test_matched_missed_and_surplus_lines() -> None:
    truth = Truth((Word("abcd", box(0)), Word("efgh", box(200)), Word(None, box(400))))
    lines = [Line("abxd", box(5)), Line("zz", box(205, 300)), Line("noise", box(410, 2, 50))]
    metric = measured(lines, truth)
    assert metric.compute() == pytest.approx((1 + 4 + 2) / 8)
    found = metric.secondary()
    assert (found["precision"], found["recall"], found["hmean"]) == (0.5, 0.5, 0.5)
    assert (found["end_to_end"], found["lines"]) == (0, 2)


def test_one_to_one_matching_by_overlap() -> None:
    truth = Truth((Word("a", box(0)),))
    metric = measured([Line("b", box(20)), Line("a", box(2))], truth)
    assert metric.compute() == 1  # the second line is surplus
    found = metric.secondary()
    assert (found["precision"], found["recall"], found["end_to_end"]) == (0.5, 1, pytest.approx(2 / 3))
    half = measured([Line("a", box(0, 0, 50))], truth).secondary()
    assert half["recall"] == 0  # an overlap of 0.5 is not more than 0.5


def test_white_space_normalisation_and_pages_without_outlines() -> None:
    metric = measured([Line("Roomnine", box(0))], Truth((Word("Room nine", box(0)),)))
    assert metric.compute() == pytest.approx(1 / 9)
    assert metric.secondary()["page_cer_joined"] == 0
    assert metric.secondary()["end_to_end_joined"] == 1
    wide = Truth((Word("(a)", box(0)),))
    assert measured([Line("（a）", box(0))], wide).compute() > 0
    assert measured([Line("（a）", box(0))], wide, form="NFKC").compute() == 0
    whole = measured([Line("one", box(0)), Line("two", box(0, 50))], Truth(None, "one\ntwo\n"))
    assert whole.compute() == 0
    assert list(whole.secondary()) == ["page_cer_joined"]


def test_empty_pages() -> None:
    assert measured([], Truth(())).compute() == 0
    assert measured([], Truth(())).secondary()["hmean"] == 1
    assert measured([Line("ab", box(0))], Truth(())).compute() == 2
    metric = measured([], Truth((Word("ab", box(0)),)))
    assert metric.compute() == 1
    assert math.isnan(metric.value(metric._all(), np.zeros(1)))


def test_invalid_input() -> None:
    with pytest.raises(DataError, match="not that of a page"):
        measured([], "text")
    with pytest.raises(ConfigError, match="normalisation 'NFX'"):
        PageErrorRate("NFX")
