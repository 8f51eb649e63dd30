"""Parsing of untrusted JSON."""

from __future__ import annotations

import json

import pytest

from tecoinfer_modelzoo.json_values import DEEPEST, plain_json


@pytest.mark.parametrize(
    "text",
    [
        *("NaN", "[Infinity]", '{"a": -Infinity}', "1e999", "-1e400", "9" * 20, "9" * 5000, str(-(2**63) - 1)),
        *("", "{", "[" * 100_000, "[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), '{"a":' * 100 + "1" + "}" * 100),
    ],
)
def test_rejected_values(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        plain_json(text)


@pytest.mark.parametrize(
    "value",
    [None, 2**64 - 1, -(2**63), 1e308, "[" * 100, ['a"]', "\\[" * 99, "\\\\"], [[1], [2]] * 100, {"a": [{"b": 0.5}]}],
)
def test_accepted_values(value: object) -> None:
    assert plain_json(json.dumps(value)) == value
    deep = "[" * DEEPEST + "]" * DEEPEST
    assert json.dumps(plain_json(deep)) == deep
