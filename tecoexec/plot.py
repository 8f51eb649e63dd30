"""Pictures of a run and of a sweep, by matplotlib (the extra ``plot``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import ConfigError, one_line
from tecoexec.measure import Measurement

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tecoexec.point import Point

_INCHES = (10.0, 4.2)


def require_matplotlib() -> None:
    """Refuse to plot where matplotlib is not installed.

    Raises:
        ConfigError: it says what to install.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ConfigError('plots need matplotlib; install it with: pip install ".[plot]"') from error


def plot_run(path: Path, measured: Measurement, title: str) -> None:
    """Draw the latency of every call and its parts.

    Raises:
        ConfigError: matplotlib is missing, or the file cannot be written.
    """
    figure, axes = _figure(1)
    label = "simulated " if measured.simulated else ""
    numbers = range(1, len(measured.calls) + 1)
    for name, key in (("latency", "latency"), ("compute", "compute"), ("H2D", "copy_in"), ("D2H", "copy_out")):
        seconds = [getattr(call, key) for call in measured.calls]
        if None not in seconds:
            axes[0].plot(numbers, [s * 1e3 for s in seconds], ".-", label=f"{label}{name}")
    axes[0].set(title=title, xlabel="iteration", ylabel=f"{label}time in ms")
    axes[0].set_ylim(bottom=0)
    _save(figure, path)


def plot_sweep(path: Path, points: Sequence[Point], title: str) -> None:
    """Draw latency and throughput against the batch, with the published curves where there are some.

    Raises:
        ConfigError: matplotlib is missing, or the file cannot be written.
    """
    figure, (left, right) = _figure(2)
    own = "simulated" if points[0].simulated else f"measured, target {points[0].target}"
    known = [point for point in points if point.published is not None]
    for axis, key, name in ((left, "latency_ms", "latency in ms"), (right, "throughput", "samples per second")):
        axis.plot([p.batch for p in points], [getattr(p, key) for p in points], "o-", label=own)
        if known:
            axis.plot([p.batch for p in known], [getattr(p.published, key) for p in known], "s--", label="published")
        axis.set(xlabel="batch of the whole card", ylabel=name)
        axis.set_xscale("log", base=2)
        batches = sorted({point.batch for point in points})
        axis.set_xticks(batches, [str(batch) for batch in batches])
        axis.grid(alpha=0.3)
    left.set_yscale("log", base=2)
    left.yaxis.set_major_formatter("{x:g}")
    right.set_ylim(bottom=0)
    figure.suptitle(title)
    _save(figure, path)


def _figure(panels: int) -> tuple[Figure, Any]:
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, layout="constrained")
    FigureCanvasAgg(figure)  # without pyplot: no display, no state, safe beside other threads
    return figure, figure.subplots(1, panels, squeeze=False)[0]


def _save(figure: Figure, path: Path) -> None:
    for axis in figure.axes:
        axis.legend()
    try:
        figure.savefig(path, dpi=110, metadata={"Software": None})
    except (OSError, ValueError) as error:  # ValueError: a suffix it cannot draw
        raise ConfigError(f"plot {path} cannot be written: {one_line(error)}; name a .png file") from error
