from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from engine import ConfigError, Engine, EngineError, EngineSpec, InputError, PassError, TecoInferError, engine_nums
from engine.base import PASS_PATH
from engine.signature import Array, Dim, TensorSpec

CKPT = Path("m.onnx")


class Echo(Engine):
    """Returns its inputs; the smallest real backend."""

    outputs_owned = inputs_untouched = True

    def __init__(self, *tensors: tuple[str, type, list[Dim]], **options: object) -> None:
        super().__init__(EngineSpec(ckpt=CKPT, **options))  # type: ignore[arg-type]
        self.closed = 0
        inputs = [
            TensorSpec(name, np.dtype(dtype), tuple(d if isinstance(d, int) else None for d in shape))
            for name, dtype, shape in tensors
        ]
        self.bind(inputs, inputs, [shape for _, _, shape in tensors])

    def infer(self, inputs: list[Array]) -> list[Array]:
        return inputs

    def close(self) -> None:
        self.closed += 1


X = ("x", np.float32, ["N", 3])


def ones(*shape: int, dtype: type = np.float32) -> Array:
    return np.ones(shape, dtype)


# ------------------------------------------------------------------------------------------------------------ inputs


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ([], "m.onnx: got 0 input arrays, the model takes 2: x, ids"),
        ([ones(2, 3)], "m.onnx: got 1 input arrays, the model takes 2: x, ids"),
        (ones(2, 3), "m.onnx: got 1 input arrays, the model takes 2: x, ids"),
        (
            [ones(2, 4), ones(2, dtype=np.int64)],
            "input 'x' has shape 2x4, the model takes Nx3; check the preprocessing",
        ),
        ([ones(3), ones(2, dtype=np.int64)], "input 'x' has shape 3, the model takes Nx3"),
        ([np.float32(1) * ones(), ones(2, dtype=np.int64)], "input 'x' is a float32, not a numpy array"),
        ([np.asarray(1, np.float32), ones(2, dtype=np.int64)], "input 'x' has shape scalar, the model takes Nx3"),
        ([ones(0, 3), ones(0, dtype=np.int64)], "input 'x' has shape 0x3: an empty batch cannot be run"),
        ([ones(2, 3), ones(4, dtype=np.int64)], "input 'ids' has 4 samples, the inputs before it have 2"),
        ([ones(2, 3), ones(2)], "input 'ids' has dtype float32, the model takes int64; use array.astype(np.int64)"),
        ([ones(2, 3, dtype=np.int64), ones(2, dtype=np.int64)], "input 'x' has dtype int64, the model takes float32"),
        ([ones(2, 3), ones(2, dtype=np.uint64)], "input 'ids' has dtype uint64, the model takes int64"),
        ([ones(2, 3), ones(2, dtype=np.bool_)], "input 'ids' has dtype bool, the model takes int64"),
        ([ones(2, 3).astype(complex), ones(2, dtype=np.int64)], "input 'x' has dtype complex128"),
        ([np.array([["a"] * 3]), ones(1, dtype=np.int64)], "input 'x' has dtype <U1"),
        ([[[1, 2, 3]], ones(1, dtype=np.int64)], "input 'x' is a list, not a numpy array; use np.asarray(...)"),
        ([None, None], "input 'x' is a NoneType, not a numpy array"),
    ],
)
def test_wrong_inputs(inputs: object, text: str) -> None:
    engine = Echo(X, ("ids", np.int64, ["N"]))
    with pytest.raises(InputError) as caught:
        engine(inputs)  # type: ignore[arg-type]
    assert str(caught.value).startswith(text)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, TecoInferError)


def test_integers_widen_without_a_word_and_never_narrow() -> None:
    engine = Echo(("ids", np.int64, ["N"]), ("small", np.int8, ["N"]))
    ids, small = engine([ones(2, dtype=np.int32), ones(2, dtype=np.int8)])
    assert (ids.dtype, small.dtype) == (np.int64, np.int8)
    with pytest.raises(InputError, match="'small' has dtype int64, the model takes int8"):
        engine([ones(2, dtype=np.int64), ones(2, dtype=np.int64)])


def test_narrowing_floats_warns_once_per_input() -> None:
    engine = Echo(("a", np.float16, ["N"]), ("b", np.float32, ["N"]))
    with pytest.warns(UserWarning, match="cast to the model's") as caught:
        a, b = engine([ones(2, dtype=np.float32), ones(2, dtype=np.float64)])
    engine([ones(2, dtype=np.float32), ones(2, dtype=np.float64)])  # a second warning would be an error here
    assert [str(w.message).split(";")[0] for w in caught] == [
        "input 'a': float32 cast to the model's float16",
        "input 'b': float64 cast to the model's float32",
    ]
    assert caught[0].filename == __file__
    assert (a.dtype, b.dtype) == (np.float16, np.float32)


@pytest.mark.parametrize(
    ("largest", "advised"), [(2048.0, True), (2050.0, False), (-3000.0, False), (65504.0, False), (7e4, False)]
)
def test_preprocessing_to_float16_is_advised_where_it_spoils_no_whole_number(largest: float, advised: bool) -> None:
    engine = Echo(("a", np.float16, ["N"]))
    with pytest.warns(UserWarning, match="cast to the model's float16") as caught:
        engine([np.array([1, largest], np.float32)])
    assert ("preprocess" in str(caught[0].message)) is advised


def test_values_that_become_infinite_later_are_reported_once() -> None:
    engine = Echo(("a", np.float16, ["N"]))
    with pytest.warns(UserWarning, match="preprocess"):
        engine([ones(2, dtype=np.float32)])
    with pytest.warns(UserWarning, match="infinite") as caught:
        engine([np.array([7e4, 1], np.float32)])
    assert len(caught) == 1
    engine([np.array([7e4, np.inf], np.float32)])  # a second warning would be an error here


def test_values_beyond_the_narrower_range_become_infinite_without_a_numpy_warning() -> None:
    engine = Echo(("a", np.float16, ["N"]), ("b", np.float32, ["N"]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        a, b = engine([np.array([7e4, -7e4, 65519.0, np.nan], np.float32), np.array([1e300, -1e300, 1, 0])])
    assert len(caught) == 2
    np.testing.assert_array_equal(a, np.array([np.inf, -np.inf, 65504, np.nan], np.float16))
    np.testing.assert_array_equal(b, np.array([np.inf, -np.inf, 1, 0], np.float32))


def test_arrays_that_fit_are_passed_unchanged() -> None:
    x = ones(4, 3)
    assert Echo(X)(x) is x
    assert Echo(X)([x]) is x
    assert Echo(X)((x,)) is x
    assert Echo(X)(x.astype(np.float16)).dtype == np.float32  # widening loses nothing and does not warn
    assert Echo(X)(x.astype(">f4")).dtype == np.float32


def test_the_callers_list_is_not_changed() -> None:
    inputs = [ones(2, 3, dtype=np.float16)]
    Echo(X)(inputs)
    assert inputs[0].dtype == np.float16


# ------------------------------------------------------------------------------------------------------------- binding


def test_names_reorder_the_inputs() -> None:
    engine = Echo(X, ("ids", np.int64, ["N"]), input_name=("ids", "x"))
    engine.outputs.reverse()  # it returns its inputs, in the caller's order
    ids, x = engine([ones(2, dtype=np.int64), ones(2, 3)])
    assert (ids.shape, x.shape) == ((2,), (2, 3))


def test_unbatched_input_keeps_its_own_length() -> None:
    engine = Echo(("table", np.float32, ["T"]), ("x", np.float32, ["N", 3]), input_size=((7,), (2, 3)))
    assert [tensor.batched for tensor in engine.inputs] == [True, False]
    engine = Echo(("x", np.float32, ["N", 3]), ("table", np.float32, ["T"]))
    assert [tensor.batched for tensor in engine.inputs] == [True, False]
    assert engine.static_batch is None
    engine([ones(2, 3), ones(9)])


def test_wrong_number_of_shapes() -> None:
    with pytest.raises(ConfigError, match=r"m\.onnx: input_size has 2 shapes,.*1 inputs"):
        Echo(X, input_size=((1, 3), (1, 3)))


def test_inputs_behind_the_last_shape_take_what_their_symbols_are_bound_to() -> None:
    image, mask = ("x", np.float32, ["N", 3, "H", "W"]), ("mask", np.int64, ["N", "H", "W"])
    engine = Echo(image, mask, ("table", np.float32, ["T"]), input_size=((None, 3, 8, 9),))
    assert [spec.shape for spec in engine.inputs] == [(None, 3, 8, 9), (None, 8, 9), (None,)]
    swapped = Echo(mask, image, input_size=((None, 3, 8, 9),), input_name=("x", "mask"))
    assert [(spec.name, spec.shape) for spec in swapped.inputs] == [("x", (None, 3, 8, 9)), ("mask", (None, 8, 9))]
    with pytest.raises(ConfigError, match=r"m\.onnx: input_size has 0 shapes,.*1 inputs"):
        Echo(X, input_size=())


def test_input_size_binds_dynamic_dimensions() -> None:
    engine = Echo(("x", np.float32, ["N", 3, "H", "W"]), input_size=((2, 3, 8, 9),))
    assert engine.inputs[0].shape == (None, 3, 8, 9)
    with pytest.raises(InputError, match="2x3x9x9, the model takes Nx3x8x9"):
        engine(ones(2, 3, 9, 9))


def test_input_dtype_is_that_of_the_batched_input() -> None:
    assert Echo(("flag", np.bool_, []), ("x", np.float16, ["N"])).input_dtype == "float16"


# ----------------------------------------------------------------------------------------------------- life and timing


def test_release_is_idempotent_and_final() -> None:
    engine = Echo(X)
    engine.release()
    engine.release()
    assert engine.closed == 1
    with pytest.raises(EngineError, match=r"Echo was used after release\(\)"):
        engine(ones(1, 3))


def test_context_manager_releases_also_on_an_error() -> None:
    with pytest.raises(RuntimeError, match="mine"), Echo(X) as engine:
        raise RuntimeError("mine")
    assert engine.closed == 1
    with Echo(X) as engine:
        engine.release()
    assert engine.closed == 1


def test_run_time_and_timeline_agree() -> None:
    engine = Echo(X)
    assert engine.run_time == 0.0
    total = 0.0
    for batch in (1, 5, 2):
        engine(ones(batch, 3))
        assert engine.run_time > 0
        total += engine.run_time
    assert engine.timeline.count("engine") == 3
    assert engine.timeline.samples("engine") == 8
    assert engine.timeline.seconds("engine") == pytest.approx(total)


def test_the_contract_is_abstract() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Engine(EngineSpec(ckpt=CKPT))  # type: ignore[abstract]


# ------------------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"batch_size": 0}, "batch_size 0 must be at least 1"),
        ({"batch_size": -3}, "batch_size -3 must be at least 1"),
        ({"dtype": "float64"}, "unknown dtype 'float64'; use one of: float32, float16"),
        ({"dtype": ""}, "unknown dtype ''"),
        ({"input_size": ((1, 2.5),)}, "must hold positive whole numbers"),
        ({"input_size": ((1, -1),)}, r"input_size \[1, -1\] must hold positive whole numbers"),
    ],
)
def test_spec_refuses(options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        EngineSpec(ckpt=CKPT, **options)  # type: ignore[arg-type]


def test_missing_pass_file_names_the_zoos_own() -> None:
    with pytest.raises(PassError, match=r"gone\.py does not exist; .*default_pass\.py"):
        EngineSpec(ckpt=CKPT, pass_path=Path("gone.py"))
    assert EngineSpec(ckpt=CKPT, pass_path=PASS_PATH / "default_pass.py").pass_path


@pytest.mark.parametrize("text", ["0", "-1", "abc", "9", "", "３", "4.0", " 4", "+4", "²", "1e0", "10"])
def test_engine_nums_refuses(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_ENGINE_NUMS", text)
    with pytest.raises(ConfigError) as caught:
        engine_nums()
    assert str(caught.value).startswith(f"environment variable MAX_ENGINE_NUMS={text!r} must be a whole number from 1")


@pytest.mark.parametrize("text", ["1", "3", "4", "8"])
def test_engine_nums(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_ENGINE_NUMS", text)
    assert engine_nums() == int(text)


def test_four_spa_is_the_default() -> None:
    assert engine_nums() == 4
