"""Fit the T1's description to the published ResNet50 table, and report the error of the simulated card.

Fitted per layout are compute rate, memory rate and launch cost, and in common the bandwidth and launch cost of a copy:
eight figures from 18 published ones. The errors are those of the engine itself, opened with the fitted figures: latency
from calls that wait, throughput from calls that are queued. The leave-one-out error of a batch is that of a fit without
this batch. All times are simulated; the published ones were measured by the vendor (tecoexec/data/README.md).
"""

from __future__ import annotations

import csv
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import yaml
from parts.bench import ROOT, arguments, finish
from parts.networks import resnet

from engine import PASS_PATH, EngineSpec, open_engine
from engine.onnx import bind_shapes, graph_inputs, load_model
from engine.sdaa import CARD_VARIABLE, CARDS, CardDescription, Layout, ShardWork, load_card, price, shard_work
from tecoexec.plot import require_matplotlib

T1 = CARDS / "t1.yaml"
PUBLISHED = ROOT / "tecoexec/data/t1_resnet50.csv"
DOCUMENT = ROOT / "docs/explanation/t1_card.md"
PLOT = ROOT / "docs/images/t1_fit.png"
MARKS = ("<!-- fit_t1.py: begin -->\n", "<!-- fit_t1.py: end -->\n")

SPAS = 4
PLAIN_UP_TO = 16
"""Largest card batch that was published with the plain layout."""
IMAGE = (3, 224, 224)
CALLS = 20

MEDIAN_TARGET, WORST_TARGET = 0.08, 0.20
AGREE = 0.02
"""Maximum relative difference of committed and fitted figures."""

KEYS = (
    *(
        f"layouts.{name}.{key}"
        for name in ("plain", "blocked")
        for key in ("compute_tflop_s", "memory_gb_s", "launch_us")
    ),
    *("host_to_device_gb_s", "copy_launch_us"),
)
START = (20, 130, 35, 25, 300, 20, 6, 20)


@dataclass(frozen=True, slots=True)
class Row:
    """One batch of the published table; milliseconds and samples per second."""

    batch: int
    latency: float
    throughput: float
    history_latency: float
    history_throughput: float

    @property
    def layout(self) -> str:
        """The layout of the pass that it was measured with."""
        return "plain" if self.batch <= PLAIN_UP_TO else "blocked"


@dataclass(frozen=True, slots=True)
class Point:
    """The simulated card compared with one published batch; errors are shares of the published figure."""

    row: Row
    latency: float
    throughput: float
    left_out: tuple[float, float]
    """Errors of latency and throughput of a fit without this batch."""

    @property
    def errors(self) -> tuple[float, float]:
        """Errors of latency and throughput."""
        return self.latency / self.row.latency - 1, self.throughput / self.row.throughput - 1

    @property
    def noise(self) -> tuple[float, float]:
        """The publisher's own second run over the first, less 1."""
        return self.row.history_latency / self.row.latency - 1, self.row.history_throughput / self.row.throughput - 1


def published() -> list[Row]:
    """Read the published table."""
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        names = ("latency_ms", "throughput", "history_latency_ms", "history_throughput")
        return [Row(int(line["batch"]), *(float(line[name]) for name in names)) for line in csv.DictReader(file)]


def works(path: Path, rows: Sequence[Row]) -> dict[int, ShardWork]:
    """Return what one SPA does for its shard of every batch."""
    model = load_model(path)
    name = graph_inputs(model)[0].name
    shards = {row.batch: -(-row.batch // SPAS) for row in rows}
    return {batch: shard_work(bind_shapes(model, {name: (size, *IMAGE)}), True) for batch, size in shards.items()}


def described(card: CardDescription, figures: Sequence[float]) -> CardDescription:
    """Return a card with the fitted figures, in the order of ``KEYS``."""
    plain, blocked = Layout(*figures[:3]), Layout(*figures[3:6])
    copies = {"host_to_device_gb_s": figures[6], "device_to_host_gb_s": figures[6], "copy_launch_us": figures[7]}
    return replace(card, layouts={**card.layouts, "plain": plain, "blocked": blocked}, **copies)


def residuals(logs: Any, rows: Sequence[Row], work: Mapping[int, ShardWork]) -> Any:
    """Return the errors in latency and throughput of every row, as logarithms of predicted over published."""
    card, errors = described(load_card(T1), np.exp(logs)), []
    for row in rows:
        cost = price(work[row.batch], card, card.layout(row.layout))
        phases = (cost.copy_in, cost.compute, cost.copy_out)
        errors += [np.log(sum(phases) * 1e3 / row.latency), np.log(row.batch / max(phases) / row.throughput)]
    return np.array(errors)


def fitted(rows: Sequence[Row], work: Mapping[int, ShardWork]) -> list[float]:
    """Fit the figures, three significant digits each; the loss turns linear at 5 %, so one odd batch does not rule."""
    from scipy.optimize import least_squares

    found = least_squares(residuals, np.log(START), args=(rows, work), loss="soft_l1", f_scale=0.05)
    return [float(f"{figure:.3g}") for figure in np.exp(found.x)]


def left_out(rows: Sequence[Row], work: Mapping[int, ShardWork]) -> list[tuple[float, float]]:
    """Return the errors at every batch, of fits without it (leave-one-out)."""
    fits = [fitted([*rows[:i], *rows[i + 1 :]], work) for i in range(len(rows))]
    pairs = [np.expm1(residuals(np.log(figures), [row], work)) for figures, row in zip(fits, rows, strict=True)]
    return [(float(latency), float(throughput)) for latency, throughput in pairs]


# ------------------------------------------------------------------------------------------------ the engine's own word


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """Set environment variables for a while."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def simulated(path: Path, row: Row, description: Path) -> tuple[float, float]:
    """Return the simulated latency in milliseconds and throughput in samples per second of a batch."""
    passes = PASS_PATH / "resnet" / ("resnet_pass.py" if row.layout == "plain" else "resnet_blocked_pass.py")
    spec = EngineSpec(path, row.batch, ((-(-row.batch // SPAS), *IMAGE),), pass_path=passes, simulate_only=True)
    x = np.zeros((row.batch, *IMAGE), np.float16)
    with environment(**{CARD_VARIABLE: str(description), "MAX_ENGINE_NUMS": str(SPAS)}), open_engine("sdaa", spec) as e:
        e(x)
        latency = e.calls[-1].latency  # type: ignore[attr-defined]
        for future in [e.run_async(x) for _ in range(CALLS)]:
            future.result()
        first, last = e.calls[-CALLS // 2].completed, e.calls[-1].completed  # type: ignore[attr-defined]
    return latency * 1e3, row.batch * (CALLS // 2 - 1) / (last - first)


def points(path: Path, rows: Sequence[Row], description: Path, out: Sequence[tuple[float, float]]) -> list[Point]:
    """Run the whole sweep on the simulated card."""
    return [Point(row, *simulated(path, row, description), o) for row, o in zip(rows, out, strict=True)]


def summary(errors: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Return median and worst of the absolute errors: of latency, of throughput and of all."""
    latency, throughput = ([abs(pair[i]) for pair in errors] for i in range(2))
    groups = {"latency": latency, "throughput": throughput, "all": latency + throughput}
    medians = {f"median_{name}": statistics.median(values) for name, values in groups.items()}
    return medians | {f"worst_{name}": max(values) for name, values in groups.items()}


# -------------------------------------------------------------------------------------------------------------- writing


def updated(text: str, figures: Sequence[float]) -> str:
    """Return the text of a card description with the fitted figures in it; everything else stays."""
    for key, figure in zip(KEYS, figures, strict=True):
        *parents, name = key.split(".")
        start = re.search(rf"^ +{parents[-1]}:\n", text, re.MULTILINE) if parents else None
        head, tail = (text[: start.end()], text[start.end() :]) if start else ("", text)
        text = head + re.sub(rf"(\b{name}: {{value: )[^,]+", rf"\g<1>{figure:g}", tail, count=1)
    return re.sub(r"(\bdevice_to_host_gb_s: {value: )[^,]+", rf"\g<1>{figures[6]:g}", text, count=1)


def committed() -> list[float]:
    """Return the figures the T1's description holds now, in the order of ``KEYS``."""
    data = yaml.safe_load(T1.read_text(encoding="utf-8"))
    return [reduce(lambda part, name: part[name], key.split("."), data)["value"] for key in KEYS]


def table(found: Sequence[Point]) -> str:
    """Return the sweep as a Markdown table with its summary."""
    head = ["batch", "layout", "published ms", "simulated ms", "error", "left out", "second run"]
    lines = [[*head, "published /s", "simulated /s", *head[4:]], ["---:"] * 12]
    for p in found:
        values = ((p.row.latency, p.latency), (p.row.throughput, p.throughput))
        cells = [
            [f"{was:.{2 - i * 2}f}", f"{now:.{2 - i * 2}f}", *(f"{e[i]:+.1%}" for e in (p.errors, p.left_out, p.noise))]
            for i, (was, now) in enumerate(values)
        ]
        lines.append([str(p.row.batch), p.row.layout, *cells[0], *cells[1]])
    kinds = {"fit": "errors", "left out": "left_out", "publisher's second run": "noise"}
    sums = {name: summary([getattr(p, kind) for p in found]) for name, kind in kinds.items()}
    text = [f"| {' | '.join(line)} |" for line in lines]
    text += ["", "| errors | latency: median | worst | throughput: median | worst |", "|---|---:|---:|---:|---:|"]
    keys = ("median_latency", "worst_latency", "median_throughput", "worst_throughput")
    text += [f"| {name} | {' | '.join(f'{values[key]:.1%}' for key in keys)} |" for name, values in sums.items()]
    return "\n".join(text) + "\n"


def write_document(found: Sequence[Point]) -> None:
    """Put table and plot into the documentation."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, after = text.split(MARKS[0])[0], text.split(MARKS[1])[1]
    DOCUMENT.write_text(f"{before}{MARKS[0]}{table(found)}{MARKS[1]}{after}", encoding="utf-8")
    draw(found)


def draw(found: Sequence[Point]) -> None:
    """Draw latency and throughput against the batch: published, second run, simulated."""
    require_matplotlib()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.2), constrained_layout=True)
    batches = [p.row.batch for p in found]
    latencies, throughputs = [4, 6, 10, 20, 40, 80], [250, 500, 1000, 2000, 4000, 8000]
    kinds = (("latency", "ms", latencies), ("throughput", "samples/s", throughputs))
    for axis, (name, unit, ticks) in zip(axes, kinds, strict=True):
        axis.plot(batches, [getattr(p.row, name) for p in found], "s-", label="published")
        axis.plot(batches, [getattr(p.row, f"history_{name}") for p in found], "x:", label="published, second run")
        axis.plot(batches, [getattr(p, name) for p in found], "o--", label="simulated")
        axis.axvline(PLAIN_UP_TO * 2**0.5, color="0.8", zorder=0)
        axis.set(xscale="log", yscale="log", xlabel="batch of the card", ylabel=f"{name} ({unit})")
        axis.set_xticks(batches, [str(batch) for batch in batches])
        axis.set_yticks(ticks, [str(tick) for tick in ticks])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend()
    figure.suptitle("ResNet50, float16, one T1 (4 SPA); left of the line the plain layout, right of it the blocked one")
    figure.savefig(PLOT, dpi=110)


# ----------------------------------------------------------------------------------------------------------------- main


def run(path: Path, write: bool) -> tuple[list[float], list[Point]]:
    """Fit, write the figures where asked for, and sweep the simulated card with them."""
    rows = published()
    work = works(path, rows)
    figures, out = fitted(rows, work), left_out(rows, work)
    text = updated(T1.read_text(encoding="utf-8"), figures)
    if write:
        T1.write_text(text, encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        description = Path(folder) / "fitted.yaml"
        description.write_text(text, encoding="utf-8")
        return figures, points(path, rows, description, out)


def verdict(figures: Sequence[float], found: Sequence[Point]) -> list[str]:
    """Return the failures: missed targets, or committed figures that differ from the fit."""
    errors = summary([p.errors for p in found])
    wrong = []
    if errors["median_all"] > MEDIAN_TARGET or errors["worst_all"] > WORST_TARGET:
        wrong.append(f"median {errors['median_all']:.1%} or worst {errors['worst_all']:.1%} misses the target")
    for key, now, fit in zip(KEYS, committed(), figures, strict=True):
        if abs(now / fit - 1) > AGREE:
            wrong.append(f"{T1.name}: {key} is {now:g}, the fit gives {fit:g}; run fit_t1.py --write")
    return wrong


def main() -> int:
    """Run the fit."""
    parser = arguments(__doc__)
    parser.add_argument("--onnx", type=Path, metavar="FILE", help="an exported ResNet50 (default: a graph made here)")
    parser.add_argument("--write", action="store_true", help=f"write the figures into {T1.relative_to(ROOT)}")
    parser.add_argument("--docs", action="store_true", help="write table and plot into docs/")
    parser.add_argument("--check", action="store_true", help="fail if targets or committed figures are missed")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = args.onnx or Path(folder) / "resnet50.onnx"
        if args.onnx is None:
            onnx.save(resnet(), path)
        figures, found = run(path, args.write)
    print("".join(f"{key:<32} {figure:g}\n" for key, figure in zip(KEYS, figures, strict=True)))
    print(table(found))
    print(f"targets: median at most {MEDIAN_TARGET:.0%}, worst at most {WORST_TARGET:.0%}, over latency and throughput")
    if args.docs:
        write_document(found)
    wrong = verdict(figures, found)
    print("\n".join(wrong) or "the committed figures are those of the fit, and meet the targets")
    kinds = ("errors", "left_out", "noise")
    sums: dict[str, Any] = {kind: summary([getattr(p, kind) for p in found]) for kind in kinds}
    finish("fit_t1", {"figures": dict(zip(KEYS, figures, strict=True)), "simulated": True, **sums}, args)
    return 1 if wrong and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
