"""LoadGen's results, read from its detail log (one JSON object per line)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import ConfigError, DataError

DETAIL, SUMMARY, ACCURACY = "mlperf_log_detail.txt", "mlperf_log_summary.txt", "mlperf_log_accuracy.json"
"""LoadGen's names of its logs."""

PERCENTILES = (50.0, 90.0, 95.0, 97.0, 99.0, 99.9)
"""Percentiles that LoadGen reports."""

_PREFIX = ":::MLLOG "
_HARMLESS = re.compile(r"Ending early: Max query count reached")


@dataclass(frozen=True, slots=True)
class LoadGenResult:
    """What LoadGen reports.

    Attributes:
        valid: whether it calls the result valid by MLPerf's rules; ``None`` in an accuracy run.
        reasons: why it is not, or what it warned of.
        latency: seconds by name: ``min``, ``max``, ``mean`` and ``percentile_50`` to ``percentile_99.9``; those of
            queries for MultiStream, else of samples. Empty in an accuracy run.
        queries: number of queries it counted.
        figures: all its results by its own keys.
    """

    valid: bool | None
    reasons: tuple[str, ...]
    latency: Mapping[str, float]
    queries: int
    figures: Mapping[str, Any]


def read_result(folder: Path, scenario: str) -> LoadGenResult:
    """Read the result of a test; raise ConfigError with LoadGen's reason if it refused the test and has no result."""
    entries = list(_entries(folder / DETAIL))
    errors = [str(e["value"]) for e in entries if _marked(e, "is_error") and not _HARMLESS.search(str(e["value"]))]
    settings = [e for e in entries if e.get("key") == "error_invalid_test_settings"]
    if settings:
        raise ConfigError(f"LoadGen refuses the settings: {'; '.join(str(e['value']) for e in settings)}")
    figures = {str(e["key"]): e["value"] for e in entries if str(e.get("key", "")).startswith(("result_", "early_"))}
    if "result_validity" not in figures:
        if errors:
            raise ConfigError(f"LoadGen refuses the test: {'; '.join(errors)}")
        return LoadGenResult(None, (), {}, 0, figures)
    valid = figures["result_validity"] == "VALID"
    warnings = [str(e["value"]) for e in entries if _marked(e, "is_warning")]
    reasons = (*([] if valid else _reasons(figures)), *errors, *warnings)
    return LoadGenResult(
        valid, reasons, _latency(figures, scenario), int(figures.get("result_query_count", 0)), figures
    )


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        reason = f"{path} cannot be read ({error.strerror})"
        raise ConfigError(f"LoadGen wrote no log: {reason}; choose another folder with --logs") from error
    for line in lines:
        if line.startswith(_PREFIX):
            try:
                entry = json.loads(line[len(_PREFIX) :])
            except ValueError as error:
                raise DataError(
                    f"{path}: LoadGen wrote a line that is not JSON: {error}; run the test again"
                ) from error
            if isinstance(entry, dict) and "key" in entry and "value" in entry:
                yield entry


def _marked(entry: Mapping[str, Any], mark: str) -> bool:
    metadata = entry.get("metadata")
    return isinstance(metadata, dict) and metadata.get(mark) is True


_RULES = {
    "result_perf_constraints_met": "more than 1 % of the queries took longer than --latency_bound",
    "result_min_duration_met": "it was shorter than --min_duration",
    "result_min_queries_met": "it had fewer queries than --min_queries",
}


def _reasons(figures: Mapping[str, Any]) -> list[str]:
    """Return why LoadGen calls a result invalid, in words and in its own."""
    found = [text for key, text in _RULES.items() if figures.get(key) is False]
    if figures.get("early_stopping_met") is False:
        text = " ".join(str(figures.get("early_stopping_result", "")).replace("*", " ").split())
        found.append(f"too few queries for its confidence: {text}" if text else "too few queries for its confidence")
    return found


def _latency(figures: Mapping[str, Any], scenario: str) -> dict[str, float]:
    """Return its latencies in seconds."""
    of, per = ("_query", "_per_query") if scenario == "MultiStream" else ("", "")
    keys = {name: f"result_{name}{of}_latency_ns" for name in ("min", "max", "mean")}
    keys |= {f"percentile_{p:g}": f"result_{p:.2f}_percentile{per}_latency_ns" for p in PERCENTILES}
    return {name: float(figures[key]) * 1e-9 for name, key in keys.items() if key in figures}


def read_accuracy(folder: Path) -> dict[int, bytes]:
    """Return the answers of the accuracy log: bytes by the sample's index; raise DataError if it is not readable."""
    path = folder / ACCURACY
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {int(entry["qsl_idx"]): bytes.fromhex(entry["data"]) for entry in found}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: LoadGen's accuracy log cannot be read ({error}); run the test again") from error
