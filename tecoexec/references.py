"""Reference results in a configuration, by batch: earlier runs (``history``) and other cards (``cuda``).

A key has one value per case, or a list corresponding to ``batch_size``; missing and empty entries are allowed. For
compatibility ``cuda_latency`` is in **seconds**, all other latencies are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tecoinfer_modelzoo.text import shown_value

_FIGURES = {
    "history_latency": ("history", "latency_ms", 1.0),
    "history_throughput": ("history", "throughput", 1.0),
    "cuda_latency": ("cuda", "latency_ms", 1e3),
    "cuda_throughput": ("cuda", "throughput", 1.0),
    "benchmark_of_latency": ("benchmark", "latency_ms", 1.0),
}
"""Key -> name of the reference, field, and factor to milliseconds or samples per second."""

KEYS = tuple(_FIGURES)
"""Keys of a case in ``tecoexec_config.yaml``."""


class Reference(NamedTuple):
    """Reference results at one batch: milliseconds, and samples per second; ``None`` if missing."""

    latency_ms: float | None = None
    throughput: float | None = None

    def ratios(self, latency_ms: float, throughput: float) -> Reference:
        """Return the ratios of results to these references."""
        return Reference(
            None if self.latency_ms is None else latency_ms / self.latency_ms,
            None if self.throughput is None else throughput / self.throughput,
        )


References = Mapping[str, Reference]
"""``history``, ``cuda`` and ``benchmark`` -> results at one batch."""


class BadReference(ValueError):  # noqa: N818 -- converted to ConfigError by the reader
    """Invalid reference: ``key`` of the case, and ``text`` with the problem."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key} {text}")
        self.key, self.text = key, text


def read_references(case: Mapping[str, Any], batches: Sequence[int]) -> dict[int, References]:
    """Return the reference results of a case by batch.

    Args:
        case: the entry of the configuration.
        batches: its batch sizes, to which lists correspond.

    Raises:
        BadReference: a value is not a positive number, or there are more values than batches.
    """
    found: dict[int, dict[str, Reference]] = {}
    for key, (name, field, unit) in _FIGURES.items():
        given = case.get(key)
        values = given if isinstance(given, list) else [given]
        if len(values) > len(batches):
            raise BadReference(key, f"has {len(values)} values for {len(batches)} batches; give one per batch_size")
        for batch, value in zip(batches, values, strict=False):
            if value is not None:
                mine = found.setdefault(batch, {})
                mine[name] = mine.get(name, Reference())._replace(**{field: _figure(key, value) * unit})
    return {batch: dict(references) for batch, references in found.items()}


def _figure(key: str, value: Any) -> float:
    try:
        number = float(value) if not isinstance(value, bool) else 0.0  # YAML parses 1e6 as a string
    except (TypeError, ValueError, OverflowError):
        number = 0.0
    if not 0 < number < float("inf"):
        raise BadReference(key, f"{shown_value(value)} must be a positive number, a list of them, or nothing")
    return number
