"""Features: rows of named values as model inputs, and errors of invalid values."""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import DataError, ModelError, TensorSpec
from utils.preprocess.features import Features
from utils.tasks.model import Model

FIELDS: list[dict[str, Any]] = [
    {"name": "user", "input": "ids", "kind": "vocabulary", "values": ["ann", "bob"]},
    {"name": "age", "input": "ids", "kind": "vocabulary", "values": ["20", "25"], "step": 5, "offset": 3},
    {"name": "zip", "input": "ids", "kind": "vocabulary", "values": ["8"], "letters": 1, "offset": 6},
    {"name": "item", "input": "ids", "kind": "hashed", "size": 10, "offset": 8},
    {"name": "tags", "input": "dense", "kind": "multi", "values": ["x", "y", "z"]},
    {"name": "count", "input": "dense", "kind": "number", "transform": "log1p"},
    {"name": "price", "input": "dense", "kind": "number", "mean": 10, "std": 2},
]
INPUTS = (TensorSpec("ids", np.dtype("int64"), (None, 4)), TensorSpec("dense", np.dtype("float32"), (None, 5)))


def model(data: Any, inputs: tuple[TensorSpec, ...] = INPUTS) -> Model:
    return Model(Path("a.onnx"), inputs, metadata={} if data is None else {"features": json.dumps(data)})


def test_each_kind_of_field() -> None:
    features = Features.of(model({"fields": FIELDS, "split": {"how": "random"}}))
    rows = [
        {"user": "bob", "age": "29", "zip": "85711", "item": "é", "tags": "z|x|?", "count": "3", "price": "14"},
        {"user": "eve", "age": "", "item": "", "tags": "?", "count": "-2", "price": ""},
    ]
    arrays = features.encoded(rows)
    known = 8 + zlib.crc32("item=é".encode()) % 10, 8 + zlib.crc32(b"item=") % 10
    assert arrays["ids"].tolist() == [[2, 5, 7, known[0]], [0, 3, 6, known[1]]]
    assert arrays["ids"].dtype == np.int64
    assert arrays["dense"].dtype == np.float32
    np.testing.assert_allclose(arrays["dense"], [[0.5, 0, 0.5, np.log(4), 2], [0, 0, 0, 0, 0]], rtol=1e-6)
    assert features.unknown(arrays) == [(), ("user", "age", "zip")]
    assert features.notes == {"split": {"how": "random"}}
    assert features.missing(["user", "zip", "item", "tags", "price"]) == ["age", "count"]
    assert Features.from_json(features.to_json()).to_json() == features.to_json()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.fixed_dictionaries({"user": st.text(max_size=5), "item": st.text(max_size=5)}), max_size=5))
def test_any_text_has_a_row_of_its_field(rows: list[dict[str, str]]) -> None:
    features = Features.from_json({"fields": [FIELDS[0], FIELDS[3]]})
    ids = features.encoded(rows)["ids"] if rows else np.zeros((0, 2), np.int64)
    assert ((ids[:, 0] >= 0) & (ids[:, 0] < 3)).all()
    assert ((ids[:, 1] >= 8) & (ids[:, 1] < 18)).all()


@pytest.mark.parametrize(
    ("step", "value", "key"),
    [(86400, "1700000123", "1699920000"), (0.1, "0.35", "0.3"), (5, "-3", "-5"), (5, "24.9", "20")],
)
def test_a_step_keeps_every_digit(step: float, value: str, key: str) -> None:
    field = {"name": "when", "input": "ids", "kind": "vocabulary", "values": [key], "step": step}
    assert Features.from_json({"fields": [field]}).encoded([{"when": value}])["ids"].tolist() == [[1]]


@pytest.mark.parametrize("text", ["ten", "nan", "inf", "1e999", "1_000"])
def test_invalid_numbers(text: str) -> None:
    features = Features.from_json({"fields": FIELDS})
    for name in ("age", "price"):
        with pytest.raises(DataError, match=rf"^{name} '{text}' is not a finite number"):
            features.encoded([{name: text}])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "table"}, r"field 'user': kind 'table' must be one of vocabulary, hashed, number, multi"),
        ({"values": ["a", "a"]}, "values .* must be a list of different texts"),
        ({"values": []}, "a field of kind vocabulary needs 'values'"),
        ({"offset": -1}, "offset -1 must be a whole number of at least 0"),
        ({"size": True}, "size True must be a whole number of at least 1"),
        ({"vlaues": []}, "'vlaues' is not one of name, input"),
        ({"kind": "hashed"}, "a field of kind hashed needs 'size'"),
        ({"input": "dense"}, "input 'dense' holds both row numbers and floats"),
    ],
)
def test_invalid_features(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=rf"^a\.onnx: metadata 'features': .*{message}.*export the model again$"):
        Features.of(model({"fields": [{**FIELDS[0], **change}, *FIELDS[1:]]}))


def test_features_that_do_not_fit_the_model() -> None:
    with pytest.raises(ModelError, match="no 'features' in its metadata"):
        Features.of(model(None))
    for data in ([], {"fields": []}, {"fields": 3}):
        with pytest.raises(ModelError, match=r"object .*'fields'"):
            Features.of(model(data))
    with pytest.raises(ModelError, match=r"dense, ids, .*takes ids"):
        Features.of(model({"fields": FIELDS}, INPUTS[:1]))
    wide = (TensorSpec("ids", np.dtype("int64"), (None, 5)), INPUTS[1])
    with pytest.raises(ModelError, match=r"'ids' of shape \(None, 5\) must be N x 4"):
        Features.of(model({"fields": FIELDS}, wide))
    floats = (TensorSpec("ids", np.dtype("float32"), (None, 4)), INPUTS[1])
    with pytest.raises(ModelError, match="input 'ids' of dtype float32 "):
        Features.of(model({"fields": FIELDS}, floats))
    with pytest.raises(ModelError, match="not JSON"):
        Features.of(Model(Path("a.onnx"), INPUTS, metadata={"features": "{"}))


@pytest.mark.parametrize("text", ["zz", "1_0", "-5"])
def test_invalid_hexadecimal_numbers(text: str) -> None:
    field = {"name": "C1", "input": "ids", "kind": "hashed", "hash": "hex", "size": 7}
    with pytest.raises(DataError, match=f"C1 '{text}' is not a hexadecimal number"):
        Features.from_json({"fields": [field]}).encoded([{"C1": text}])
