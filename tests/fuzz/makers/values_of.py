"""Changed JSON and YAML values: other types, missing or new keys, swapped lists and objects, nesting."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

from tests.fuzz.names import NAMES

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 7, 0.5, 1.5, -0.0, 1e9, 1e308, 1e-320, float("nan"), float("inf"), 2**31, 2**63),
    *(-(2**63), -(2**70), 10**30, 10**400, "", " ", "0", "7", "1.0", "nan", "1e400", "x", "text", "y" * 5000),
    *("line\nbreak\x1b[31m\u202e", "line\nbreak\u2028", "a\0b", "\0", "\ud800", "\udfff\ud800", "=cmd|'/c calc'!A1"),
    *("..", ".", "/", "~", "../../etc/passwd", "/etc/passwd", "/dev/zero", "a" * 300 + ".png", "a/" * 2500 + "a.png"),
    *([], {}, [[]], [None], [{}], [True], [-1, -1], [1, "a"], ["a"], [[1, 2, 3]], [0] * 7, [0.5] * 1000),
    *(["x" * 3000], list(range(3000)), [1e400, 1, 1, 1], {"": None}, {"": ""}, {"a": 1}, {"a": {"b": []}}),
    *({"text": []}, {"\x1b[2J": {"\u202e": 1}}, {"k" * 3000: 1}, {str(number): number for number in range(500)}),
)
"""Unexpected values; some cannot be written in every format."""


def odd_value(rng: random.Random) -> Any:
    """Return one of :data:`ODD`, as a copy."""
    return copy.deepcopy(rng.choice(ODD))


def changed(document: Any, rng: random.Random, most: int = 3) -> tuple[Any, str]:
    """Return a copy of a document changed in one to ``most`` places, and a description of the changes."""
    document, done = copy.deepcopy(document), []
    for _ in range(rng.randint(1, most)):
        if rng.random() < 0.04:
            return odd_value(rng), "another document"
        done.append(change(document, rng))
    return document, "; ".join(done)


def change(document: Any, rng: random.Random) -> str:
    """Change one value within a document, and return a description of the change."""
    places = list(_places(document))
    if not places:
        return "nothing"
    # what is deep down is most of a document: first a depth, then a place
    level = rng.choice(sorted({len(path) for path in places}))
    *upper, last = rng.choice([path for path in places if len(path) == level])
    holder = document
    for key in upper:
        holder = holder[key]
    where = "/".join(map(str, (*upper, last)))[:80]
    return f"{where} {_change(holder, last, rng)}"


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value within a document."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield (*path, key)
        yield from _places(inner, (*path, key))


_WAYS = (*["is odd"] * 6, *["removed"] * 2, "wrapped", "repeated", "nested", "shifted", "has one beside it", "renamed")


def _change(holder: Any, key: Any, rng: random.Random) -> str:
    how, value, mapping = rng.choice(_WAYS), holder[key], isinstance(holder, dict)
    if how == "removed":
        del holder[key]
    elif how == "wrapped":
        holder[key] = rng.choice(([value], [value] * 2, {"a": value}, str(value)))
    elif how == "repeated" and not mapping:
        holder[key:key] = [copy.deepcopy(value)] * rng.choice((1, 2, 100))
    elif how == "nested":
        for _ in range(rng.choice((50, 200))):
            value = [value]
        holder[key] = value
    elif how == "shifted" and isinstance(value, (int, float)) and not isinstance(value, bool):
        holder[key] = rng.choice((value + 1, value - 1, -value, value * 2, value // 3, bool(value), str(value)))
    elif how == "has one beside it" and mapping:
        holder[rng.choice(("unknown", "", "__class__", "\x1b[31m", "self", "name", rng.choice(NAMES)))] = odd_value(rng)
    elif how == "renamed" and mapping:
        holder[rng.choice((f"{key} ", "x" * 500, "", "\u202e", f"{key}2"))] = holder.pop(key)
    else:
        holder[key] = odd_value(rng)
        return f"is {ascii(holder[key])[:40]}"
    return how


def written(document: Any, rng: random.Random) -> str:
    """Return the JSON of a document, sometimes in a form that ``json.dumps`` never writes."""
    text = json.dumps(document)
    if rng.random() < 0.06:
        depth = rng.choice((60, 200, 100_000))
        deep = "[" * depth + "]" * depth
        twice = f"{text[:-1]}, {text[1:]}" if text[:2] not in ("", "{}", "[]") else text
        text = rng.choice((twice, "9" * 5000, text * 2, deep, f'{{"a": {deep}}}', text.replace("0", deep, 1)))
    return text


def mutated_json(value: Any, rng: random.Random, most: int = 2) -> tuple[str, str]:
    """Return JSON text of a value changed in one to ``most`` places, and a description of the changes."""
    document, what = changed(value, rng, most)
    return written(document, rng), what
