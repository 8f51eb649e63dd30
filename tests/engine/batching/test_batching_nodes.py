"""ONNX's node tests with each axis of each input as the batch: proven results hold numerically."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from onnx_node_cases import node_cases

from engine.batching.find import find_batching
from engine.onnx.view import graph_inputs
from engine.signature import Array, BatchAxes

pytestmark = pytest.mark.slow

NEWEST_IR, NEWEST_OPSET = 11, 27
"""Newest versions that ONNX Runtime supports."""
ENOUGH = 1500
"""Minimum number of proofs of each form that are checked by running the node."""


@dataclass(frozen=True)
class Sample:
    """A model of one node, its inputs, and the axis and input used as the batch."""

    name: str
    model: onnx.ModelProto
    inputs: list[Array]
    which: int
    axis: int

    @property
    def size(self) -> int:
        return int(self.inputs[self.which].shape[self.axis])


@pytest.fixture(scope="module")
def cases() -> list[tuple[str, onnx.ModelProto, list[Array]]]:
    found = []
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(), np.errstate(all="ignore"):
        patch.setenv("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")
        warnings.simplefilter("ignore")  # from numpy and onnx while they compute expected values
        for case in node_cases():
            assert case.model is not None
            assert case.data_sets is not None
            model = onnx.ModelProto()
            model.CopyFrom(case.model)
            inputs = list(case.data_sets[0][0])
            kinds = {info.type.WhichOneof("value") for info in graph_inputs(model)}
            if kinds == {"tensor_type"} and len(inputs) == len(graph_inputs(model)):
                found.append((case.name, *parameters_fixed(model, [np.asarray(one) for one in inputs])))
    return found


def parameters_fixed(model: onnx.ModelProto, inputs: list[Array]) -> tuple[onnx.ModelProto, list[Array]]:
    """Return a model whose small inputs after the first are constants (axes, shapes, scales)."""
    model.ir_version = min(model.ir_version, NEWEST_IR)
    for entry in model.opset_import:
        entry.version = entry.version if entry.domain else min(entry.version, NEWEST_OPSET)
    left = []
    for array, info in zip(inputs, list(model.graph.input), strict=True):
        if left and array.ndim <= 1 and array.dtype != object and array.dtype.kind != "U":
            model.graph.initializer.append(numpy_helper.from_array(array, info.name))
            model.graph.input.remove(info)
        else:
            left.append(array)
    return model, left


def samples(cases: list[tuple[str, onnx.ModelProto, list[Array]]]) -> Iterator[Sample]:
    for name, model, inputs in cases:
        for which, array in enumerate(inputs):
            yield from (Sample(name, model, inputs, which, axis) for axis, n in enumerate(array.shape) if n)


def opened(sample: Sample) -> onnx.ModelProto:
    """Return the model with a symbolic axis, in every input with the same size there."""
    model = onnx.ModelProto()
    model.CopyFrom(sample.model)
    for info, array in zip(graph_inputs(model), sample.inputs, strict=True):
        if array.ndim > sample.axis and array.shape[sample.axis] == sample.size:
            info.type.tensor_type.shape.dim[sample.axis].dim_param = "batch"
    for info in model.graph.output:
        info.type.tensor_type.ClearField("shape")
    return model


def rows(arrays: list[Array], axes: tuple[int | None, ...], picks: list[int]) -> list[Array]:
    return [a if axis is None else np.take(a, picks, axis) for a, axis in zip(arrays, axes, strict=True)]


def same(got: list[Array], want: list[Array]) -> bool:
    return all(a.shape == b.shape and a.dtype == b.dtype and close(a, b) for a, b in zip(got, want, strict=True))


def close(a: Array, b: Array) -> bool:
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    tight = 1e-3 if a.dtype == np.float16 else 1e-4
    return np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=tight, atol=tight / 10, equal_nan=True)


def holds(run: Any, sample: Sample, found: BatchAxes, dynamic: bool) -> bool:
    """Return whether permuted, repeated and (for a dynamic batch) single samples give the same results."""
    whole, count = run(sample.inputs), sample.size
    orders = [list(range(count))[::-1], [0] * count]
    if dynamic:
        orders.append([*range(count), 0])
        parts = [run(rows(sample.inputs, found.inputs, [i])) for i in range(count)]
        joined = [
            parts[0][i] if axis is None else np.concatenate([part[i] for part in parts], axis)
            for i, axis in enumerate(found.outputs)
        ]
        if not same(joined, whole):
            return False
    return all(
        same(run(rows(sample.inputs, found.inputs, order)), rows(whole, found.outputs, order)) for order in orders
    )


@pytest.mark.long
@pytest.mark.parametrize("dynamic", [True, False], ids=["dynamic", "fixed"])
def test_proven_nodes_are_independent(cases: list[tuple[str, onnx.ModelProto, list[Array]]], dynamic: bool) -> None:
    seen: Counter[str] = Counter()
    wrong = []
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    for sample in samples(cases):
        model = opened(sample) if dynamic else sample.model
        names = [info.name for info in graph_inputs(model)]
        found = find_batching(model, {names[sample.which]: sample.axis})
        seen[{True: "proven", False: "depends", None: "unknown"}[found.independent]] += 1
        if not found.independent:
            continue
        try:
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )

            def run(arrays: list[Array], session: Any = session, names: list[str] = names) -> list[Array]:
                return list(session.run(None, dict(zip(names, arrays, strict=True))))

            run(sample.inputs)
        except Exception:  # noqa: BLE001 - nodes that ONNX Runtime cannot run are skipped
            seen["refused"] += 1
            continue
        seen["checked"] += 1
        if not holds(run, sample, found, dynamic):
            wrong.append((sample.name, sample.which, sample.axis, found))
    assert wrong == []
    assert seen["checked"] > ENOUGH, seen
    assert min(seen["depends"], seen["unknown"]) > ENOUGH / 3, seen
