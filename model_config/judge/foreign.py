"""Metrics that the check does not import: their values are computed in a limited process and validated here.

A metric of the zoo itself is created in the check's process. Any other (of ``contrib/``, a script, or a package) is
computed by :mod:`model_config.run.foreign_answers`, which returns the numbers that the gate needs. The verdict is
computed from them here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine import DataError
from model_config.judge.bound import GROUPS, Floats, Valued, is_mean
from model_config.judge.pairs import Pairs, read_pairs
from model_config.run.foreign import Foreign, ForeignError, is_core
from tecoinfer_modelzoo.text import shown_value
from utils.metrics.base import Metric
from utils.metrics.definition import metric_from_json

_SEED = 0


class Answered(Valued):
    """A metric of the records of two runs, from numbers that another process computed.

    Args:
        pairs: the records.
        said: result of :func:`said_of`.

    Raises:
        DataError: a number is missing or invalid.
    """

    def __init__(self, pairs: Pairs, said: Mapping[str, Any]) -> None:
        super().__init__(pairs)
        self.higher_is_better, self.bounds = direction_of(said), bounds_of(said)
        self._is_mean = is_mean(pairs, None) and _of(said, "mean", bool)
        self._whole = _numbers(said, "whole", (2,))
        self._drift = _of(said, "smooth_drift", float)
        self._without = _numbers(said, "without", (min(pairs.total, GROUPS), 2))

    def is_mean(self) -> bool:
        """Return whether the metric is the mean of the records."""
        return self._is_mean

    def whole(self) -> tuple[float, float]:
        """Return the metric over all records, for both runs."""
        return float(self._whole[0]), float(self._whole[1])

    def smooth_drift(self) -> float:
        """Return the relative change of the smoothed metric, or else of the metric."""
        return float(self._drift)

    def without(self, seed: int) -> Floats:
        """Return the metric of both runs without each group of units in turn; only for the requested seed."""
        if seed != _SEED:
            raise DataError(f"the metric was computed with seed {_SEED}, not {seed}; use that one")
        return self._without


def said_of(definition: Any, root: Path, records: Sequence[str] | None, seed: int) -> dict[str, Any]:
    """Return the data for :class:`Answered` as JSON types; called in the process that imports the metric.

    Args:
        definition: definition of the metric.
        root: the repository that contains it.
        records: the records files of both runs; ``None``: only the metric's attributes.
        seed: seed of :func:`model_config.judge.gate.judge`.

    Raises:
        DataError: the metric does not exist, or the records do not fit it.
    """
    metric = metric_from_json(definition, root)
    bounds = None if metric.bounds is None else [float(end) for end in metric.bounds]
    said: dict[str, Any] = {"higher_is_better": bool(metric.higher_is_better), "bounds": bounds}
    if records is None:
        return said
    pairs = read_pairs(Path(records[0]), Path(records[1]))
    valued = Valued(pairs, metric)
    said |= {"mean": valued.is_mean(), "whole": [float(value) for value in valued.whole()]}
    drift = valued.smooth_drift() if valued.whole()[1] else math.nan
    return {**said, "smooth_drift": float(drift), "without": valued.without(seed).tolist()}


def valued_of(definition: Any, records: tuple[Path, Path], pairs: Pairs, foreign: Foreign) -> Metric | Valued:
    """Return a metric of the zoo itself, or the values of any other metric, from another process.

    Args:
        definition: definition of the metric. records: files of both runs. pairs: their content.
        foreign: client for contributed metrics.

    Raises:
        DataError: the metric does not exist, or the answer is invalid.
    """
    if _is_core(definition):
        return metric_from_json(definition, None)
    files = [str(file.resolve()) for file in records]
    said = _asked(foreign, definition=definition, records=files, seed=_SEED)
    return Answered(pairs, said)


def _asked(foreign: Foreign, **question: Any) -> dict[str, Any]:
    try:
        return foreign.ask("metric", **question)
    except ForeignError as error:
        name = question["definition"].get("class") if isinstance(question["definition"], Mapping) else None
        raise DataError(f"metric {shown_value(name)} has no value: the process that computes it {error}") from error


def _is_core(definition: Any) -> bool:
    """Return whether a definition names a class of the zoo or is invalid, so that no other process is needed."""
    if not isinstance(definition, Mapping) or not isinstance(definition.get("class"), str):
        return True
    module = definition["class"].rpartition(":")[0]
    return module.startswith("utils.metrics.") and is_core(module)


def _of(said: Mapping[str, Any], name: str, kind: type) -> Any:
    value = said.get(name)
    if not isinstance(value, kind):
        raise DataError(f"the metric's process answered {name}: {shown_value(value)}; do not write to its files")
    return value


def direction_of(said: Mapping[str, Any]) -> bool:
    """Return whether a higher value is better."""
    return bool(_of(said, "higher_is_better", bool))


def bounds_of(said: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the metric's bounds."""
    if said.get("bounds") is None:
        return None
    low, high = _numbers(said, "bounds", (2,))
    return float(low), float(high)


def _numbers(said: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> Floats:
    """Return an array of an answer; NaN and infinity are allowed, as the metric of some units may have them."""
    value = _of(said, name, list)
    flat = [one for row in value for one in (row if isinstance(row, list) else [row])]
    if not all(type(one) in (int, float) for one in flat):
        raise DataError(f"the metric's process answered {name}: {shown_value(value)}, which are not numbers")
    try:
        found = np.array(value, dtype=np.float64)
    except (ValueError, OverflowError, TypeError) as error:
        raise DataError(f"the metric's process answered {name} with invalid numbers: {error}") from error
    if found.shape != shape:
        raise DataError(f"the metric's process answered {name} of shape {found.shape}, not {shape}")
    return found
