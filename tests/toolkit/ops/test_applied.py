"""Rewrites of operators spliced into a model compute what the model computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from engine.backends import HostSession
from toolkit.graph.nodes import load_named
from toolkit.ops.applied import rewrites_of, with_rewrites
from toolkit.ops.table import Table, load_table
from toolkit.ops.trial import trial_of


@pytest.fixture
def table(tmp_path: Path) -> Table:
    path = tmp_path / "own.yaml"
    text = "schema_version: 1\ntarget: sdaa\noperators: {Gelu: {level: missing, source: us}}\ndtypes: {}\n"
    path.write_text(text, encoding="utf-8")
    return load_table("sdaa", path)


def gelus(file: Path) -> Path:
    """Write two products with a Gelu after each."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.normal(0, 1, (4, 4)).astype(np.float32), name) for name in ("a", "b")]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"], "first"),
        helper.make_node("Gelu", ["p"], ["q"], "gelu_1"),
        helper.make_node("MatMul", ["q", "b"], ["r"], "second"),
        helper.make_node("Gelu", ["r"], ["y"], "gelu_2"),
    ]
    ends = [helper.make_tensor_value_info(name, 1, ["N", 4]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), file)
    return file


def test_every_node_is_replaced(tmp_path: Path, table: Table) -> None:
    file = gelus(tmp_path / "g.onnx")
    found = rewrites_of(file, table, trial_of("sdaa"), {})
    assert sorted(found) == ["gelu_1", "gelu_2"]
    made = with_rewrites(load_named(file), found)
    onnx.checker.check_model(made, full_check=True)
    assert "Gelu" not in {node.op_type for node in made.graph.node}
    names = [output for node in made.graph.node for output in node.output]
    assert len(set(names)) == len(names)
    x = np.random.default_rng(1).normal(0, 1, (3, 4)).astype(np.float32)
    (theirs,), (ours,) = HostSession(file).run([x]), HostSession(made).run([x])
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_model_that_lacks_nothing_stays(tmp_path: Path) -> None:
    file = gelus(tmp_path / "g.onnx")
    assert rewrites_of(file, load_table("sdaa"), trial_of("sdaa"), {}) == {}
    made = with_rewrites(load_named(file), {})
    assert [node.op_type for node in made.graph.node] == ["MatMul", "Gelu", "MatMul", "Gelu"]
