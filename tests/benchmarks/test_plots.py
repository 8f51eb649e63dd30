"""Charts of the benchmarks: nothing of a legend, a label or a title is cut."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support import ROOT

pytest.importorskip("matplotlib")

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def inside(figure: Figure) -> None:
    """Everything that is drawn lies inside the figure, and no legend of the figure on a panel."""
    figure.draw_without_rendering()
    drawn, whole = figure.get_tightbbox(), figure.bbox_inches.padded(0.01)
    assert whole.x0 <= drawn.x0 < drawn.x1 <= whole.x1
    assert whole.y0 <= drawn.y0 < drawn.y1 <= whole.y1
    for legend in figure.legends:
        assert not any(legend.get_window_extent().overlaps(panel.bbox) for panel in figure.axes)


@pytest.mark.slow
@pytest.mark.parametrize("models", [1, 2, 3, 5])
@pytest.mark.parametrize("contestants", [1, 5, 9])
def test_throughput(models: int, contestants: int) -> None:
    from parts.throughput_figures import Limit, Measured, Result
    from parts.throughput_plot import COLOURS, chart

    def measured(model: str) -> Measured:
        results = [Result(name, "", 90.0 + i, 1.0, 1.0, 1.0, None, 1.0, [1.0]) for i, name in enumerate(names)]
        return Measured(model, 8, 8, 1, results, [Limit("ours", 100.0, 0.01, 0.01, 0.9)])

    names = list(COLOURS)[:contestants]
    figure = chart([measured(f"shufflenet_v2_x1_{number}") for number in range(models)])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == names
    inside(figure)


def test_the_fit_of_the_card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import fit_t1
    from matplotlib import pyplot

    monkeypatch.setattr(fit_t1, "PLOT", tmp_path / "fit.png")
    fit_t1.draw([fit_t1.Point(row, row.latency * 1.1, row.throughput * 0.9, (0.0, 0.0)) for row in fit_t1.published()])
    try:
        inside(pyplot.gcf())
    finally:
        pyplot.close("all")
    assert (tmp_path / "fit.png").read_bytes().startswith(b"\x89PNG")
