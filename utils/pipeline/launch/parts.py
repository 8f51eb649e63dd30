"""The parts of a run: the report of each process on its share of the data set, merged into one."""

from __future__ import annotations

import copy
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import Any, TypeVar

from engine import ConfigError
from utils.datasets.sharding import rank_and_size
from utils.metrics.base import Metric
from utils.pipeline.report.report import Report
from utils.pipeline.run.pipeline import nothing_evaluated
from utils.pipeline.run.run_state import add_counts, per_class

_Item = TypeVar("_Item")
_MISSING: Any = object()

_COMBINED: dict[str, Callable[[list[Any]], Any]] = {
    "spas": sum,
    "healthy": sum,
    "simulated_sps": sum,
    "memory_per_spa": max,
    "events": lambda lists: list(chain.from_iterable(lists)),
}
"""Functions that combine the figures of all cards, by key."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Part:
    """The result of one process, which is pickled to another.

    Attributes:
        report: its report, with the metric's ``state``; 0 samples if its share is empty.
        rank, size: its samples are ``rank``, ``rank + size``, ``rank + 2 * size``, ... of the data set.
        host: name of the machine.
    """

    report: Report
    rank: int
    size: int
    host: str


def part_of(report: Report) -> Part:
    """Return this process's result as a part."""
    rank, size = rank_and_size()
    return Part(report, rank, size, platform.node())


def in_order(parts: Sequence[Sequence[_Item]]) -> list[_Item]:
    """Put per-sample records back into the order of the data set.

    Args:
        parts: by rank, the records of each process; record ``i`` of rank ``r`` of ``n`` is sample ``r + i * n``. The
            order of lists without one entry per sample (failures) is approximate.
    """
    rows = zip_longest(*parts, fillvalue=_MISSING)
    return [item for item in chain.from_iterable(rows) if item is not _MISSING]


def merge(parts: Sequence[Part], *, recomputed: int = 0) -> Report:
    """Merge all parts of a run into one report; the metric is exactly that of a single process.

    Samples and steps are summed, the wall time is that of the slowest process, ``avg_sps`` is all samples over that,
    and times per batch are means over all steps. All other figures are those of the slowest process.

    Args:
        parts: one per rank, in any order. recomputed: number of parts computed again because their worker was lost.

    Raises DataError: no process could run a sample; ConfigError: a part is missing or duplicated, or the metrics cannot
    be merged.
    """
    parts = sorted(parts, key=lambda part: part.rank)
    if not parts or [(part.rank, part.size) for part in parts] != [(rank, len(parts)) for rank in range(len(parts))]:
        found = ", ".join(f"{part.rank} of {part.size}" for part in parts)
        raise ConfigError(f"the parts of a run must be one per rank, and are: {found or 'none'}; start it again")
    reports = [part.report for part in parts]
    failures = in_order([report.failures for report in reports])
    filled = [report for report in reports if report.samples]
    if not filled:
        raise nothing_evaluated(failures)
    state = _merged_state(filled)
    slowest = max(reports, key=lambda report: report.e2e_time)
    counts: dict[str, int] = {}
    for report in reports:
        add_counts(counts, report.warning_counts)
    return replace(
        slowest,
        metric=state.compute(),
        state=state,
        **_sums(reports, slowest.e2e_time),
        failures=failures,
        nan_inputs=in_order([report.nan_inputs for report in reports]),
        nan_outputs=in_order([report.nan_outputs for report in reports]),
        device=_merged_device([(report.device, report.steps) for report in filled if report.device]),
        secondary=dict(state.secondary()),
        per_class=per_class(state),
        warning_counts=counts,
        figures=_listed([report.figures for report in filled]),
        hints=list(dict.fromkeys(hint for report in reports for hint in report.hints)),
        finished=all(report.finished for report in reports),
        processes=len(parts),
        recomputed=recomputed,
        records=None,
        parts=tuple(report.records for report in reports if report.records is not None),
    )


def _sums(reports: Sequence[Report], wall: float) -> dict[str, Any]:
    """Return the figures that are summed or averaged over the parts."""
    # A part's speed excludes its warm-up steps, so ``samples`` cannot be used here.
    timed = sum(report.avg_sps * report.e2e_time for report in reports)
    return {
        "samples": sum(report.samples for report in reports),
        "steps": sum(report.steps for report in reports),
        "resumed_steps": sum(report.resumed_steps for report in reports),
        "avg_sps": timed / wall if wall else 0.0,
        **{
            key: _weighted([(getattr(report, key), report.steps) for report in reports])
            for key in ("avg_inference_time", "avg_preprocess_time", "avg_postprocess")
        },
    }


def hosts(parts: Iterable[Part]) -> str:
    """Return the numbers of processes and machines, as text."""
    names = [part.host for part in parts]
    machines = len(set(names))
    return f"{len(names)} processes on {machines} machine{'s' if machines > 1 else ''}"


def _merged_state(reports: Sequence[Report]) -> Metric:
    states = [report.state for report in reports if report.state is not None]
    if len(states) < len(reports):
        raise ConfigError("a report without its metric's state cannot be merged; make reports with evaluate()")
    merged = copy.deepcopy(states[0])
    for state in states[1:]:
        merged.merge(state)
    return merged


def _weighted(values: Sequence[tuple[float, int]]) -> float:
    """Return the mean of values per step, given with their numbers of steps."""
    steps = sum(count for _, count in values)
    return float(sum(value * count for value, count in values) / steps) if steps else 0.0


def _listed(figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of all processes as lists, as a task's figures cannot be added in general."""
    return {name: [one.get(name) for one in figures] for name in (figures[0] if figures else ())}


def _merged_device(reports: Sequence[tuple[Mapping[str, Any], int]]) -> dict[str, Any]:
    """Merge the reports of the simulated cards of all processes, given with their number of steps: speed and SPA are
    summed, the latency is the mean over all steps; several models are merged separately.
    """
    if not reports:
        return {}
    first = reports[0][0]
    if "models" in first:
        names = first["models"]
        return {"models": {name: _merged_device([(r["models"][name], n) for r, n in reports]) for name in names}}
    merged = {**first, "cards": len(reports)}
    for key, combined in _COMBINED.items():
        if key in merged:  # a third party's card may report other keys
            merged[key] = combined([report[key] for report, _ in reports])
    if "simulated_latency" in merged:
        merged["simulated_latency"] = _weighted([(report["simulated_latency"], steps) for report, steps in reports])
    return merged
