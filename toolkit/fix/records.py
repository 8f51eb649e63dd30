"""What a metric says of every sample, of one run by itself or beside the baseline's outputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from engine.base import Array, ConfigError, DataError

Records = Callable[[Sequence[Array], "Array | None", Sequence[Array]], Array]
"""Outputs, labels, the baseline's outputs -> one float64 per sample; the baseline's records have the mean 1 or less."""

METRICS = "top1 (any topK; needs labels), agree (the baseline's best class), close (1 - relative L2 error)"


def metric_named(name: str) -> Records:
    """Return a metric by its name.

    Raises:
        ConfigError: there is none of this name.
    """
    top = re.fullmatch(r"top([1-9]\d*)", name)
    if top:
        return _top(int(top[1]))
    if name not in ("agree", "close"):
        raise ConfigError(f"unknown metric {name!r}; metrics: {METRICS}")
    return _agree if name == "agree" else _close


def needs_labels(name: str) -> bool:
    """Say whether a metric compares with labels."""
    return name.startswith("top")


def check_rows(outputs: Sequence[Array], samples: int) -> None:
    """Raise where outputs do not hold one row of numbers per sample, which every metric compares.

    Raises:
        DataError: such an output.
    """
    for i, array in enumerate(outputs):
        if array.dtype.kind not in "fiub":
            raise DataError(
                f"output {i} holds {array.dtype}, no numbers; no metric compares it, cut the model before it"
            )
        if array.ndim == 0 or len(array) != samples:
            raise DataError(
                f"output {i} has shape {list(array.shape)} for {samples} samples; metrics compare sample by sample; "
                "cut the model before it"
            )


def _top(k: int) -> Records:
    def records(outputs: Sequence[Array], labels: Array | None, _: Sequence[Array]) -> Array:
        from utils.metrics import TopK

        if labels is None:
            raise DataError(f"top{k} needs labels, and the data set has none; use --metric agree or close")
        scores = outputs[0].reshape(len(outputs[0]), -1)
        return TopK(k).update(scores, np.asarray(labels)).astype(np.float64)

    return records


def _agree(outputs: Sequence[Array], _: Array | None, baseline: Sequence[Array]) -> Array:
    """Return 1 where every output's best class is the baseline's (for dense outputs the share of positions)."""
    same = []
    for ours, theirs in zip(outputs, baseline, strict=True):
        if ours.shape != theirs.shape:  # its size follows from values
            return np.zeros(len(outputs[0]))
        ours, theirs = (a[:, None] if a.ndim == 1 else a for a in (ours, theirs))
        axis = -1 if ours.ndim < 4 else 1
        right = (ours.argmax(axis) == theirs.argmax(axis)) & np.isfinite(ours).all(axis)
        same.append(right.reshape(len(right), -1).mean(axis=1))
    return np.asarray(np.min(same, axis=0), np.float64)


def _close(outputs: Sequence[Array], _: Array | None, baseline: Sequence[Array]) -> Array:
    """Return 1 - sqrt(sum (a-b)^2 / sum b^2) of the worst output, from 0 to 1; 0 where NaN or Inf is in it."""
    worst = np.ones(len(outputs[0]))
    for ours, theirs in zip(outputs, baseline, strict=True):
        if ours.shape != theirs.shape:  # its size follows from values
            return np.zeros(len(outputs[0]))
        a, b = (x.reshape(len(x), -1).astype(np.float64) for x in (ours, theirs))
        with np.errstate(invalid="ignore", over="ignore"):
            error, size = np.sqrt(((a - b) ** 2).sum(axis=1)), np.sqrt((b**2).sum(axis=1))
            relative = error / np.where(size > 0, size, 1.0)
        worst = np.minimum(worst, 1.0 - np.clip(np.nan_to_num(relative, nan=1.0, posinf=1.0), 0.0, 1.0))
    return worst
