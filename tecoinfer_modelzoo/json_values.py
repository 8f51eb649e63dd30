"""JSON of unknown origin, parsed with limits (finite 64-bit numbers, bounded nesting), and conversion to JSON types."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tecoinfer_modelzoo.json_types import refuse_constant

DEEPEST = 64
"""Maximum nesting of lists and objects, which bounds later recursion over the value."""

_LONGEST_NUMBER = 20
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"?|([\[{])|([\]}])', re.DOTALL)


def plain_json(text: str, numbers: bool = True) -> Any:
    """Parse JSON text; raise ValueError for non-finite numbers, integers beyond 64 bits or deep nesting.

    ``numbers=False`` accepts all numbers, for callers that check them.
    """
    if text.count("[") + text.count("{") > DEEPEST:
        _check_depth(text)
    if not numbers:
        return json.loads(text)
    return json.loads(text, parse_constant=refuse_constant, parse_int=_whole, parse_float=_finite)


def is_number(value: Any, most: float = sys.float_info.max) -> bool:
    """Return whether a value is a finite Python or NumPy number of at most this magnitude; booleans are not."""
    is_real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return is_real and bool(-most <= value <= most)


def _check_depth(text: str) -> None:
    depth = 0
    for found in _BRACKETS.finditer(text):
        depth += (found.lastindex == 1) - (found.lastindex == 2)
        if depth > DEEPEST:
            raise ValueError(f"nested more than {DEEPEST} deep")


def _whole(text: str) -> int:
    if len(text) > _LONGEST_NUMBER or not -(2**63) <= int(text) < 2**64:
        raise ValueError(f"{text[:30]} is beyond 64 bits")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:30]} is too large")
    return value


def plain(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """Convert a value to dicts with string keys, lists and the results of ``leaf``.

    Args:
        value: nested mappings, lists, tuples, and NumPy arrays and scalars, which become lists and Python numbers.
        leaf: converts every other value, including NaN and infinities, which JSON does not have.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item, leaf) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, leaf) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist(), leaf)
    return leaf(value)
