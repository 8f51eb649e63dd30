"""Metrics in the scorecard of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from model_config.judge.scorecard import NUMERICS, read
from toolkit.zoo import Model

KEYS = ("case", "target", "metric", "value")


def last_metrics(model: Model) -> list[dict[str, Any]]:
    """Return case, target, metric name, value and direction of every entry of the model's scorecard.

    Raise ConfigError if the scorecard is invalid.
    """
    entries = read(model.folder, NUMERICS).get("metrics", [])
    return [
        {key: entry.get(key) for key in KEYS} | {"higher_is_better": entry.get("higher_is_better") is not False}
        for entry in entries
        if isinstance(entry, dict)
    ]


def direction_words(entry: Mapping[str, Any]) -> str:
    """Return "lower is better" for such an entry of :func:`last_metrics`, else ""."""
    return "" if entry["higher_is_better"] else "lower is better"
