"""JSON that was written by the zoo and may have been changed since: values are taken only in the types they were."""

from __future__ import annotations

from typing import Any

Problems = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What reading damaged JSON raises, and reading its values by the functions here."""

MOST = 2**62
"""Largest whole number that sizes and counts may have."""


def parsed(content: bytes | str) -> Any:
    """Return what JSON text says.

    Raises:
        ValueError, RecursionError: it is no JSON, or has a number that JSON has not (NaN).
    """
    import json

    return json.loads(content, parse_constant=_refused)


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def whole(value: Any, least: int = 0, most: int = MOST) -> int:
    """Return a whole number between two others; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise TypeError(f"not a whole number from {least} to {most}")
    return value


def number(value: Any, least: float = 0.0, most: float = 1e30) -> float:
    """Return a finite number between two others; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise TypeError(f"not a number from {least:g} to {most:g}")
    return float(value)


def text(value: Any) -> str:
    """Return text that can be written as UTF-8."""
    if not isinstance(value, str):
        raise TypeError("not text")
    value.encode()
    return value


def flag(value: Any) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise TypeError("neither true nor false")
    return value


def entries(value: Any) -> dict[str, Any]:
    """Return an object, whose keys are text that can be written."""
    if not isinstance(value, dict):
        raise TypeError("not an object")
    for key in value:
        text(key)
    return value


def items(value: Any) -> list[Any]:
    """Return a list."""
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value
