"""Metrics of predictions against targets, exact over batches, processes and resumed runs."""

import importlib
import pkgutil
from typing import TYPE_CHECKING

__path__ = pkgutil.extend_path(__path__, __name__)

from utils.metrics.base import MeanMetric, Metric, RecordMetric, Records
from utils.metrics.classification import TopK

if TYPE_CHECKING:
    from utils.metrics.change import Change
    from utils.metrics.definition import metric_from_json, metric_to_json

_LATER = {"Change": "change", "metric_from_json": "definition", "metric_to_json": "definition"}
"""Names imported on first access, which scripts without an evaluation do not need, and their modules."""


def __getattr__(name: str) -> object:
    """Import a name on first access."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)


__all__ = ["Change", "MeanMetric", "Metric", "RecordMetric", "Records", "TopK", "metric_from_json", "metric_to_json"]
