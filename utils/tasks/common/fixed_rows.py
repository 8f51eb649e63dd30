"""Calls of a fixed number of rows, so that the result of a row does not depend on the number of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine import Array


def outputs_of(engine: Any, rows: Array, step: int) -> list[Array]:
    """Return each output of a model for all rows, in calls of ``step`` rows; the last call repeats its last row.

    Args:
        engine: of a model with one input. rows: N x ..., N at least 1. step: at least 1.
    """
    parts = []
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        filled = np.concatenate([part, np.repeat(part[-1:], step - len(part), axis=0)])
        outputs = engine([np.ascontiguousarray(filled)])
        outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        parts.append([np.asarray(one)[: len(part)] for one in outputs])
    return [np.concatenate(column) for column in zip(*parts, strict=True)]
