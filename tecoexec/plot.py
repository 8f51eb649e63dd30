"""Plots of a run and of a sweep with matplotlib (the extra ``plot``)."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import ConfigError
from tecoexec.measure import Measurement
from tecoinfer_modelzoo import install_command
from tecoinfer_modelzoo.cache import cache_folder
from tecoinfer_modelzoo.text import one_line

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

    from matplotlib.figure import Figure

    from tecoexec.plan.search import Load
    from tecoexec.point import Point

_INCHES = (10.0, 4.2)
_LEAST_MARGIN = 1.05  # minimum margin of a logarithmic axis at both ends, as a factor, so that its range is not empty

_temporary: list[TemporaryDirectory[str]] = []
"""Configuration folder of matplotlib in a process without a cache; removed at exit."""


def require_matplotlib() -> None:
    """Import matplotlib, with its font list in the zoo's cache; raise ConfigError if it is not installed."""
    _keep_fonts()
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"plots need matplotlib; run: {install_command('plot')}") from error


def _keep_fonts() -> None:
    """Set matplotlib's configuration folder, by default in the user's home folder, before it is imported."""
    if "matplotlib" in sys.modules or os.environ.get("MPLCONFIGDIR"):
        return
    folder = cache_folder("matplotlib")
    if folder is None or not os.access(folder, os.W_OK):
        import tempfile

        _temporary.append(tempfile.TemporaryDirectory(prefix="tecoinfer-"))
        folder = Path(_temporary[-1].name)
    os.environ["MPLCONFIGDIR"] = str(folder)


def plot_run(path: Path, measured: Measurement, title: str) -> None:
    """Plot the latency of every call and its parts; raise ConfigError if the file cannot be written."""
    _save(run_figure(measured, title), path)


def plot_sweep(path: Path, points: Sequence[Point], title: str) -> None:
    """Plot latency and throughput over the batch, also published ones; raise ConfigError if writing fails."""
    _save(sweep_figure(points, title), path)


def plot_loads(path: Path, curves: Mapping[str, Sequence[Load]], bound: float, title: str) -> None:
    """Plot the latencies of plans (by what they are planned for) against the rate of requests; ``bound`` in seconds.

    Raise ConfigError if the file cannot be written.
    """
    _save(loads_figure(curves, bound, title), path)


def loads_figure(curves: Mapping[str, Sequence[Load]], bound: float, title: str) -> Figure:
    """Return the plot of :func:`plot_loads`; raise ConfigError if matplotlib is missing."""
    figure, (axis,) = _figure(1, title)
    for name, loads in curves.items():
        rates = [load.rate for load in loads]
        (line,) = axis.plot(rates, [load.p99 * 1e3 for load in loads], "o-", label=f"p99, {name}")
        axis.plot(rates, [load.p50 * 1e3 for load in loads], ".--", color=line.get_color(), label=f"p50, {name}")
    axis.axhline(bound * 1e3, color="gray", linestyle=":", label="bound of p99")
    axis.set(xlabel="requests per second", ylabel="latency in ms")
    axis.grid(alpha=0.3)
    axis.legend()
    _log_axis(axis, [bound * 1e3, *(float(y) for line in axis.get_lines() for y in line.get_ydata())])
    axis.set_xlim(left=0)
    return figure


def run_figure(measured: Measurement, title: str) -> Figure:
    """Return the plot of :func:`plot_run`; raise ConfigError if matplotlib is missing."""
    figure, (axis,) = _figure(1, title)
    label = "simulated " if measured.simulated else ""
    numbers = range(1, len(measured.calls) + 1)
    for name, key in (("latency", "latency"), ("compute", "compute"), ("H2D", "copy_in"), ("D2H", "copy_out")):
        seconds = [getattr(call, key) for call in measured.calls]
        if None not in seconds:
            axis.plot(numbers, [s * 1e3 for s in seconds], ".-", label=f"{label}{name}")
    axis.set(xlabel="iteration", ylabel=f"{label}time in ms")
    axis.set_xlim(0, len(measured.calls) + 1)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_ylim(bottom=0)
    axis.legend()
    return figure


def sweep_figure(points: Sequence[Point], title: str) -> Figure:
    """Return the plot of :func:`plot_sweep`; ``points`` are of one model, sorted by batch."""
    figure, (left, right) = _figure(2, title)
    for axis, key, name in ((left, "latency_ms", "latency in ms"), (right, "throughput", "samples per second")):
        _curves(axis, points, key)
        axis.set(xlabel="batch of the whole card", ylabel=name)
        _batch_axis(axis, sorted({point.batch for point in points}))
        axis.grid(alpha=0.3)
        axis.legend()
    _log_axis(left, [float(y) for line in left.get_lines() for y in line.get_ydata()])
    right.set_ylim(bottom=0)
    return figure


def _curves(axis: Any, points: Sequence[Point], key: str) -> None:
    own = "simulated" if points[0].simulated else f"measured, target {points[0].target}"
    axis.plot([p.batch for p in points], [getattr(p, key) for p in points], "o-", label=own)
    published = [point for point in points if point.published is not None]
    if published:
        axis.plot(
            [p.batch for p in published], [getattr(p.published, key) for p in published], "s--", label="published"
        )


def log_ticks(low: float, high: float) -> list[float]:
    """Return round tick values of a logarithmic axis: at least two for a range of 5 % or more, unlike powers of ten."""
    from matplotlib.ticker import MaxNLocator

    decades = math.log10(high / low)
    if decades < 0.8:  # linear spacing
        ticks = [float(f"{tick:.9g}") for tick in MaxNLocator(nbins=6, steps=[1, 2, 5, 10]).tick_values(low, high)]
    else:
        stride, digits = (1, (1, 2, 5)) if decades < 3 else (math.ceil(decades / 8), (1,))
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1, stride)
        ticks = [float(f"{digit}e{power}") for power in powers for digit in digits]
    return [tick for tick in ticks if low <= tick <= high]


def _log_axis(axis: Any, values: Sequence[float]) -> None:
    low, high = _log_limits(min(values), max(values))
    ticks = log_ticks(low, high)
    axis.set_yscale("log")
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.set_ylim(low, high)


def _batch_axis(axis: Any, batches: Sequence[int]) -> None:
    if len(batches) == 1:
        batches = sorted({batches[0] // 2 or 1, batches[0], batches[0] * 2})
    low, high = _log_limits(batches[0], batches[-1])
    shown = _apart(batches, math.log(high / low))
    axis.set_xscale("log", base=2)
    axis.set_xticks(shown, [str(batch) for batch in shown])
    axis.minorticks_off()
    axis.set_xlim(low, high)


def _log_limits(low: float, high: float) -> tuple[float, float]:
    margin = max((high / low) ** 0.05, _LEAST_MARGIN)
    return low / margin, high * margin


def _apart(batches: Sequence[int], length: float) -> list[int]:
    """Return the batches whose labels do not overlap, including both ends; ``length``: ln of the axis range."""

    def fit(one: int, other: int) -> bool:
        digits = (len(str(one)) + len(str(other))) / 2
        return abs(math.log(other / one)) / length > 0.02 + 0.025 * digits  # the width of a digit is 2.2 % of the panel

    shown = [batches[0]]
    for batch in batches[1:-1]:
        if fit(shown[-1], batch) and fit(batch, batches[-1]):
            shown.append(batch)
    return [*shown, batches[-1]]


def _figure(panels: int, title: str) -> tuple[Figure, Any]:
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, layout="constrained")
    FigureCanvasAgg(figure)  # without pyplot: no display, no global state, thread-safe
    figure.suptitle(title, wrap=True)
    return figure, figure.subplots(1, panels, squeeze=False)[0]


def _save(figure: Figure, path: Path) -> None:
    try:
        figure.savefig(path, dpi=110, metadata={"Software": None})
    except (OSError, ValueError) as error:  # ValueError: unsupported file type
        raise ConfigError(f"plot {path} cannot be written: {one_line(error)}; name a .png file") from error
