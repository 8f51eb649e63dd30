"""Cached trials are used only if they are valid."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from support import SaveOnnx

from engine import EngineSpec
from engine.backends.int8_models import _recalled
from engine.backends.null import NullEngine
from engine.backends.trial import Contender, choose, random_input
from tecoinfer_modelzoo.cache import write_entry

RIGHT: dict[str, Any] = {"chosen": "b", "seconds": {"a": 2.0, "b": 1.0}, "refused": {}}


@pytest.mark.parametrize(
    ("change", "taken"),
    [
        ({}, "b"),
        ({"seconds": {}}, "a"),
        ({"seconds": {"b": 1}}, "b"),
        ({"chosen": "c"}, "a"),
        ({"chosen": ["b"]}, "a"),
        ({"chosen": {"b": 1}}, "a"),
        ({"chosen": None}, "a"),
        ({"seconds": None}, "a"),
        ({"seconds": [1.0]}, "a"),
        ({"seconds": {"a": 2.0}}, "a"),
        ({"seconds": {"a": 2.0, "b": "1"}}, "a"),
        ({"seconds": {"a": True, "b": 1.0}}, "a"),
        ({"seconds": {"a": 2.0, "b": 0.0}}, "a"),
        ({"seconds": {"a": 1e308, "b": 1e-320}}, "a"),
        ({"seconds": {"a": 2.0, "b": 1.0, "unknown": 1.0}}, "a"),
        ({"refused": []}, "a"),
        ({"refused": {"a": 3}}, "a"),
        ({"refused": {"unknown": "why"}}, "a"),
    ],
)
def test_a_cache_entry_of_wrong_types_repeats_the_trial(
    change: dict[str, Any], taken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path))
    write_entry("trials", "key", RIGHT | change)
    opened: list[str] = []

    def contender(name: str) -> Contender:
        def open_it() -> Any:
            opened.append(name)
            return NullEngine.__new__(NullEngine)

        return Contender(name, open_it)

    monkeypatch.setattr("engine.backends.trial._trial", lambda contenders, *_: (contenders[0].open(), _Verdict()))
    choose([contender("a"), contender("b")], "key", lambda _: None, agree=True)
    assert opened == [taken]


class _Verdict:
    """Key of a trial without measurements."""

    seconds: Mapping[str, float] = MappingProxyType({})
    refused = seconds
    failed: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    "entry",
    [
        {"a": 3},
        {"a": [0.9, "y"]},
        {"a": ["0.9", "y", 8]},
        {"a": [True, "y", 8]},
        {"a": [float("nan"), "y", 8]},
        {"a": [5.0, "y", 8]},
        {"a": [0.9, None, 8]},
        {"a": [0.9, "y", -1]},
        {"a": [0.9, "y", 8.5]},
        {"a": {"x": 1, "y": 2, "z": 3}},
    ],
)
def test_an_agreement_of_wrong_types_is_measured_again(entry: dict[str, Any]) -> None:
    assert _recalled(entry) is None
    assert _recalled({"a": [0.9, "y", 8]}) is not None


@pytest.mark.parametrize("kind", ["float", "bool", "int64"])
@pytest.mark.parametrize("size", [2**31 - 1, 2**62])
def test_inputs_beyond_memory_are_not_generated(kind: str, size: int, save_onnx: SaveOnnx) -> None:
    path = save_onnx(f"g ({kind}[N,{size}] x) => ({kind}[N,{size}] y) {{ y = Identity(x) }}")
    with NullEngine(EngineSpec(ckpt=path)) as engine:
        assert random_input(engine, 2) is None
