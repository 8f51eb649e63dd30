"""The bar chart of ``throughput.py``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from throughput_figures import Measured

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
    """Draw pictures per second as shares of the limit of ``ours``, one group of bars per model, and write a PNG.

    Models differ a hundredfold in speed, so the axis is the share of what the cores could do on that model with ONNX
    Runtime in float32; the bars carry the pictures per second themselves.
    """
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
    axes.set_ylabel("pictures/s as a share of the limit of ours")
    axes.spines[["top", "right"]].set_visible(False)
    handles = [axes.bar(0, 0, color=COLOURS[name]) for name in drawn]
    figure.legend(handles, drawn, loc="outside upper center", ncols=len(drawn), frameon=False, fontsize=8)
    figure.savefig(path, format="png", dpi=150)
