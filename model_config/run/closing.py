"""Validation of the two lines that end the standard output of a valid step."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from model_config.written import STRANGE, read_json
from tecoinfer_modelzoo.text import shortened
from utils.pipeline.run.nan import input_line, output_line

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|inf|nan)"
_METRIC = re.compile(rf"eval_metric ({_NUMBER})", re.IGNORECASE)
_METRIC_BEGINS = re.compile(r"eval_metric\b", re.IGNORECASE)
_SUMMARY_BEGINS = re.compile("summary:", re.IGNORECASE)
_FIELDS = ("avg_sps", "e2e_time", "avg_inference_time", "avg_preprocess_time", "avg_postprocess")
_SUMMARY = re.compile(f"summary: {', '.join(f'{name}: {_NUMBER}' for name in _FIELDS)}(, .*)?", re.IGNORECASE)
_TAIL = 65536
"""Bytes at the end of a log that are searched for its last line."""
_SHOWN = 80
_LINE = 600
"""Maximum characters of a last line in reports."""
_LAST = "print 'eval_metric <number>' and then 'summary: ...' as the last two lines"


def closing(stdout: Path) -> tuple[float | None, str]:
    """Return the metric of the closing lines, and an error message with its fix; empty if the lines are valid.

    Args:
        stdout: log of the step; its size is limited (:class:`model_config.run.limits.Limits`).
    """
    text = stdout.read_bytes().decode("utf-8", errors="replace")
    lines = [stripped for line in text.splitlines() if (stripped := line.strip())]
    metrics = _starting(lines, _METRIC_BEGINS)
    summaries = _starting(lines, _SUMMARY_BEGINS)
    if trouble := _misplaced(lines, metrics, summaries):
        return None, trouble
    line = lines[metrics[0]]
    found = _METRIC.fullmatch(line)
    if found is None:
        return None, f"{_short(line)} is not 'eval_metric <number>'; print the number alone"
    if not math.isfinite(float(found[1])):
        return None, f"eval_metric {float(found[1])} is not a finite number; check the computation of the metric"
    if not _SUMMARY.fullmatch(lines[-1]):
        return None, f"{_short(lines[-1])} does not hold a number for each of {', '.join(_FIELDS)}; print all of them"
    return float(found[1]), ""


def said_of_nan(result: Path | None) -> str:
    """Return one line about NaN values in the samples of a step's JSON; empty if there were none.

    A script that reports its samples cannot pass with NaN values, whatever its exit code.
    """
    try:
        found = read_json(result) if result is not None else {}
        inputs, outputs = ([str(name) for name in found.get(key) or ()] for key in ("nan_inputs", "nan_outputs"))
        total = int(found["samples"] if "samples" in found else len(found["answers"])) if inputs or outputs else 0
    except STRANGE:  # a JSON file of another format
        return ""
    if outputs:
        return output_line(outputs, total, inputs, str(found.get("engine", "")))
    return input_line(inputs, total) if inputs else ""


def _starting(lines: Sequence[str], pattern: re.Pattern[str]) -> list[int]:
    return [place for place, line in enumerate(lines) if pattern.match(line)]


def _misplaced(lines: Sequence[str], metrics: Sequence[int], summaries: Sequence[int]) -> str:
    """Return an error if the closing lines are not the last two, each once and in order."""
    for what, places in (("eval_metric", metrics), ("summary:", summaries)):
        if not places:
            return f"the output has no line that starts with '{what}'; {_LAST}"
        if len(places) > 1:
            shown = ", ".join(_short(lines[place]) for place in places[:3])
            return f"the output has {len(places)} lines that start with '{what}' ({shown}); print one"
    if summaries[0] < metrics[0]:
        return f"the output has 'summary:' before 'eval_metric'; {_LAST}"
    for place, where in ((metrics[0] + 1, "between its closing lines"), (summaries[0] + 1, "after its closing lines")):
        if place < len(lines) and place not in summaries:
            return f"the output has {_short(lines[place])} {where}; {_LAST}"
    return ""


def _short(line: str) -> str:
    return repr(shortened(line, _SHOWN, end=False))


def last_line(log: Path) -> str:
    """Return the last non-blank line of a log; empty if there is none."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL))
        lines = file.read().decode("utf-8", errors="replace").splitlines()
    return shortened(next((line.strip() for line in reversed(lines) if line.strip()), ""), _LINE)
