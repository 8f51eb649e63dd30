"""Output of all runs: lines for people, JSON for programs."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from engine import ConfigError, Engine, provider
from tecoinfer_modelzoo.distribution import with_page_paths
from tecoinfer_modelzoo.flags import STDOUT
from tecoinfer_modelzoo.text import printable, shortened
from utils.pipeline.run.nan import input_line, output_line
from utils.pipeline.run.pipeline import Failure
from utils.tasks.base import Task
from utils.tasks.model import Model

if TYPE_CHECKING:
    from utils.pipeline.flags.options import Options
    from utils.pipeline.report.report import Report

SHOWN_CLASSES = 100
"""Largest number of classes whose figures are printed; of further classes only their number."""

SHOWN_FAILURES = 20
"""Largest number of failures that are listed; of further failures only their number."""


def warn(text: str) -> None:
    """Write a line to stderr."""
    print(with_page_paths(text), file=sys.stderr)


def escaped_line(text: str) -> str:
    """Escape line breaks and other control characters, as of file names; shorten a long text in the middle."""
    return shortened(printable(text, keep=""))


def print_engines(task: Task, engines: Mapping[str, Engine]) -> None:
    """Print the engine of each model, and which models have random weights."""
    by = provider(task.options.target)
    served = "" if by == "built-in" else f" (served by {by}, not the zoo's own)"
    for name, engine in engines.items():
        which = f", model {name}" if task.models else ""
        print(f"target {task.options.target}{which}{served}: {engine.describe()}")
        model = Model.of(engine)
        if model.stored.provenance.get("weights") == "random":
            what = "for functional and speed checks only, its answers mean nothing"
            print(f"{model.ckpt.name} has random weights: {what}")


def int8_figures(engines: Mapping[str, Engine]) -> dict[str, dict[str, Any]]:
    """Return the agreement of each int8 engine with float32, by model, for JSON and :func:`int8_lines`."""
    return {name: asdict(engine.agreement) for name, engine in engines.items() if engine.agreement is not None}


def int8_lines(figures: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the lines on the figures of :func:`int8_figures`."""
    if not figures:
        return []
    from engine import Agreement

    of = {name: f", model {name}" if len(figures) > 1 else "" for name in figures}
    return [f"int8{of[name]}: {Agreement(**figure).text}" for name, figure in figures.items()]


def finish(report: Report, parsed: Options) -> int:
    """List failures and warnings, print the two closing lines, write the JSON, and return the exit code.

    The JSON is written even if the output cannot be printed; ConfigError is raised if it cannot be written.
    """
    try:
        _print(report)
        sys.stdout.flush()
    finally:
        write_result(report, parsed)
    return 0 if report.sound else 1


def _print(report: Report) -> None:
    list_nan(report.nan_inputs, report.nan_outputs, report.samples, report.engine)
    if report.unknown_metric:
        warn(report.unknown_metric)
    for hint in report.hints:
        warn(f"hint: {hint}")
    if report.cut_short:
        print(report.cut_short)
    ran = report.resumed_steps < report.steps  # no time was measured if all steps came from the journal
    for line in _device_lines(report.device) if ran else ():
        print(line)
    list_failures(report.failures)
    lines = [*report.data_warnings]
    if report.resumed_steps:
        lines.append(
            f"{report.resumed_steps} of {report.steps} steps were taken from the journal; times are of the others"
        )
    if report.busy and ran:
        lines.append(report.bottleneck())
    lines += [*int8_lines(report.int8), *_class_lines(report)]
    lines += figure_lines("secondary metrics", report.secondary)
    lines += [*figure_lines("figures", report.figures), *report.closing_lines()]
    for line in lines:
        print(line)


def list_nan(inputs: Sequence[str], outputs: Sequence[str], total: int, engine: str) -> None:
    """Warn of samples with NaN in their input or output, of ``total`` samples run on ``engine`` (its description)."""
    if inputs:
        warn(input_line(inputs, total))
    if outputs:
        warn(output_line(outputs, total, inputs, engine))


def figure_lines(what: str, figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line with all figures, if there are any."""
    if figures:
        yield f"{what}: {', '.join(f'{name} {_number(value)}' for name, value in figures.items())}"


def _class_lines(report: Report) -> Iterator[str]:
    """Yield the figures per class as a table."""
    if not report.per_class:
        return
    shown = list(report.per_class.items())[:SHOWN_CLASSES]
    heads = list(shown[0][1])
    rows = [[name, *(_cell(figures[head]) for head in heads)] for name, figures in shown]
    widths = [max(len(row[place]) for row in [["class", *heads], *rows]) for place in range(1 + len(heads))]
    for first, *others in [["class", *heads], *rows]:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        yield "  ".join([first.ljust(widths[0]), *cells])
    if len(report.per_class) > len(shown):
        yield f"and {len(report.per_class) - len(shown)} more classes, which --json has"


def _cell(value: float) -> str:
    """Format a figure: integers unchanged, floats with four decimals."""
    if isinstance(value, int):
        return str(value)
    return "-" if math.isnan(value) else f"{value:.4f}"


def _number(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return " and ".join(map(_number, value))
    if not isinstance(value, float):
        return str(value)
    return "n/a" if math.isnan(value) else f"{value:.6g}"


def about(parsed: Options) -> dict[str, Any]:
    """Return the fields of every JSON result: target, its provider, model and task."""
    model = {name: str(path) for name, path in parsed.models.items()} if isinstance(parsed.ckpt, dict) else parsed.ckpt
    return {
        "target": parsed.target,
        "provider": provider(parsed.target),
        "model": model if isinstance(model, dict) else str(model),
        "task": parsed.task,
    }


def write_result(report: Report, parsed: Options, **extra: Any) -> None:
    """Write the JSON (with ``extra``) and its records, with ``--json``; raise ConfigError if that is not possible.

    On standard output, the JSON of a run in a faster mode is written once, with the comparison to the exact run.
    """
    if parsed.json is None or (parsed.json == STDOUT and parsed.faster and not extra):
        return
    from utils.pipeline.report.report import commit
    from utils.pipeline.resume.records import HASH

    where, kept = about(parsed) | {"data": parsed.data_text}, report.records
    named: dict[str, Any] = {"records": None} if kept is None else {"records": kept.path.name, HASH: kept.sha256}
    try:
        commit(report.to_dict(**where, **named, **extra), parsed.json, kept)
    except ConfigError:
        if kept is not None:  # the result is written without records
            kept.discard()
            named = {"records": None} if kept.lost else named
            with suppress(ConfigError):
                commit(report.to_dict(**where, **named, **extra), parsed.json, None)
        raise


def _device_lines(device: Mapping[str, Any]) -> list[str]:
    """Return the lines on a simulated card, one per model."""
    if not device:
        return []
    models = device.get("models")
    if models is not None:
        return [f"model {name}, {_device_line(report, 'call')}" for name, report in models.items()]
    return [_device_line(device, device.get("per", "batch"))]


def _device_line(device: Mapping[str, Any], per: str) -> str:
    return (
        f"simulated: {device['simulated_latency'] * 1e3:.2f} ms per {per}, {device['simulated_sps']:.1f} samples/s, "
        f"{device['memory_per_spa'] / 2**20:.1f} MB on each of {device['healthy']} of {device['spas']} SPA"
    )


def list_failures(failures: Sequence[Failure]) -> None:
    """List the samples that could not be run, at most :data:`SHOWN_FAILURES` of them."""
    for failure in failures[:SHOWN_FAILURES]:
        warn(escaped_line(failure.text))
    if failures:
        more = f" ({len(failures) - SHOWN_FAILURES} not listed)" if len(failures) > SHOWN_FAILURES else ""
        warn(f"{len(failures)} samples could not be run{more}")
