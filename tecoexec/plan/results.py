"""Results of a plan: text and JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tecoexec.plan.curve import Curve
from tecoexec.plan.search import PERCENTILE, Goal, Load, Plan, highest_rate
from tecoexec.plan.settings import PlanSettings
from tecoexec.report import milliseconds
from tecoexec.request import Request
from tecoinfer_modelzoo.formatting import aligned
from tecoinfer_modelzoo.text import printable
from utils.pipeline.report.report import environment

SCHEMA_VERSION = 1
"""Version of the JSON layout; increased when a field changes its meaning or is removed."""


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan of one rate.

    Attributes:
        plan: ``None`` if no number of cards reaches the goal. reason: why. loads: latencies of the plan at other rates.
    """

    goal: Goal
    plan: Plan | None
    reason: str
    loads: Sequence[Load]


def unit_of(curve: Curve, count: int = 2) -> str:
    """Return what the plan counts: cards, or hosts like this one."""
    return ("card" if curve.simulated else "host") + ("s" if count != 1 else "")


def headline(request: Request, settings: PlanSettings, curve: Curve) -> list[str]:
    """Return the lines on the model, the arrivals and the servers."""
    arrivals = settings.arrivals
    source = f"{len(arrivals.recorded)} recorded in {arrivals.source}" if arrivals.recorded is not None else ""
    servers = f"{curve.name}, {curve.servers} SPA a card" if curve.simulated else "this host, one call at a time"
    times = "simulated cost curve" if curve.simulated else "cost curve measured on this host"
    sizes = ", ".join(f"{size}: {milliseconds(curve.mean(size, size))} ms" for size in curve.sizes)
    memory = "" if curve.memory is None else f"; memory of a SPA {curve.capacity / 2**20:.0f} MB"
    return [
        f"{request.model.name} on target {request.target}: {servers}{memory}",
        f"{times}, batch of a {'SPA' if curve.simulated else 'call'}: {sizes}",
        f"arrivals: {source or f'Poisson, {arrivals.count} simulated'}; 99th percentile at most "
        f"{milliseconds(settings.bound)} ms",
        *([f"warning: {curve.skipped}"] if curve.skipped else []),
    ]


def lines(request: Request, settings: PlanSettings, curve: Curve, planned: Sequence[Planned]) -> list[str]:
    """Return the printed plan: a table of the rates, and for a single rate its latencies at other rates."""
    label = " (simulated)" if curve.simulated else ""
    found = [*headline(request, settings, curve), f"=== plan{label} ===", *aligned(rate_table(curve, planned))]
    if len(planned) == 1 and planned[0].plan is not None:
        plan = planned[0].plan
        found += [
            f"cards needed: {plan.cards}" if curve.simulated else f"hosts needed: {plan.cards}",
            f"=== latency against load on {plan.cards} {unit_of(curve, plan.cards)}{label} ===",
            *aligned(load_table(planned[0])),
        ]
    return [printable(line, keep="") for line in found]


def rate_table(curve: Curve, planned: Sequence[Planned]) -> list[list[str]]:
    """Return the table of rates and plans, with headings."""
    rows = [
        ["qps", unit_of(curve), "max batch", "queue delay", "p50", "p99", "p99 interval", "utilisation", "mean batch"]
    ]
    if curve.memory is not None:
        rows[0].append("memory of a SPA")
    for one in planned:
        if one.plan is None:
            rows.append([f"{one.goal.rate:g}", "none", *[""] * (len(rows[0]) - 2)])
            continue
        result, policy = one.plan.result, one.plan.policy
        low, high = result.interval(PERCENTILE)
        row = [
            f"{one.goal.rate:g}",
            str(one.plan.cards),
            str(policy.max_batch),
            f"{milliseconds(policy.delay)} ms",
            f"{milliseconds(result.percentile(50))} ms",
            f"{milliseconds(result.percentile(PERCENTILE))} ms",
            f"{milliseconds(max(0.0, low))}..{milliseconds(high)} ms" if math.isfinite(high) else "",
            f"{result.utilisation:.1%}",
            f"{result.mean_batch:.2f}",
        ]
        if curve.memory is not None:
            row.append(f"{curve.memory[policy.max_batch] / 2**20:.1f} MB")
        rows.append(row)
    return rows


def load_table(planned: Planned) -> list[list[str]]:
    """Return the table of latencies against load, with headings."""
    rows = [["qps", "p50", "p99", "utilisation"]]
    return rows + [
        [f"{one.rate:.1f}", f"{milliseconds(one.p50)} ms", f"{milliseconds(one.p99)} ms", f"{one.utilisation:.1%}"]
        for one in planned.loads
    ]


def to_dict(request: Request, settings: PlanSettings, curve: Curve, planned: Sequence[Planned]) -> dict[str, Any]:
    """Return a plan as plain data."""
    arrivals = settings.arrivals
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "tecoexec_plan",
        "model": str(request.model),
        "target": request.target,
        "dtype": request.dtype,
        "simulated": curve.simulated,
        "p99_bound_ms": settings.bound * 1e3,
        "arrivals": {
            "kind": "poisson" if arrivals.recorded is None else "recorded",
            "file": None if arrivals.source is None else str(arrivals.source),
            "count": arrivals.count,
            "recorded_qps": arrivals.rate,
        },
        "curve": {
            "card": curve.name or None,
            "servers_per_card": curve.servers,
            "padded": curve.padded,
            "memory_per_server": curve.capacity or None,
            "skipped": curve.skipped or None,
            "batches": [
                {
                    "batch": size,
                    "mean_ms": curve.mean(size, size) * 1e3,
                    "measurements": len(curve.seconds[size]),
                    "memory": None if curve.memory is None else curve.memory[size],
                }
                for size in curve.sizes
            ],
        },
        "plans": [_plain(one, curve) for one in planned],
        **environment(),
    }


def _plain(one: Planned, curve: Curve) -> dict[str, Any]:
    if one.plan is None:
        return {"qps": one.goal.rate, "reachable": False, "reason": one.reason}
    plan, result = one.plan, one.plan.result
    low, high = result.interval(PERCENTILE)
    memory = None if curve.memory is None else curve.memory[plan.policy.max_batch]
    return {
        "qps": one.goal.rate,
        "reachable": True,
        "cards": plan.cards,
        "servers": plan.cards * curve.servers,
        "max_batch": plan.policy.max_batch,
        "queue_delay_ms": plan.policy.delay * 1e3,
        "p50_ms": result.percentile(50) * 1e3,
        "p99_ms": result.percentile(PERCENTILE) * 1e3,
        "p99_interval_ms": [low * 1e3, high * 1e3],
        "utilisation": result.utilisation,
        "mean_batch": result.mean_batch,
        "memory_per_server": memory,
        "memory_share": memory / curve.capacity if memory and curve.capacity else None,
        "highest_qps": highest_rate(curve, plan),
        "load_curve": [
            {"qps": load.rate, "p50_ms": load.p50 * 1e3, "p99_ms": load.p99 * 1e3, "utilisation": load.utilisation}
            for load in one.loads
        ],
    }
