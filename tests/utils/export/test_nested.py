"""Flat, named inputs and outputs of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from engine import ConfigError, ModelError
from utils.export.nested import example, output_names, outputs

KINDS = (np.ndarray,)
X = np.zeros(3)


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass
class Answer:
    logits: Any
    hidden: Any = None


class TestExample:
    def test_single_tensor(self) -> None:
        found = example(X, KINDS, ["image"], None)
        assert (found.names, found.plain) == (["input"], True)

    def test_arguments_name_the_inputs(self) -> None:
        found = example([X, X], KINDS, ["ids", "mask"], None)
        assert (found.names, found.plain) == (["ids", "mask"], True)
        assert example([X, X], KINDS, ["ids"], None).names == ["ids", "input_1"]  # *args
        assert not example([X, X], KINDS, ["ids"], None).plain

    def test_keywords_constants_and_nested_items(self) -> None:
        given = {"a": [X, (X, None)], "flag": False, "pair": Pair(X, 3), "b": {"k": X}}
        found = example(given, KINDS, [], None)
        assert found.names == ["a_0", "a_1_0", "pair_first", "b_k"]
        assert not found.plain

        def model(**called: Any) -> dict[str, Any]:
            return called

        called = found.call(model, [1, 2, 3, 4])
        assert called == {"a": [1, (2, None)], "flag": False, "pair": Pair(3, 3), "b": {"k": 4}}

    def test_no_tensor_raises(self) -> None:
        with pytest.raises(ConfigError, match="example_inputs contain no tensor"):
            example({"a": None}, KINDS, [], None)

    def test_names_must_fit(self) -> None:
        assert example([X, X], KINDS, ["a", "b"], ["x", "y"]).names == ["x", "y"]
        with pytest.raises(ConfigError, match=r"input_names \['x'\].* 1 name; .*2 inputs: a, b"):
            example([X, X], KINDS, ["a", "b"], ["x"])
        with pytest.raises(ConfigError, match=r"input_names \['x', 'x'\]: 'x' occurs twice"):
            example([X, X], KINDS, ["a", "b"], ["x", "x"])


class TestOutputs:
    @pytest.mark.parametrize(
        ("found", "names"),
        [
            (X, ["output"]),
            ((X,), ["output"]),
            ((X, X), ["output_0", "output_1"]),
            ([X, None, [X, X]], ["output_0", "output_2_0", "output_2_1"]),
            ({"a": X}, ["a"]),
            ({"a": X, "none": None, "b": (X, {"c": X})}, ["a", "b_0", "b_1_c"]),
            (Answer(X), ["logits"]),
            (Answer(X, (X, X)), ["logits", "hidden_0", "hidden_1"]),
            (Pair(X, X), ["first", "second"]),
            ((X, Pair(X, X)), ["output_0", "output_1_first", "output_1_second"]),
        ],
    )
    def test_names_of_keys_fields_and_positions(self, found: Any, names: list[str]) -> None:
        assert [name for name, _ in outputs(found, KINDS)] == names

    @pytest.mark.parametrize(
        ("found", "message"),
        [
            (None, "the source model returns no tensor"),
            (
                (X, 3),
                "output 'output_1' of the source model is not a tensor but of type int",
            ),
            ({"cache": object()}, "output 'cache' of the source model is not a tensor but of type object"),
            ("text", "output 'output' of the source model is not a tensor but of type str"),
        ],
    )
    def test_other_types_raise(self, found: Any, message: str) -> None:
        with pytest.raises(ModelError, match=message):
            outputs(found, KINDS)

    def test_names_must_fit(self) -> None:
        assert output_names(["a", "b"], None, ["x"]) == ["a", "b"]
        with pytest.raises(ConfigError, match=r"output_names \['y'\].* 1 name; .*2 outputs: a, b"):
            output_names(["a", "b"], ["y"], ["x"])
        with pytest.raises(ConfigError, match=r"'y' occurs twice"):
            output_names(["a", "b", "c"], ["y", "y", "y"], ["x"])
        with pytest.raises(ConfigError, match=r"'x' is the name of an input"):
            output_names(["a"], ["x"], ["x"])
        with pytest.raises(ConfigError, match=r"'' is empty"):
            output_names(["a"], [""], ["x"])
