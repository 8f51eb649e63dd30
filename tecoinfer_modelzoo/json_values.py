"""JSON of unknown origin, read within limits (finite 64-bit numbers, bounded nesting), and values as JSON has them."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

DEEPEST = 64
"""Lists and objects inside one another at most: what later goes over the value recursively never goes deeper."""

_LONGEST_NUMBER = 20
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"?|([\[{])|([\]}])', re.DOTALL)


def plain_json(text: str, numbers: bool = True) -> Any:
    """Return the value of JSON text.

    Args:
        text: the JSON. numbers: ``False`` where the caller judges every number itself.

    Raises:
        ValueError: it is none, has a number that is not finite or whole and beyond 64 bits, or is nested too deep.
    """
    if text.count("[") + text.count("{") > DEEPEST:
        _check_depth(text)
    if not numbers:
        return json.loads(text)
    return json.loads(text, parse_constant=_no_number, parse_int=_whole, parse_float=_finite)


def is_number(value: Any, most: float = sys.float_info.max) -> bool:
    """Say whether a value is a finite number, NumPy's own too, of at most this size; a truth value is none."""
    is_real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return is_real and bool(-most <= value <= most)


def _check_depth(text: str) -> None:
    depth = 0
    for found in _BRACKETS.finditer(text):
        depth += (found.lastindex == 1) - (found.lastindex == 2)
        if depth > DEEPEST:
            raise ValueError(f"nested more than {DEEPEST} deep")


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _whole(text: str) -> int:
    if len(text) > _LONGEST_NUMBER or not -(2**63) <= int(text) < 2**64:
        raise ValueError(f"{text[:30]} is beyond 64 bits")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:30]} is too large a number")
    return value


def plain(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """Return a value made of dicts with texts as keys, lists, and what ``leaf`` makes of anything else.

    Args:
        value: mappings, lists and tuples in one another; arrays and numbers of numpy become lists and plain numbers.
        leaf: says how a number, a text or whatever else is in there is written; NaN and infinities, which JSON lacks,
            are its business too.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item, leaf) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, leaf) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist(), leaf)
    return leaf(value)
