"""Check of the parameters that an export stores for decoding a detector's outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tecoinfer_modelzoo.json_values import is_number

MOST = 1 << 20
"""Upper limit of numbers of pixels, cells or boxes in a note."""


def problem_of(note: Mapping[str, Any]) -> str | None:
    """Return a description of an invalid value of a note; ``None`` if all are valid."""
    for name, (fits, wanted) in _KNOWN.items():
        if note.get(name) is not None and not fits(note[name]):
            return f"{name} {note[name]!r:.60} must be {wanted}"
    grids = note.get("grids")
    ratios = note.get("aspect_ratios")
    if ratios is not None and not all(_numbers(one) if grids else _number(one) for one in ratios):
        return f"aspect_ratios {ratios!r:.60} must be numbers above 0{', a list per grid' if grids else ''}"
    if grids:
        found = {name: len(note[name]) for name in ("aspect_ratios", "steps") if note.get(name)}
        wrong = next((name for name, count in found.items() if count != len(grids)), None)
        wrong = "scales" if wrong is None and len(note.get("scales") or grids) <= len(grids) else wrong
        return wrong and f"{wrong} must have one entry for each of the {len(grids)} grids"
    return None


def _number(value: Any) -> bool:
    return is_number(value) and 0 < value < MOST


def _whole(value: Any) -> bool:
    return _number(value) and isinstance(value, int)


def _list(value: Any, each: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(each, value))


def _numbers(value: Any) -> bool:
    return _list(value, _number)


def _pair(value: Any, each: Callable[[Any], bool] = _whole) -> bool:
    return _list(value, each) and len(value) == 2


_KNOWN: dict[str, tuple[Callable[[Any], bool], str]] = {
    "layout": (lambda value: isinstance(value, str), "the name of a layout"),
    "strides": (lambda value: _list(value, _whole), "a list of whole numbers of pixels"),
    "stride": (_whole, "a whole number of pixels"),
    "top_k": (_whole, "a whole number from 1 on"),
    "max_detections": (_whole, "a whole number from 1 on"),
    "size": (_pair, "height and width in pixels"),
    "grids": (lambda value: _list(value, _pair), "a list of heights and widths"),
    "steps": (_numbers, "a list of numbers above 0"),
    "scales": (_numbers, "a list of numbers above 0"),
    "sizes": (lambda value: _list(value, _numbers), "a list of lists of numbers above 0"),
    "aspect_ratios": (lambda value: isinstance(value, list), "a list"),
    "anchors": (
        lambda value: _list(value, lambda one: _list(one, lambda pair: _pair(pair, _number))),
        "a list of pairs of numbers per map",
    ),
}
"""Check of each key, and its description."""
