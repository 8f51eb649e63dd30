"""For which inputs OpenVINO computes a model as ONNX Runtime does.

OpenVINO computes int64 as int32 and double as float32, keeps 8-bit results within their type where ONNX Runtime lets
them wrap, and turns NaN into numbers (a Relu's is 0). A model is refused for it where that may change what comes out
whatever goes in; otherwise a :class:`Guard` says what has to hold of a call, and a call of which it does not hold is
computed by ONNX Runtime.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from engine.base import Array
from engine.host.cache import read_entry, write_entry
from engine.json_types import MOST, Problems, entries, number, text, whole
from engine.onnx.content import model_content

TABLE = Path(__file__).with_name("ov_operators.json")
"""Which operators OpenVINO computes as ONNX Runtime does, by type; made by ``tests.engine.openvino_operators``."""

LARGEST = 2.0**40
"""Floats larger than this, in an input, are left to ONNX Runtime: their sums and products may leave float32."""

UNLIMITED = 2**31 - 1
"""The largest whole number of OpenVINO's: also the bound of one that has no smaller bound."""

_VERSION = 2
"""Rises when the analysis finds other guards."""

_KIND = "openvino_guards"

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


def guard_of(path: Path) -> Guard:
    """Return a model's guard: found once, then remembered.

    Raises:
        ModelError: the model cannot be read.
    """
    known = f"{model_content(path).sha256} {hashlib.sha256(TABLE.read_bytes()).hexdigest()} {_VERSION}"
    key = hashlib.sha256(known.encode()).hexdigest()
    entry = read_entry(_KIND, key)
    if entry is not None and (found := _from_json(entry)) is not None:
        return found
    from engine.backends.ov_analysis import analysed
    from engine.onnx.load import load_model

    guard = analysed(load_model(path))
    write_entry(_KIND, key, _to_json(guard))
    return guard


def _to_json(guard: Guard) -> dict[str, Any]:
    return {
        "refusal": guard.refusal,
        "bounds": {name: list(bounds) for name, bounds in guard.bounds.items()},
        "longest": guard.longest,
        "probes": [[probe.tensor, probe.low, probe.high] for probe in guard.probes],
    }


def _from_json(entry: Mapping[str, Any]) -> Guard | None:
    try:
        bounds = {
            name: (whole(low, -MOST), whole(high, -MOST)) for name, (low, high) in entries(entry["bounds"]).items()
        }
        probes = [Probe(text(name), _bound(low), _bound(high)) for name, low, high in entry["probes"]]
        return Guard(text(entry["refusal"]), bounds, whole(entry["longest"], 1), tuple(probes))
    except Problems:
        return None


def _bound(value: Any) -> float | None:
    return None if value is None else number(value, -1e30)
