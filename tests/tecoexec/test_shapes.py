from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from engine import ConfigError, Dim, TensorSpec
from tecoexec.shapes import Signature, fit_shapes, own_shapes, parse_dtypes, parse_shapes, single_dims, sized

NAMES = st.from_regex(r"[A-Za-z_][\w./:]{0,12}", fullmatch=True).filter(lambda name: not name.endswith(":"))
SHAPES = st.lists(st.integers(1, 999_999_999), min_size=1, max_size=6).map(tuple)


def signature(**dims: tuple[Dim, ...]) -> Signature:
    specs = [
        TensorSpec(name, np.dtype("float32"), tuple(d if isinstance(d, int) else None for d in shape))
        for name, shape in dims.items()
    ]
    return Signature(Path("m.onnx"), tuple(specs), tuple(dims.values()))


@given(st.lists(st.tuples(st.one_of(st.just(""), NAMES), SHAPES), min_size=1, max_size=4), st.sampled_from("*x"))
def test_parsing_inverts_formatting(shapes: list[tuple[str, tuple[int, ...]]], sign: str) -> None:
    text = ",".join((f"{name}:" if name else "") + sign.join(map(str, shape)) for name, shape in shapes)
    assert parse_shapes(text) == shapes


@given(st.text(max_size=30))
def test_arbitrary_texts_parse_or_raise_one_line(text: str) -> None:
    try:
        found, text_or_error = parse_shapes(text), ""
    except ConfigError as error:
        found, text_or_error = [], str(error)
    assert len(text_or_error.splitlines()) == (0 if found else 1)
    assert all(d > 0 for _, shape in found for d in shape)


@pytest.mark.parametrize(
    "text",
    ["", ",", "4x3*2", "4**3", "-1*3", "+1*3", "1.5*2", "4*", "N*3", "4 * 3", "０*3", "٤*3", ":4x3", "__import__('os')",
     "1e3", "9999999999", "(4,3)", "[4,3]", "0*3", "4*3,", "scalar*3"],
)  # fmt: skip
def test_invalid_shapes_are_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="--input_shapes"):
        parse_shapes(text)


def test_scalar() -> None:
    assert parse_shapes("scalar,k:scalar,n:3") == [("", ()), ("k", ()), ("n", (3,))]


def test_sizes_by_name() -> None:
    model = signature(ids=("batch", "seq"), mask=("batch", "seq"), table=(4, "n/2"))
    given = sized(model, single_dims(["batch=8", "seq=16", "n/2=3"]))
    assert given == [("ids", (8, 16)), ("mask", (8, 16)), ("table", (4, 3))]
    assert fit_shapes(sized(signature(x=("N", 3)), {"N": 8}), signature(x=("N", 3))).batch == 8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["batsh=8", "seq=4"], "did you mean 'batch'"),
        (["batch=8"], "the size of dimension 'seq' is missing"),
        (["batch=8", "seq=16,32"], "has several sizes"),
        (["batch"], "is not NAME=SIZE"),
    ],
)
def test_invalid_sizes_by_name(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        sized(signature(ids=("batch", "seq")), single_dims(words))
    assert "\n" not in str(caught.value)


def test_sizes_need_names() -> None:
    with pytest.raises(ConfigError, match="has no name; use --input_shapes"):
        sized(signature(x=("N", None)), {"N": 2})


def test_dtypes() -> None:
    assert parse_dtypes("float16, int64") == ["float16", "int64"]
    with pytest.raises(ConfigError, match="unknown dtype 'half'"):
        parse_dtypes("half")


def test_named_shapes_are_sorted_into_the_models_order() -> None:
    model = signature(a=("batch", 3), b=("batch", 5), table=(7, 2))
    shapes = fit_shapes([("table", (7, 2)), ("b", (6, 5)), ("a", (6, 3))], model)
    assert shapes.whole == ((6, 3), (6, 5), (7, 2))
    assert shapes.axes == (0, 0, None)
    assert shapes.batch == 6
    assert shapes.per_spa(4) == ((2, 3), (2, 5), (7, 2))


def test_a_fixed_batch_accepts_any_batch() -> None:
    model = signature(a=(16, 3))
    assert fit_shapes([("", (70, 3))], model).batch == 70
    assert own_shapes(model, 4).whole == ((64, 3),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("4*3", "1 shapes for 2 inputs"),
        ("4*3*1,4*5", "'a': .*3 dimensions, not 2"),
        ("4*2,4*5", "'a': .* 3 instead of 2"),
        ("4*3,5*5", "disagree on the batch .4, 5."),
        ("a:4x3,c:4x5", "names a, c: name every input once"),
        ("a:4x3,4x5", "names a: name every input once"),
        ("a:4x3,a:4x5", "names a, a: name every input once"),
    ],
)
def test_errors_of_wrong_shapes_list_the_models_inputs(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"{reason}.*m\.onnx takes a:batchx3, b:batchx5"):
        fit_shapes(parse_shapes(text), signature(a=("batch", 3), b=("batch", 5)))


def test_dynamic_dimensions_are_required() -> None:
    with pytest.raises(ConfigError, match=r"dynamic.*takes a:batchx3"):
        own_shapes(signature(a=("batch", 3)), 4)
