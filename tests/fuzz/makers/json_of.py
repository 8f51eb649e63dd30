"""Hostile JSON, and equivalent JSON in another form."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.fuzz.makers.bytes_of import mutated

DEPTH = 100_000


def same_json(rng: random.Random, value: Any) -> str:
    """Return equivalent JSON with other key order, white space and escapes."""
    if isinstance(value, dict) and rng.random() < 0.5:
        keys = list(value)
        rng.shuffle(keys)
        value = {key: value[key] for key in keys}
    between = rng.choice(((",", ":"), (", ", ": "), (" ,\t", " :  ")))
    return json.dumps(value, ensure_ascii=rng.random() < 0.5, separators=between)


def damaged_json(rng: random.Random, content: bytes) -> tuple[bytes, str]:
    """Return content with a hostile element, and its description."""
    what = rng.choice(tuple(_DAMAGES) + ("bytes",) * 4)
    if what == "bytes":
        return mutated(content, rng)
    return _DAMAGES[what](rng, content), what


def _line(text: bytes) -> Any:
    return lambda rng, content: content + b"\n" + text


def _before(text: bytes) -> Any:
    return lambda rng, content: text + content


_DAMAGES: dict[str, Any] = {
    "lists 100 000 deep": _line(b"[" * DEPTH + b"]" * DEPTH),
    "objects 100 000 deep": _line(b'{"text":' * DEPTH + b"1" + b"}" * DEPTH),
    "lists 100 000 deep, nothing else": lambda rng, content: b"[" * DEPTH + b"]" * DEPTH,
    "a key with lists 100 000 deep": _line(b'{"text": ' + b"[" * DEPTH + b"]" * DEPTH + b"}"),
    "a number of 5000 digits": _line(b'{"text": ' + b"9" * 5000 + b"}"),
    "a number of 5000 digits, nothing else": lambda rng, content: b"9" * 5000,
    "the same key twice": lambda rng, content: content.replace(b"{", b'{"text": "first", "id": 7, ', 1),
    "NaN": lambda rng, content: content.replace(b"0", b"NaN", 1),
    "-Infinity": lambda rng, content: content.replace(b"1", b"-Infinity", 1),
    "half a character": lambda rng, content: content.replace(b"e", b"\\ud800", 1),
    "NUL": lambda rng, content: content.replace(b"e", b"\0", 2),
    "an escaped NUL": lambda rng, content: content.replace(b"e", b"\\u0000", 2),
    "ESC and RTL": lambda rng, content: content.replace(b"e", b"\\u001b[31m\\u202e", 3),
    "BOM": _before(b"\xef\xbb\xbf"),
    "two BOMs": _before(b"\xef\xbb\xbf\xef\xbb\xbf"),
    "UTF-16": lambda rng, content: content.decode("utf-8", "replace").encode("utf-16"),
    "CRLF": lambda rng, content: content.replace(b"\n", b"\r\n"),
    "CR": lambda rng, content: content.replace(b"\n", b"\r"),
    "a line of 2 MB": _line(b'{"text": "' + b"a " * 1_000_000 + b'"}'),
    "50 000 keys": _line(json.dumps({f"k{i}": i for i in range(50_000)}).encode()),
    "50 000 broken lines": _line(b"{\n" * 50_000),
    "empty": lambda rng, content: b"",
    "only line breaks": lambda rng, content: b"\n" * 1000,
    "a null": lambda rng, content: b"null",
    "a list of nothing": lambda rng, content: b"[]",
    "an object of nothing": lambda rng, content: b"{}",
    "not UTF-8": lambda rng, content: content.replace(b"t", b"\xff\xfe", 2),
}
