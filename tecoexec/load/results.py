"""Results of a load test: text and JSON, the zoo's figures beside LoadGen's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine import Engine, provider
from tecoexec.load.latency import CLOCKS_APART, RECONCILED, Queries, differences, spread
from tecoexec.load.logs import LoadGenResult
from tecoexec.load.settings import MULTI_STREAM, LoadSettings
from tecoexec.load.sut import Served
from tecoexec.report import milliseconds
from tecoexec.request import Request
from tecoinfer_modelzoo.text import printable
from utils.pipeline.report.report import environment

SCHEMA_VERSION = 1
"""Version of the JSON layout; increased when a field changes its meaning or is removed."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """A finished load test.

    Attributes:
        queries: own times. served: the batches. loadgen: what LoadGen reports. version: of LoadGen.
        metric: of an accuracy run, as :meth:`tecoexec.load.samples.TaskSamples.metric` returns it.
        max_batch, workers: most samples of a call, and calls at the same time.
    """

    settings: LoadSettings
    queries: Queries
    served: tuple[Served, ...]
    loadgen: LoadGenResult
    version: str
    metric: dict[str, Any] | None
    max_batch: int
    workers: int

    @property
    def samples(self) -> int:
        """Number of samples that were answered."""
        return sum(len(batch.samples) for batch in self.served)

    @property
    def seconds(self) -> float:
        """From the first query's arrival to the last answer."""
        return float(self.queries.completed.max() - self.queries.received.min())

    @property
    def latency(self) -> dict[str, float]:
        """Own latencies in seconds, with LoadGen's definition of a percentile."""
        return spread(self.queries.latency)

    @property
    def differences(self) -> dict[str, float]:
        """Own percentiles over LoadGen's, minus 1; empty for an accuracy run."""
        return differences(self.latency, self.loadgen.latency)


def to_dict(result: LoadResult, request: Request, engine: Engine) -> dict[str, Any]:
    """Return a load test as plain data."""
    settings, loadgen = result.settings, result.loadgen
    sizes = [len(batch.samples) for batch in result.served]
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "tecoexec_load",
        "model": str(request.model),
        "target": request.target,
        "provider": provider(request.target),
        "engine": engine.describe(),
        "dtype": engine.dtype,
        "simulated": is_simulated(engine),
        "scenario": settings.scenario,
        "mode": "accuracy" if settings.accuracy else "performance",
        "settings": {
            "target_qps": settings.target_qps,
            "latency_bound_ms": None if settings.latency_bound is None else settings.latency_bound * 1e3,
            "min_duration_s": settings.min_duration,
            "min_queries": settings.min_queries,
            "samples_per_query": MULTI_STREAM if settings.scenario == "MultiStream" else None,
            "max_batch": result.max_batch,
            "queue_delay_ms": settings.queue_delay * 1e3,
            "workers": result.workers,
        },
        "summary": {
            "queries": len(result.queries.due),
            "samples": result.samples,
            "elapsed_s": result.seconds,
            "samples_per_second": result.samples / result.seconds,
            "latency_ms": {name: value * 1e3 for name, value in result.latency.items()},
            "batches": len(sizes),
            "mean_batch": sum(sizes) / len(sizes),
            "busy_share": _busy(result),
        },
        "loadgen": {
            "version": result.version,
            "valid": loadgen.valid,
            "reasons": list(loadgen.reasons),
            "queries": loadgen.queries,
            "latency_ms": {name: value * 1e3 for name, value in loadgen.latency.items()},
            "figures": dict(loadgen.figures),
            "logs": str(settings.logs),
        },
        "relative_differences": result.differences,
        "metric": result.metric,
        "warnings": warnings_of(result, request, engine),
        "device": engine.device_report(),
        **environment(),
    }


def is_simulated(engine: Engine) -> bool:
    """Return whether the latencies are those of the simulated card: it is paced."""
    return engine.simulated and "paced" in engine.device_report()


def _busy(result: LoadResult) -> float:
    """Return the share of time in which a worker computed, 0 to 1."""
    worked = sum(batch.computed - batch.started for batch in result.served)
    return worked / (result.seconds * result.workers)


def lines(result: LoadResult, request: Request, engine: Engine) -> list[str]:
    """Return the printed summary."""
    settings = result.settings
    label = " (simulated, paced)" if is_simulated(engine) else ""
    rate = "" if settings.target_qps is None else f", target {settings.target_qps:g} queries/s"
    found = [
        f"{request.model.name} on target {request.target}: {engine.describe()}",
        f"MLPerf LoadGen {result.version}, scenario {settings.scenario}{rate}; at most {result.max_batch} samples a "
        f"call, queue delay {milliseconds(settings.queue_delay)} ms, {result.workers} calls at a time",
        f"{len(result.queries.due)} queries, {result.samples} samples in {len(result.served)} calls, "
        f"{result.seconds:.3f} s{label}: {result.samples / result.seconds:.2f} samples/s",
    ]
    if settings.accuracy:
        found += _metric_lines(result)
    else:
        found += [
            f"latency{label}: {_shown(result.latency)}",
            f"latency by LoadGen: {_shown(result.loadgen.latency)}",
            f"largest difference of a percentile: {_largest(result):.2%}",
            f"LoadGen: {'VALID' if result.loadgen.valid else 'INVALID'}"
            + "".join(f"; {reason}" for reason in result.loadgen.reasons),
        ]
    found += [f"warning: {text}" for text in warnings_of(result, request, engine)]
    return [printable(line, keep="") for line in [*found, f"LoadGen's logs: {settings.logs}"]]


def _metric_lines(result: LoadResult) -> list[str]:
    metric = result.metric or {}
    lost = f", {metric['unanswered']} without an answer" if metric["unanswered"] else ""
    more = [f"{name} {value:.6g}" for name, value in metric["secondary"].items()]
    return [
        f"metric {metric['name']} of the answers in LoadGen's accuracy log: {metric['samples']} samples{lost}",
        *more,
        f"eval_metric {metric['value']:.6g}",
    ]


def _largest(result: LoadResult) -> float:
    return max((abs(value) for value in result.differences.values()), default=0.0)


def _shown(latency: dict[str, float] | Any) -> str:
    return ", ".join(
        f"{name.replace('percentile_', '')}{'%' if name[0] == 'p' else ''} {milliseconds(value)} ms"
        for name, value in latency.items()
    )


def warnings_of(result: LoadResult, request: Request, engine: Engine) -> list[str]:
    """Return why the figures may mislead."""
    found = list(engine.device_report().get("events", []))
    if engine.simulated and not is_simulated(engine) and not result.settings.accuracy:
        found.append(f"times are host wall times, not those of the card of target {request.target}: add --paced")
    paced = engine.device_report().get("paced")
    if paced and paced["late_calls"]:
        found.append(
            f"the host computed {paced['late_calls']} of {paced['calls']} calls too late, up to "
            f"{paced['longest_delay_s'] * 1e3:.1f} ms: --simulateOnly computes only times"
        )
    apart = [own for name, own in result.differences.items() if abs(own) * result.loadgen.latency[name] > CLOCKS_APART]
    if any(abs(own) > RECONCILED for own in apart):
        found.append(
            f"a percentile differs from LoadGen's by {max(map(abs, apart)):.1%}: other processes delayed this one; "
            "run it alone"
        )
    return found
