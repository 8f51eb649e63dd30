"""Signs of values beyond float16 inside a model, which give a wrong metric without an error: saturated outputs, and the
same output for every sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array

LARGEST = 65504.0
"""Largest float16; a value beyond it is stored as this number or as infinity."""

FEWEST = 8
"""Smallest number of samples whose equal outputs are reported."""


class OutputWatch:
    """Looks at the outputs of a run in float16.

    Args:
        engines: of the run, by name. Nothing is looked at unless one of them stores float16.
    """

    def __init__(self, engines: Mapping[str, Any]) -> None:
        narrow = [engine for engine in engines.values() if getattr(engine, "dtype", "") == "float16"]
        self._on = bool(narrow)
        self._ckpt = str(narrow[0].spec.ckpt) if len(narrow) == 1 and hasattr(narrow[0], "spec") else "MODEL"
        self._first: list[Array] | None = None
        self._samples = self._saturated = 0
        self._alike = True

    def see(self, outputs: Any, count: int) -> None:
        """Take in the outputs of a batch.

        Args:
            outputs: an array or a list of arrays, of which those of floats with ``count`` rows are looked at.
            count: samples of the batch.
        """
        if not self._on:
            return
        rows = [array for array in _listed(outputs) if array.ndim and len(array) == count and array.dtype.kind == "f"]
        if not rows or not count:
            self._alike = False
            return
        self._samples += count
        self._saturated += int(np.logical_or.reduce([_saturated(array) for array in rows]).sum())
        if not self._alike:
            return
        if self._first is None:
            self._first = [array[:1].copy() for array in rows]
        shapes = [array.shape[1:] for array in self._first]
        same = [array.shape[1:] for array in rows] == shapes
        self._alike = same and all(bool((a == b).all()) for a, b in zip(rows, self._first, strict=True))

    def hints(self) -> list[str]:
        """Return a line per sign, with the command that names the node."""
        found = []
        command = f"teco overflow {self._ckpt}"
        if self._saturated:
            found.append(
                f"{self._saturated} of {self._samples} samples have outputs of {LARGEST:g} or more, the end of "
                f"float16; '{command}' names the node that overflows"
            )
        if self._alike and self._samples >= FEWEST:
            found.append(
                f"all {self._samples} samples have the same output; if it is not so with --dtype float32, a value "
                f"inside the model is beyond float16: '{command}' names the node"
            )
        return found


def _listed(outputs: Any) -> Sequence[Array]:
    values = [outputs] if isinstance(outputs, np.ndarray) else outputs
    arrays = isinstance(values, (list, tuple)) and all(isinstance(value, np.ndarray) for value in values)
    return values if arrays else []


def _saturated(array: Array) -> Any:
    """Return which rows hold +65504 or +infinity; large negative numbers are how masks are written."""
    if not array.size or not array.max() >= LARGEST:
        return np.zeros(len(array), bool)
    return (array.reshape(len(array), -1) >= LARGEST).any(axis=1)
