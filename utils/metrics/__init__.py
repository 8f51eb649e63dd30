"""Metrics: how right the answers are, exact over batches, processes and resumed runs."""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)

from utils.metrics.base import Metric
from utils.metrics.classification import TopK

__all__ = ["Metric", "TopK"]
