"""Type-checked access to JSON files that the zoo wrote and that may have been modified since."""

from __future__ import annotations

from typing import Any

Problems = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""Exceptions that parsing damaged JSON and the functions of this module raise."""

MOST = 2**62
"""Largest accepted size or count."""


def parsed(content: bytes | str) -> Any:
    """Parse JSON text; raise ValueError or RecursionError if the text is not JSON, or contains NaN or an infinity."""
    import json

    return json.loads(content, parse_constant=refuse_constant)


def refuse_constant(name: str) -> Any:
    """Raise ValueError for NaN and infinities."""
    raise ValueError(f"{name} is not valid JSON")


def whole(value: Any, least: int = 0, most: int = MOST) -> int:
    """Check an integer in a range; booleans are rejected."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise TypeError(f"not a whole number from {least} to {most}")
    return value


def number(value: Any, least: float = 0.0, most: float = 1e30) -> float:
    """Check a finite number in a range; booleans are rejected."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise TypeError(f"not a number from {least:g} to {most:g}")
    return float(value)


def text(value: Any) -> str:
    """Check a string that can be encoded as UTF-8."""
    if not isinstance(value, str):
        raise TypeError("not text")
    value.encode()
    return value


def flag(value: Any) -> bool:
    """Check a boolean."""
    if not isinstance(value, bool):
        raise TypeError("neither true nor false")
    return value


def entries(value: Any) -> dict[str, Any]:
    """Check an object whose keys can be encoded as UTF-8."""
    if not isinstance(value, dict):
        raise TypeError("not an object")
    for key in value:
        text(key)
    return value


def items(value: Any) -> list[Any]:
    """Check a list."""
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value
