"""Plots are readable: labelled ticks at any range, and no legend, label or title is truncated."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from tecoexec.measure import CallRecord, Measurement
from tecoexec.plan.search import Load
from tecoexec.plot import loads_figure, log_ticks, run_figure, sweep_figure
from tecoexec.point import Point, Published

pytest.importorskip("matplotlib")

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TIMES = st.floats(1e-6, 1e9)
RATES = st.floats(1e-3, 1e12)
BATCHES = st.lists(st.integers(1, 10**6), min_size=1, max_size=12, unique=True).map(sorted)


def point(batch: int, latency: float, throughput: float, published: Published | None = None) -> Point:
    return Point("small", "digits", "sdaa", True, "1*3*32*32", batch, latency, latency, throughput, published, [])


@st.composite
def sweeps(draw: st.DrawFn) -> list[Point]:
    """Sweeps over any range, some nearly constant."""
    start, growth = draw(TIMES), draw(st.sampled_from([0.0, 1e-9, 1e-3, 0.03, 0.2, 1.0, 30.0]))
    published = draw(st.booleans())
    return [
        point(
            batch,
            start * (1 + growth * index),
            draw(RATES),
            Published(draw(TIMES), draw(RATES)) if published and draw(st.booleans()) else None,
        )
        for index, batch in enumerate(draw(BATCHES))
    ]


def visible(axis: Any, low: float, high: float) -> list[str]:
    """Return the labels between the ends of an axis."""
    ticks = zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
    return [label.get_text() for place, label in ticks if low <= place <= high and label.get_text()]


def inside(figure: Figure) -> None:
    """Check that everything is inside the figure, and a legend inside its panel."""
    drawn, whole = figure.get_tightbbox(), figure.bbox_inches.padded(0.01)
    assert whole.x0 <= drawn.x0 < drawn.x1 <= whole.x1
    assert whole.y0 <= drawn.y0 < drawn.y1 <= whole.y1
    for panel in figure.axes:
        box, outer = panel.get_legend().get_window_extent(), panel.bbox
        assert outer.x0 <= box.x0 < box.x1 <= outer.x1
        assert outer.y0 <= box.y0 < box.y1 <= outer.y1


@given(st.floats(1e-9, 1e12), st.floats(1.05, 1e15))
def test_logarithmic_axes_have_two_labels_at_any_range(low: float, factor: float) -> None:
    ticks = log_ticks(low, low * factor)
    assert len(ticks) >= 2
    assert all(low <= tick <= low * factor for tick in ticks)
    assert len({f"{tick:g}" for tick in ticks}) == len(ticks) <= 14


@pytest.mark.slow
@settings(max_examples=20)
@given(sweeps())
def test_axes_of_sweeps_have_two_labels(points: list[Point]) -> None:
    figure = sweep_figure(points, "digits on target sdaa")
    figure.draw_without_rendering()
    for panel in figure.axes:
        for axis, limits in ((panel.xaxis, panel.get_xlim()), (panel.yaxis, panel.get_ylim())):
            labels = visible(axis, *limits)
            assert len(set(labels)) == len(labels) >= 2
        shown = [(tick.get_window_extent(), tick.get_text()) for tick in panel.get_xticklabels()]
        for (one, name), (other, _) in pairwise(shown):
            assert one.x1 < other.x0, name
        (low, high), (bottom, top) = panel.get_xlim(), panel.get_ylim()
        for line in panel.get_lines():
            assert all(low < x < high and bottom <= y < top for x, y in line.get_xydata())
    inside(figure)


def test_the_digits_have_labels() -> None:
    """Regression: latencies between 0.56 and 0.59 ms gave an axis without labels."""
    figure = sweep_figure([point(4, 0.562, 7600.5), point(64, 0.59, 118103.2)], "digits on target sdaa")
    figure.draw_without_rendering()
    left, right = figure.axes
    assert visible(left.yaxis, *left.get_ylim()) == ["0.54", "0.56", "0.58", "0.6"]
    assert visible(left.xaxis, *left.get_xlim()) == ["4", "64"]
    assert len(visible(right.yaxis, *right.get_ylim())) >= 2


@pytest.mark.parametrize("count", [1, 2, 50])
@pytest.mark.parametrize("copies", [None, 1e-5])
def test_a_plot_of_calls(count: int, copies: float | None) -> None:
    calls = [CallRecord(i * 1e-3, i * 1e-3 + 1e-3, copies, 5e-4, copies, 6e-4) for i in range(count)]
    measured = Measurement(copies is not None, True, 1, calls, 1.0, None)
    figure = run_figure(measured, "a_model_with_a_name_that_is_longer_than_most_float16_dyn.onnx, batch 16, " * 3)
    figure.draw_without_rendering()
    (panel,) = figure.axes
    labels = visible(panel.xaxis, *panel.get_xlim())
    assert len(labels) >= 2
    assert all(label.isdigit() for label in labels)
    assert len(visible(panel.yaxis, *panel.get_ylim())) >= 2
    inside(figure)


def test_latencies_of_plans_have_a_line_each_and_the_bound() -> None:
    loads = [Load(100.0, 0.001, 0.002, 0.3), Load(200.0, 0.0015, 0.004, 0.9)]
    figure = loads_figure({"100 requests/s": loads, "200 requests/s": loads}, 0.003, "a plan (simulated)")
    (axis,) = figure.axes
    labels = [line.get_label() for line in axis.get_lines()]
    assert len(labels) == 5
    first = axis.get_lines()[0]
    assert list(first.get_xdata()) == [100, 200]
    assert list(first.get_ydata()) == [2, 4]
    low, high = axis.get_ylim()
    assert low < 1
    assert high > 4
