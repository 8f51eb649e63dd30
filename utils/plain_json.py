"""JSON out of models and other files that nobody has checked: no NaN, no number beyond 64 bits, nothing nested deep."""

from __future__ import annotations

import json
import math
import re
from typing import Any

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
