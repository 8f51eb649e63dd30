"""Rewrite rules on models with mutated patterns keep interface and values."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from onnx import helper, numpy_helper
from rule_models import CASES
from rule_mutations import mutated

from engine.backends.ort import HostSession
from engine.passes.options import PassOptions
from engine.passes.rules import RULES, rewrite
from engine.passes.runner import apply_passes, difference, random_inputs

SETTINGS = settings(max_examples=8, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("name", RULES)
def test_matching_rules_keep_the_values(name: str, caplog: pytest.LogCaptureFixture) -> None:
    @SETTINGS
    @given(st.data())
    def one(data: st.DataObject) -> None:
        model = mutated(CASES[name](data.draw)[0], data.draw)
        every = data.draw(st.booleans())
        if model is None:
            return
        rules, opset = (tuple(RULES), 24) if every else ((name,), 0)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*was not compared")  # ONNX Runtime rejects the original model
            apply_passes(model, PassOptions(use_passes=lambda given: rewrite(given, rules, opset)))

    one()
    assert [record.message for record in caplog.records if "inference failed" in record.message] == []


@pytest.mark.parametrize("name", RULES)
def test_constants_that_are_inputs_are_not_used(name: str) -> None:
    """An initializer that is also an input is only a default, which rules must not rely on."""

    @SETTINGS
    @given(st.data())
    def one(data: st.DataObject) -> None:
        model, _ = CASES[name](data.draw)
        tensors = [tensor for tensor in model.graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT]
        if not tensors:
            return
        tensor = data.draw(st.sampled_from(tensors))
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
        before, after = HostSession(model), HostSession(rewrite(model, [name]))
        value = np.abs(numpy_helper.to_array(tensor)) + np.float32(0.25)
        feed = dict(zip((spec.name for spec in before.inputs), random_inputs(before, {}), strict=True))
        feed[tensor.name] = np.asarray(value)
        for want, got in zip(before.run_named(feed), after.run_named(feed), strict=True):
            assert difference(want, got, 1e-4) == ""

    one()


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("name", RULES)
def test_other_dtypes_keep_their_values(name: str, dtype: type) -> None:
    @settings(SETTINGS, max_examples=3)
    @given(st.data())
    def one(data: st.DataObject) -> None:
        model = of_dtype(CASES[name](data.draw)[0], dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # no kernel in ONNX Runtime
            apply_passes(model, PassOptions(use_passes=lambda given: rewrite(given, [name])))

    one()


def of_dtype(model: onnx.ModelProto, dtype: type) -> onnx.ModelProto:
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(dtype), tensor.name))
    model.graph.input[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.CopyFrom(helper.make_empty_tensor_value_info(output.name))
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)
