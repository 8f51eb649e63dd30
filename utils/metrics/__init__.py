"""Metrics: how right the answers are, exact over batches, processes and resumed runs."""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)

from utils.metrics.base import MeanMetric, Metric, RecordMetric, Records
from utils.metrics.change import Change
from utils.metrics.classification import TopK
from utils.metrics.definition import metric_from_json, metric_to_json

__all__ = [
    "Change",
    "MeanMetric",
    "Metric",
    "RecordMetric",
    "Records",
    "TopK",
    "metric_from_json",
    "metric_to_json",
]
