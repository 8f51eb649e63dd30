"""Run configured models over their batch sizes: python -m tecoexec.sweep --case resnet50 --out results.

Prints a table, and writes ``sweep.csv``, ``sweep.json`` and a plot per model to the folder ``--out``.

Exit codes: 0 all ran; 1 some cases were skipped or failed; 2 no case ran; 130 interrupted.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from engine import ConfigError, TecoInferError, add_version
from tecoexec import report
from tecoexec.config import CONFIG, Sweep, load_cases, select_cases
from tecoexec.measure import measure
from tecoexec.point import Point, Reference, drops, reference_columns, references_of
from tecoexec.report import milliseconds
from tecoexec.request import open_request, random_inputs
from tecoinfer_modelzoo.files import write_file
from tecoinfer_modelzoo.formatting import aligned, as_csv
from utils.pipeline.cli import run
from utils.pipeline.report.report import environment, write_json
from utils.places import check_folder


def run_point(case: Sweep, batch: int, target: str = "sdaa") -> tuple[Point, str]:
    """Run a case at one batch; return its results and the printed text, or raise TecoInferError."""
    request = case.request(batch, target)
    engine, shapes = open_request(request)
    with engine:
        inputs = random_inputs(request, engine, shapes)
        limits = {"iterations": request.iterations, "warm_up": request.warm_up}
        measured = measure(engine, inputs, shapes.batch, run_sync=request.run_sync, **limits)
        text = "\n".join(report.lines(request, engine, shapes, measured)) + "\n"
        point = Point(
            case=case.name,
            model=case.model,
            target=target,
            simulated=measured.simulated,
            shape=",".join("*".join(map(str, shape)) or "scalar" for shape in shapes.whole),
            batch=shapes.batch,
            latency_ms=measured.latency * 1e3,
            average_ms=measured.average * 1e3,
            throughput=measured.throughput,
            published=case.published.get(batch),
            warnings=report.caveats(measured, engine, shapes),
            references=case.references.get(batch, {}),
        )
    return point, text + _reference_lines(point)


def _reference_lines(point: Point) -> str:
    """Return lines with a point's reference results, the ratios to them, and its drops."""
    heads, (cells,) = reference_columns([point])
    label = "simulated results and references" if point.simulated else "results and references"
    shown = ", ".join(f"{head} {cell}" for head, cell in zip(heads, cells, strict=True))
    return "".join(f"{line}\n" for line in (*([f"{label}: {shown}"] if shown else []), *drops(point)))


def table(points: Sequence[Point]) -> str:
    """Return a sweep as an aligned table, with published and reference results."""
    label = "simulated " if any(point.simulated for point in points) else ""
    head = ["case", "shape", f"{label}latency", f"{label}throughput", "published latency", "published throughput"]
    heads, others = reference_columns(points)
    rows = [[*head, "latency error", "throughput error", *heads]]
    for point, cells in zip(points, others, strict=True):
        row = [point.case, point.shape, f"{milliseconds(point.latency_ms * 1e-3)} ms", f"{point.throughput:.1f}/s"]
        if point.published is not None and point.errors is not None:
            row += [f"{point.published.latency_ms:.2f} ms", f"{point.published.throughput:.1f}/s"]
            row += [f"{error:+.1%}" for error in point.errors]
        rows.append(row + [""] * (len(rows[0]) - len(row) - len(cells)) + cells)
    return "\n".join([*aligned(rows), *_overall(points), *(line for point in points for line in drops(point))]) + "\n"


def _overall(points: Sequence[Point]) -> list[str]:
    errors = [point.errors for point in points if point.errors is not None]
    if not errors:
        return []
    columns = [[abs(error) for error in column] for column in zip(*errors, strict=True)]
    return [
        f"error of {name}: median {median(column):.1%}, worst {max(column):.1%}, over {len(column)} published points"
        for name, column in zip(("latency", "throughput"), columns, strict=True)
    ]


def write_results(points: Sequence[Point], folder: Path, skipped: Sequence[str] = ()) -> list[str]:
    """Write CSV, JSON and a plot per model; return a line per file, or the reason for a missing plot.

    An old JSON file is removed first and the new one written last, so that a JSON file always has its CSV and plots.

    Raises:
        ConfigError: a file cannot be written.
    """
    data: dict[str, Any] = {"schema_version": report.SCHEMA_VERSION, "kind": "tecoexec_sweep"}
    data |= {"points": [_plain(point) for point in points], "skipped": list(skipped)}
    with suppress(OSError):  # errors of the folder are reported when writing
        (folder / "sweep.json").unlink(missing_ok=True)
    try:
        return _write_tables(points, folder)
    finally:  # written even if a plot fails
        write_json({**data, **environment()}, folder / "sweep.json")


def _write_tables(points: Sequence[Point], folder: Path) -> list[str]:
    from tecoexec.plot import plot_sweep, require_matplotlib

    _write_csv(points, folder / "sweep.csv")
    written = [f"results: {folder / 'sweep.csv'}", f"results: {folder / 'sweep.json'}"]
    try:
        require_matplotlib()
    except ConfigError as error:
        return [*written, f"no plot: {error}"]
    for model in dict.fromkeys(point.model for point in points):
        path = folder / f"{file_name(model)}.png"
        mine = sorted((point for point in points if point.model == model), key=lambda point: point.batch)
        plot_sweep(path, mine, f"{model} on target {mine[0].target}")
        written.append(f"plot: {path}")
    return written


def _plain(point: Point) -> dict[str, Any]:
    published = point.published._asdict() if point.published is not None else None
    errors = dict(zip(("latency", "throughput"), point.errors, strict=True)) if point.errors is not None else None
    others = {"references": references_of(point), "drops": list(drops(point))}
    return {**asdict(point), "published": published, "errors": errors, **others}


def _write_csv(points: Sequence[Point], path: Path) -> None:
    columns = ("case", "model", "target", "simulated", "shape", "batch", "latency_ms", "average_ms", "throughput")
    others = dict.fromkeys(name for point in points for name in point.references)
    heads = [f"{name}_{field}" for name in ("published", *others) for field in Reference._fields]
    rows = [[*(getattr(p, c) for c in columns), *_others(p, others)] for p in points]
    try:
        write_file(path, as_csv([[*columns, *heads], *rows]).encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise ConfigError(f"result file {path} cannot be written: {error.strerror}; choose another folder") from error


def _others(point: Point, names: Iterable[str]) -> list[object]:
    figures = [point.published or ("", ""), *(point.references.get(name, Reference()) for name in names)]
    return ["" if value is None else value for pair in figures for value in pair]


def make_folder(folder: Path) -> Path:
    """Create a folder for results; raise ConfigError if it cannot be created."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"folder {folder} cannot be used: {error.strerror}; choose another") from error
    return folder


def sweep(cases: Sequence[Sweep], target: str, folder: Path) -> tuple[list[Point], list[str]]:
    """Run every case at every batch, each with a log in ``folder``; return points and messages about failures."""
    points: list[Point] = []
    skipped: list[str] = []
    for case in cases:
        if case.missing:
            skipped.append(f"skipped: {case.missing}")
            continue
        for batch in case.batches:
            try:
                point, text = run_point(case, batch, target)
            except TecoInferError as error:
                skipped.append(f"failed: {case.name}, batch {batch}: {error}")
                continue
            points.append(point)
            write_log(folder, case, batch, text)
    return points, skipped


def file_name(name: str) -> str:
    """Return a name as a part of a file name, with special characters replaced by ``_``."""
    return re.sub(r"[^\w.+-]", "_", name)


def write_log(folder: Path, case: Sweep, batch: int, text: str) -> None:
    """Write the output of a run; raise ConfigError if the file cannot be written."""
    path = folder / f"{file_name(case.name)}_{batch}.log"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"log {path} cannot be written: {error.strerror}; choose another folder") from error


def execute(argv: Sequence[str] | None = None) -> int:
    """Run the sweep and return the exit code; raise TecoInferError if the configuration is invalid, or no case ran."""
    parser = argparse.ArgumentParser(
        prog="python -m tecoexec.sweep", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_version(parser)
    add = parser.add_argument
    add("--config", type=Path, default=CONFIG, metavar="FILE", help="configuration file (default: the zoo's)")
    add("--case", default="", metavar="WORD", help="only cases whose name contains WORD")
    add("--target", default="sdaa", help="engine (default: sdaa, which only computes times)")
    add("--out", type=Path, default=Path("tecoexec_sweep"), metavar="DIR", help="output folder")
    args = parser.parse_args(argv)
    check_folder("--out", args.out)
    configured = load_cases(args.config)
    if not configured:
        raise ConfigError(f"{args.config} has no cases; name another file with --config")
    cases = select_cases(configured, args.case)
    points, skipped = sweep(cases, args.target, make_folder(args.out))
    for line in skipped:
        sys.stderr.write(line + "\n")
    if not points:
        raise ConfigError(f"none of {len(cases)} cases of {args.config} could be run")
    sys.stdout.write(table(points) + "\n".join(write_results(points, args.out, skipped)) + "\n")
    return 1 if skipped else 0


def main() -> None:
    """Run the command line and exit."""
    run(execute)


if __name__ == "__main__":
    main()
