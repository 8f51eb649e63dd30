"""Metrics of the server in Prometheus' text form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class ModelState(NamedTuple):
    """A model as the gauges show it."""

    name: str
    ready: bool  # it answers requests
    waiting: int  # requests in its queue
    workers: int  # engine processes that take calls
    replaced: int  # engine processes that ended and were replaced
    sequences: int  # open sequences


class Metrics:
    """Counters and histograms of one server; gauges of models are set when they are read."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Histogram

        self.registry = registry = CollectorRegistry()
        labels = ("model", "protocol", "kind")
        self._requests = Counter("teco_requests", "Requests by their result", (*labels, "code"), registry=registry)
        self._seconds = Histogram(
            "teco_request_seconds",
            "Seconds from the arrival of a request to its answer",
            labels,
            buckets=_SECONDS,
            registry=registry,
        )
        self._queue = Histogram(
            "teco_queue_seconds",
            "Seconds that a request waited in the queue",
            ("model",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._rows = Histogram("teco_batch_rows", "Rows of a batch", ("model",), buckets=_ROWS, registry=registry)
        self._computing = Histogram(
            "teco_batch_seconds",
            "Seconds that an engine process took for a batch",
            ("model",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._joined = Counter(
            "teco_joined_requests", "Requests computed in one call with others", ("model",), registry=registry
        )
        self._refused = Counter(
            "teco_refused_batch_sizes",
            "Numbers of rows that are not used, as they give other bits",
            ("model",),
            registry=registry,
        )
        self._known: dict[tuple[str, int], dict[str, int]] = {}
        # By their labels: looking them up in the metrics costs a lock and takes as long as counting.
        self._of_result: dict[tuple[str, ...], Any] = {}
        self._of_model: dict[str, Any] = {}

    def request(self, model: str, protocol: str, kind: str, code: str, seconds: float) -> None:
        """Count a request; ``code``: the name of its gRPC status."""
        labels = (model, protocol, kind, code)
        found = self._of_result.get(labels)
        if found is None:
            found = self._requests.labels(*labels), self._seconds.labels(*labels[:3])
            self._of_result[labels] = found
        count, times = found
        count.inc()
        times.observe(seconds)

    def waited(self, model: str, seconds: float) -> None:
        """Note how long a request waited."""
        found = self._of_model.get(model)
        if found is None:
            found = self._of_model[model] = self._queue.labels(model)
        found.observe(seconds)

    def of(self, model: str) -> ModelMetrics:
        """Return what a model's queue reports to."""
        return ModelMetrics(self, model)

    def note_batch(self, model: str, rows: int, seconds: float) -> None:
        """Note a batch."""
        self._rows.labels(model).observe(rows)
        self._computing.labels(model).observe(seconds)

    def note_counts(self, model: str, pid: int, counts: Mapping[str, int]) -> None:
        """Add what an engine process has counted since its last report."""
        before = self._known.get((model, pid), {})
        self._joined.labels(model).inc(counts["shared"] - before.get("shared", 0))
        self._refused.labels(model).inc(counts["refused"] - before.get("refused", 0))
        self._known[model, pid] = dict(counts)
        if len(self._known) > 1000:  # of processes that have ended
            del self._known[next(iter(self._known))]

    def text(self, models: Iterable[ModelState]) -> bytes:
        """Return all metrics as text; ``models``: the current states."""
        from prometheus_client import CollectorRegistry, Gauge, generate_latest

        now: Any = CollectorRegistry()
        gauges = {
            name: Gauge(name, what, ("model",), registry=now)
            for name, what in (
                ("teco_model_ready", "1 if the model answers requests"),
                ("teco_queue_length", "Requests that wait"),
                ("teco_workers", "Engine processes that take calls"),
                ("teco_replaced_workers", "Engine processes that ended and were replaced"),
                ("teco_open_sequences", "Sequences that have begun and not ended"),
            )
        }
        for model in models:
            values = (model.ready, model.waiting, model.workers, model.replaced, model.sequences)
            for gauge, value in zip(gauges.values(), values, strict=True):
                gauge.labels(model.name).set(value)
        return bytes(generate_latest(self.registry)) + bytes(generate_latest(now))


class ModelMetrics:
    """What the queue of one model reports to."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._metrics, self._model = metrics, model

    def batch(self, rows: int, requests: int, seconds: float) -> None:
        """Note a computed batch."""
        self._metrics.note_batch(self._model, rows, seconds)

    def counts(self, pid: int, counts: Mapping[str, int]) -> None:
        """Note what a process reports of joined calls."""
        self._metrics.note_counts(self._model, pid, counts)
