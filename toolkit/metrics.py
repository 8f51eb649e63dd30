"""The metrics that a check stored beside a model."""

from __future__ import annotations

from typing import Any

from model_config.scorecard import NUMERICS, read
from toolkit.zoo import Model

KEYS = ("case", "target", "metric", "value")


def last_metrics(model: Model) -> list[dict[str, Any]]:
    """Return case, target, name of the metric and value of every entry of the model's scorecard.

    Raises:
        ConfigError: the scorecard is not what a check writes.
    """
    entries = read(model.folder, NUMERICS).get("metrics", [])
    return [{key: entry.get(key) for key in KEYS} for entry in entries if isinstance(entry, dict)]
