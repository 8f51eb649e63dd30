"""For which inputs OpenVINO computes a model as ONNX Runtime does.

OpenVINO computes int64 as int32 and double as float32, keeps 8-bit results within their type where ONNX Runtime lets
them wrap, and turns NaN into numbers (a Relu's is 0). A model is refused for it where that may change what comes out
whatever goes in; otherwise a :class:`Guard` says what has to hold of a call, and a call of which it does not hold is
computed by ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from engine.base import Array

TABLE = Path(__file__).with_name("ov_operators.json")
"""Which operators OpenVINO computes as ONNX Runtime does, by type; made by ``tests.engine.openvino_operators``."""

LARGEST = 2.0**40
"""Floats larger than this, in an input, are left to ONNX Runtime: their sums and products may leave float32."""

UNLIMITED = 2**31 - 1
"""The largest whole number of OpenVINO's: also the bound of one that has no smaller bound."""

_FLOAT16_SPECIAL = 0x7C00
"""Bits of a float16 that are all set in an infinity and in NaN."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A tensor inside the model whose values must be finite and lie from ``low`` to ``high``, where these are given."""

    tensor: str
    low: float | None = None
    high: float | None = None

    def holds(self, squares: float, least: float | None, most: float | None) -> bool:
        """Say whether what was measured is allowed.

        Args:
            squares: the sum of the values' squares. least, most: of the values; ``None`` without bounds.
        """
        if not np.isfinite(squares):
            return False
        if least is None or most is None or self.low is None or self.high is None:
            return True
        return bool(self.low <= least and most <= self.high)


@dataclass(frozen=True, slots=True)
class Guard:
    """What has to hold of a call that OpenVINO computes.

    Attributes:
        refusal: why it may compute none; "" where it may. bounds: least and greatest number of inputs of whole numbers,
            by name. longest: the largest size of an input's dimension. probes: what has to hold inside.
    """

    refusal: str = ""
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    longest: int = UNLIMITED
    probes: Sequence[Probe] = ()

    def admits(self, arrays: Mapping[str, Array]) -> bool:
        """Say whether a call's inputs are such that OpenVINO may compute it."""
        for name, array in arrays.items():
            if array.size == 0 or max(array.shape, default=0) > self.longest:
                return False
            if array.dtype.kind == "f":
                if not _is_moderate(array):
                    return False
            elif name in self.bounds:
                low, high = self.bounds[name]
                if not low <= array.min() or not array.max() <= high:
                    return False
        return True


def _is_moderate(array: Array) -> bool:
    """Say whether floats are finite and not enormous."""
    if array.dtype == np.float16:
        bits = array.view(np.uint16) & _FLOAT16_SPECIAL
        return bool(bits.max() != _FLOAT16_SPECIAL)
    return bool(array.min() >= -LARGEST and array.max() <= LARGEST)  # NaN is both, and neither holds
