"""The plan as one HTML page, with a plot of latency against load drawn as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from tecoexec.plan.curve import Curve
from tecoexec.plan.results import Planned, headline, load_table, rate_table
from tecoexec.plan.search import Load
from tecoexec.plan.settings import PlanSettings
from tecoexec.request import Request

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 640, 320, 64, 44, 16

_STYLE = """
:root {
  --ground: #ffffff; --text: #1f2328; --muted: #57606a; --line: #d0d7de; --sunk: #f6f8fa;
  --low: #0969da; --high: #cf222e;
  color-scheme: light dark;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #0e1319; --text: #e5eaf0; --muted: #9ba8b6; --line: #2a3541; --sunk: #161d25;
    --low: #84b6ff; --high: #ff9d94;
  }
}
body {
  font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; padding: 0 1rem; max-width: 60rem; overflow-wrap: anywhere;
  background: var(--ground); color: var(--text);
}
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; }
th, td { border: 1px solid var(--line); padding: .25rem .6rem; text-align: right; overflow-wrap: normal; }
th { background: var(--sunk); }
svg { max-width: 100%; height: auto; }
"""


def page(request: Request, settings: PlanSettings, curve: Curve, planned: Sequence[Planned]) -> str:
    """Return the page: the assumptions, the table of plans, and for each plan its latencies against load."""
    title = f"Capacity plan of {request.model.name}"
    label = " (simulated)" if curve.simulated else ""
    parts = [f"<p>{escape(line)}</p>" for line in headline(request, settings, curve)]
    parts += [f"<h2>Plans{label}</h2>", _table(rate_table(curve, planned))]
    parts += [f"<p>{one.goal.rate:g} requests/s: {escape(one.reason)}</p>" for one in planned if one.plan is None]
    for one in planned:
        if one.plan is not None and one.loads:
            parts.append(f"<h2>Latency against load{label}, planned for {one.goal.rate:g} requests/s</h2>")
            parts += [chart(one.loads, settings.bound), _table(load_table(one))]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f"<title>{escape(title)}</title><style>{_STYLE}</style>"
    body = "\n".join([f"<h1>{escape(title)}</h1>", *parts])
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *rest = rows
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rest)
    return f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>'


class _Axes(NamedTuple):
    """Scales of the plot: ``widest`` requests per second; decimal logarithms of the milliseconds at both ends."""

    widest: float
    low: float
    high: float

    def x(self, rate: float) -> float:
        return _LEFT + rate / self.widest * (_WIDTH - _LEFT - 16)

    def y(self, seconds: float) -> float:
        place = (self.high - math.log10(seconds * 1e3)) / (self.high - self.low)
        return _TOP + place * (_HEIGHT - _TOP - _BOTTOM)


def chart(loads: Sequence[Load], bound: float) -> str:
    """Return the plot of both percentiles in milliseconds (logarithmic) against requests per second, as SVG."""
    values = [bound, *(one.p50 for one in loads), *(one.p99 for one in loads)]
    low, high = (math.log10(edge * 1e3) for edge in (min(values), max(values)))
    margin = max(0.05 * (high - low), 0.02)
    axes = _Axes(loads[-1].rate * 1.02, low - margin, high + margin)
    parts = [f'<rect x="0" y="0" width="{_WIDTH}" height="{_HEIGHT}" fill="var(--ground)"/>']
    for ms in ticks(10**axes.low, 10**axes.high):
        height = axes.y(ms * 1e-3)
        parts.append(_line(_LEFT, height, _WIDTH - 16, height, "var(--line)", ""))
        parts.append(_text(_LEFT - 6, height + 4, f"{ms:g} ms", "end"))
    for name, color, points in (
        ("p50", "var(--low)", [(one.rate, one.p50) for one in loads]),
        ("p99", "var(--high)", [(one.rate, one.p99) for one in loads]),
    ):
        line = " ".join(f"{axes.x(rate):.1f},{axes.y(seconds):.1f}" for rate, seconds in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        rate, seconds = points[-1]
        parts.append(_text(axes.x(rate) - 4, axes.y(seconds) - 6, name, "end", color))
    parts.append(_line(_LEFT, axes.y(bound), axes.x(axes.widest), axes.y(bound), "var(--muted)", "4 3"))
    parts.append(_text(_LEFT + 4, axes.y(bound) - 4, f"bound {bound * 1e3:g} ms", "start", "var(--muted)"))
    parts += [_text(axes.x(one.rate), _HEIGHT - 26, f"{one.rate:.0f}", "middle") for one in loads[::2]]
    parts.append(_text(_WIDTH / 2, _HEIGHT - 8, "requests per second", "middle"))
    drawn = "".join(parts)
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="latency against load">{drawn}</svg>'


def ticks(low: float, high: float) -> list[float]:
    """Return round values of a logarithmic axis from ``low`` to ``high``, or both ends if there are fewer than two."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits = (1, 2, 5) if len(decades) < 5 else (1,)
    found = [float(f"{digit}e{decade}") for decade in decades for digit in digits]
    inside = [one for one in found if low <= one <= high]
    return inside if len(inside) > 1 else [float(f"{low:.2g}"), float(f"{high:.2g}")]


def _line(x1: float, y1: float, x2: float, y2: float, color: str, dashes: str) -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"{dashed}/>'


def _text(x: float, y: float, text: str, anchor: str, color: str = "var(--text)") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" text-anchor="{anchor}" fill="{color}">{escape(text)}</text>'
