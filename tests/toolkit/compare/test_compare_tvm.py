"""Comparison of every node with target tvm, which runs a copy of the model with more outputs."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
from onnx import NodeProto
from support import SaveOnnx

from engine.backends.tvm_rules import _RULES, Rewriter
from toolkit.compare.nodes import compare_nodes
from toolkit.graph.trace import traced

pytestmark = pytest.mark.skipif(find_spec("tvm") is None, reason="tvm is not installed")


def test_the_first_node_that_differs_is_named(save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_onnx("g (float[batch,4] x) => (float[batch,4] y) { r = Relu(x) s = Softplus(r) e = Exp(s) y = Neg(e) }")
    x = [np.random.default_rng(0).random((3, 4), np.float32)]
    with traced(path, "onnx", batch=3) as a, traced(path, "tvm", batch=3) as b:
        assert not b.note
        found = compare_nodes(a, b, x)
        assert [row.tensor for row in found.rows if row.accumulated] == ["r", "s", "e", "y"]
        assert found.code == 0
        assert list(b.run(x, only=["s"])) == ["s"]

    def wrong(self: Rewriter, node: NodeProto) -> bool:
        x, kind = node.input[0], self._kind(node.input[0])
        self._add("Mul", [x, self._constant(1.5, kind)], node.output)
        return True

    monkeypatch.setitem(_RULES, "Softplus", wrong)
    monkeypatch.setenv("TECO_CACHE_DIR", str(path.parent / "cache"))
    warned = pytest.warns(UserWarning, match="output 's'")  # when a plan is compiled
    with traced(path, "onnx", batch=3) as a, traced(path, "tvm", batch=3) as b, warned:
        found = compare_nodes(a, b, x)
    assert found.code == 1
    assert found.first_bad is not None
    assert found.first_bad.tensor == "s"
