"""apply_passes detects passes that break the model."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, strategies as st
from onnx import TensorProto, helper, numpy_helper
from pass_models import build, floats, node

from engine.backends.ort import HostSession
from engine.base import PassError
from engine.passes import runner
from engine.passes.options import PassOptions
from engine.passes.runner import apply_passes, difference, random_inputs


@pytest.fixture
def model() -> onnx.ModelProto:
    nodes = [node("Conv", ["x", "w"], "c", pads=[1] * 4), node("Relu", ["c"], "y")]
    return build(nodes, {"w": floats(4, 3, 3, 3)}, ["N", 3, 8, 8])


def run(model: onnx.ModelProto, use_passes: object) -> onnx.ModelProto:
    return apply_passes(model, PassOptions(use_passes=use_passes, path=Path("my_pass.py")))  # type: ignore[arg-type]


def test_without_a_pass_the_model_is_returned(model: onnx.ModelProto) -> None:
    assert apply_passes(model, PassOptions()) is model


def test_the_original_is_not_changed(model: onnx.ModelProto) -> None:
    before = model.SerializeToString()

    def rename(copy: onnx.ModelProto) -> onnx.ModelProto:
        copy.graph.name = "renamed"
        return copy

    assert run(model, rename).graph.name == "renamed"
    assert model.SerializeToString() == before


def scale_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    weight = model.graph.initializer[0]
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(1.001), weight.name))
    return model


def drop_relu(model: onnx.ModelProto) -> onnx.ModelProto:
    model.graph.node[0].output[0] = "y"
    del model.graph.node[1]
    return model


def rename_output(model: onnx.ModelProto) -> onnx.ModelProto:
    model.graph.node[1].output[0] = "z"
    model.graph.output[0].name = "z"
    return model


def dangling(model: onnx.ModelProto) -> onnx.ModelProto:
    model.graph.node[1].input[0] = "undefined"
    return model


def lower_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    model.opset_import[0].version = 13
    return model


def lower_ir(model: onnx.ModelProto) -> onnx.ModelProto:
    model.ir_version = 7
    return model


def crash(model: onnx.ModelProto) -> onnx.ModelProto:
    raise IndexError("list index\nout of range")


def unknown_operator(model: onnx.ModelProto) -> onnx.ModelProto:
    model.graph.node[1].domain = "vendor"
    model.opset_import.add(domain="vendor", version=1)
    return model


@pytest.mark.parametrize(
    ("use_passes", "words"),
    [
        (scale_weights, ["output 'y'", "largest error"]),
        (drop_relu, ["output 'y'", "largest error"]),
        (rename_output, ["outputs", "y:float", "z:float"]),
        (dangling, ["invalid model", "undefined"]),
        (lower_opset, ["opset from 17 to 13"]),
        (lower_ir, ["IR version from 8 to 7"]),
        (crash, ["IndexError: list index out of range"]),
        (unknown_operator, ["vendor:Relu"]),
        (lambda model: None, ["NoneType"]),
        (lambda model: model.graph, ["GraphProto"]),
    ],
)
def test_broken_passes_are_detected(model: onnx.ModelProto, use_passes: object, words: list[str]) -> None:
    with pytest.raises(PassError) as caught:
        run(model, use_passes)
    message = str(caught.value)
    assert message.startswith("my_pass.py: ")
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_the_error_of_a_failed_pass_is_its_cause(model: onnx.ModelProto) -> None:
    with pytest.raises(PassError) as caught:
        run(model, crash)
    assert isinstance(caught.value.__cause__, IndexError)


def test_dropped_metadata_is_restored(model: onnx.ModelProto) -> None:
    def forget(copy: onnx.ModelProto) -> onnx.ModelProto:
        del copy.metadata_props[:]
        copy.metadata_props.add(key="by", value="pass")
        return copy

    assert {p.key: p.value for p in run(model, forget).metadata_props} == {"by": "pass", "labels": "zero,one"}


def test_input_shapes_reach_the_check() -> None:
    # Reads 40 columns, more than the default size of a dynamic dimension.
    nodes = [node("Slice", ["x", "from", "to", "axis"], "s"), node("ReduceSum", ["s"], "y", keepdims=0)]
    weights = {name: np.array([value], np.int64) for name, value in (("from", 35), ("to", 40), ("axis", 1))}
    model = build(nodes, weights, ["N", "W"])

    def wrong(copy: onnx.ModelProto) -> onnx.ModelProto:
        copy.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.array([39], np.int64), "to"))
        return copy

    options = PassOptions(use_passes=wrong, path=Path("my_pass.py"))
    assert apply_passes(model, options) is not model  # with the default of 32 columns the change has no effect
    with pytest.raises(PassError, match="output 'y'"):
        apply_passes(model, options, input_shapes={"x": (2, 40)})


def custom_model() -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Magic", ["x"], ["y"], domain="vendor")],
        "custom",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("vendor", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_a_model_that_cannot_run_is_not_compared_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_warned", set())
    model = custom_model()
    with pytest.warns(UserWarning, match="not compared.*Magic"):
        run(model, lambda m: m)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(model, lambda m: m)


def test_places_in_something_of_one_entry_are_all_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole numbers of 1 are too large for the model; it is compared all the same."""
    monkeypatch.setattr(runner, "_warned", set())
    inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["N"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])]
    graph = helper.make_graph([helper.make_node("Gather", ["rows", "ids"], ["y"])], "one", inputs, outputs)
    graph.initializer.append(numpy_helper.from_array(np.ones((1, 2), np.float32), "rows"))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(model, lambda m: m)

    def changed(given: onnx.ModelProto) -> onnx.ModelProto:
        given.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((1, 2), np.float32), "rows"))
        return given

    with pytest.raises(PassError, match="changed output 'y'"):
        run(model, changed)


def test_a_model_that_draws_random_numbers_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_warned", set())
    model = build([node("RandomNormalLike", ["x"], "r"), node("Add", ["x", "r"], "y")], {}, ["N", 3])
    with pytest.warns(UserWarning, match="draws random numbers"):
        run(model, lambda m: m)


def test_random_inputs_are_seeded_typed_and_share_symbols() -> None:
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["g"]), helper.make_node("Where", ["mask", "g", "g"], ["y"])],
        "typed",
        [
            helper.make_tensor_value_info("table", TensorProto.FLOAT16, [2, "D"]),
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["N", "T"]),
            helper.make_tensor_value_info("mask", TensorProto.BOOL, ["N", "T", 1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, ["N", "T", "D"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = HostSession(model)
    table, ids, mask = random_inputs(session, {"ids": (3, 5)})
    assert (table.shape, table.dtype) == ((2, 32), np.float16)
    assert (ids.shape, ids.dtype, set(np.unique(ids))) == ((3, 5), np.int64, {0, 1})
    assert (mask.shape, mask.dtype) == ((3, 5, 1), np.bool_)
    for first, second in zip((table, ids, mask), random_inputs(session, {"ids": (3, 5)}), strict=True):
        assert np.array_equal(first, second)
    run(model, lambda m: m)


@given(st.integers(1, 50), st.floats(0.1, 10))
def test_difference_is_relative_to_the_largest_value(size: int, scale: float) -> None:
    want = np.linspace(-scale, scale, size).astype(np.float32)
    assert difference(want, want.copy(), 1e-4) == ""
    step = np.float32(np.abs(want).max())
    assert difference(want, want + step * np.float32(0.5e-4), 1e-4) == ""
    assert "largest error" in difference(want, want + step * np.float32(2e-4), 1e-4)


def test_difference_of_nan_shape_dtype_and_integers() -> None:
    want = np.array([1.0, np.nan, np.inf])
    assert difference(want, want.copy(), 1e-4) == ""
    assert difference(want, np.array([np.nan, 1.0, np.inf]), 1e-4) == "NaN or infinite values differ"
    assert difference(want, np.array([1.0, np.nan, -np.inf]), 1e-4) == "NaN or infinite values differ"
    assert difference(want, want[:2], 1e-4) == "float64[3] became float64[2]"
    assert difference(want, want.astype(np.float32), 1e-4) == "float64[3] became float32[3]"
    assert difference(np.array([1, 2]), np.array([1, 3]), 1e-4) == "1 of 2 values differ"
    assert difference(np.zeros(0), np.zeros(0), 1e-4) == ""
