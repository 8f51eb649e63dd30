"""The bar chart of ``throughput.py``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from parts.throughput_figures import Measured
from tecoexec.plot import require_matplotlib

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

COLOURS = {
    "ours": "#0b5cad",
    "ours cpu": "#5aa5e8",
    "ours reduced": "#a9d0f5",
    "plain loop": "#8a8a8a",
    "serial": "#bdbdbd",
    "dataloader": "#d98032",
    "openvino": "#7a4fa3",
    "torch": "#c0392b",
    "int8": "#1e8a4c",
}
"""Colour of a contestant; those that run an engine alone are not drawn."""


def draw(everything: Sequence[Measured], path: Path) -> None:
    """Write the chart as a PNG."""
    chart(everything).savefig(path, format="png", dpi=150)


def chart(everything: Sequence[Measured]) -> Figure:
    """Return images per second as shares of the limit of ``ours``, one group of bars per model.

    Models differ a hundredfold in speed, so the axis is the share of the limit of the cores on that model with ONNX
    Runtime in float32; the labels of the bars are images per second.
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.2 + 2.4 * len(everything), 4.8), layout="constrained")
    axes = figure.subplots()
    drawn = [name for name in COLOURS if any(measured.result(name) for measured in everything)]
    width = 0.86 / len(drawn)
    for group, measured in enumerate(everything):
        limit = next(limit.sps for limit in measured.limits if limit.contestant == "ours")
        present = [result for name in drawn if (result := measured.result(name)) is not None]
        for place, result in enumerate(present):
            x = group + (place - (len(present) - 1) / 2) * width
            axes.bar(x, result.sps / limit, width * 0.92, color=COLOURS[result.contestant])
            text = f"{result.sps:.0f}" if result.sps >= 10 else f"{result.sps:.1f}"
            axes.annotate(text, (x, result.sps / limit), (0, 2), textcoords="offset points", ha="center", fontsize=7)
    axes.axhline(1, color="black", linewidth=0.8, linestyle="--")
    labels = [f"{m.model}\nlimit {m.limits[0].sps:.0f}/s" for m in everything]
    axes.set_xticks(range(len(everything)), labels, fontsize=8)
    axes.set_ylabel("images/s as a share of the limit of ours")
    axes.spines[["top", "right"]].set_visible(False)
    _legend(figure, [axes.bar(0, 0, color=COLOURS[name])[0] for name in drawn], drawn)
    return figure


def _legend(figure: Figure, handles: Sequence[Artist], names: Sequence[str]) -> None:
    """Add a legend above the bars, in as few lines as possible."""
    for lines in range(1, len(names) + 1):
        columns = -(-len(names) // lines)
        legend = figure.legend(handles, names, loc="outside upper center", ncols=columns, frameon=False, fontsize=8)
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()
