"""Random graphs proven independent give the same results sample by sample, whole and split."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from random_graphs import BATCH, Graph, grown, planted

from engine.batching.find import find_batching
from engine.signature import Array, BatchAxes

EXAMPLES = settings(
    max_examples=400, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def same_outputs(got: list[Array], want: list[Array]) -> bool:
    return all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
        for a, b in zip(got, want, strict=True)
    )


def rows(arrays: list[Array], axes: tuple[int | None, ...], picks: list[int]) -> list[Array]:
    return [a if axis is None else np.take(a, picks, axis) for a, axis in zip(arrays, axes, strict=True)]


def holds_split(run: Any, x: Array, found: BatchAxes) -> bool:
    """Return whether concatenated parts equal the whole call."""
    whole = run(x)
    parts = [run(*rows([x], found.inputs, picks)) for picks in ([0], [1, 2], [3])]
    joined = [
        parts[0][i] if axis is None else np.concatenate([part[i] for part in parts], axis)
        for i, axis in enumerate(found.outputs)
    ]
    return same_outputs(joined, whole) and all(same_outputs([p], [w]) for p, w in zip(joined, whole, strict=True))


def holds_mixed(run: Any, x: Array, found: BatchAxes) -> bool:
    """Return whether a sample's result is independent of its position and of other samples, with a fixed batch."""
    whole = run(x)
    return all(
        same_outputs(run(*rows([x], found.inputs, picks)), rows(whole, found.outputs, picks))
        for picks in ([3, 2, 1, 0], [1, 1, 3, 3], [2, 2, 2, 2])
    )


def outputs(graph: Graph, draw: Any) -> list[str]:
    names = [name for name in graph.shapes if name != "x"]
    return [names[-1]] if draw(st.booleans()) else draw(st.lists(st.sampled_from(names), min_size=1, unique=True))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("dynamic", [pytest.param(True, marks=pytest.mark.slow), False], ids=["dynamic", "fixed"])
def test_proven_graphs_are_independent(dynamic: bool) -> None:
    seen: Counter[bool] = Counter()

    @EXAMPLES
    @given(st.data())
    def one(data: st.DataObject) -> None:
        graph, axis = grown(data.draw, 5)
        if len(graph.shapes) == 1:
            return
        model = graph.model(axis, dynamic, outputs(graph, data.draw))
        found = find_batching(model, {"x": axis})
        assert found.inputs == (axis,)
        seen[bool(found.independent)] += 1
        assert bool(found.reason) != bool(found.independent)
        if not found.independent:
            return
        running = session(model)
        x = np.random.default_rng(3).normal(size=graph.shapes["x"]).astype(np.float32)
        assert x.shape[axis] == BATCH

        def run(array: Array) -> list[Array]:
            return list(running.run(None, {"x": array}))

        assert (holds_split if dynamic else holds_mixed)(run, x, found)

    one()
    assert seen[True] > 60  # both outcomes occur
    assert seen[False] > 60


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [pytest.param(True, marks=pytest.mark.slow), False], ids=["dynamic", "fixed"])
def test_an_inserted_mixing_operator_is_found(dynamic: bool) -> None:
    @EXAMPLES
    @given(st.data())
    def one(data: st.DataObject) -> None:
        graph, axis = planted(data.draw)
        found = find_batching(graph.model(axis, dynamic, [list(graph.shapes)[-1]]), {"x": axis})
        assert found.independent is False, found.reason

    one()
