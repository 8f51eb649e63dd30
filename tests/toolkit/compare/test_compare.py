from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import DIGITS, SaveOnnx

from engine import ConfigError, TargetError
from toolkit.cli import execute
from toolkit.compare.nodes import Comparison, compare_nodes
from toolkit.compare.replay import Replay
from toolkit.compare.report import report
from toolkit.graph.inputs import random_inputs
from toolkit.graph.nodes import MEMORY
from toolkit.graph.trace import traced

DYN = DIGITS / "digits_dyn.onnx"
SHAPE = {"input": (1, 3, 32, 32)}


def compared(
    path: Path, a: str = "onnx", b: str = "sdaa", memory: int = MEMORY, **shapes: tuple[int, ...]
) -> Comparison:
    with traced(path, a, shapes=shapes) as one, traced(path, b, shapes=shapes) as other:
        return compare_nodes(one, other, random_inputs(path, 0, shapes=shapes), memory=memory)


def test_correct_model_has_no_bad_node() -> None:
    found = compared(DYN, **SHAPE)
    assert found.first_bad is None
    rows = [row for row in found.rows if row.accumulated]
    assert len(rows) == 14
    # what each node adds is about float16's rounding; what it inherits grows along the graph
    assert all(row.isolated and row.isolated.diff2 < 6e-4 for row in rows)
    assert rows[-1].accumulated
    assert rows[-1].isolated
    assert rows[-1].accumulated.diff2 > rows[-1].isolated.diff2
    apart = {row.node.name: row for row in found.rows}
    assert apart["node_Conv_133"].status == "fused into node_relu"
    assert [node.name for node in apart["node_relu"].fused] == ["node_Conv_133"]
    assert all(row.status.startswith("fused into ") for row in found.rows if not row.accumulated)


def test_same_engine_has_no_difference() -> None:
    for row in compared(DYN, "onnx", "onnx", **SHAPE).rows:
        assert row.accumulated
        assert row.isolated
        assert (row.accumulated.diff2, row.accumulated.diff3_max) == (0, 0)
        assert row.isolated.diff2 < 1e-6


def test_float32_on_card_equals_baseline() -> None:
    with traced(DYN, "onnx", shapes=SHAPE) as a, traced(DYN, "sdaa", dtype="float32", shapes=SHAPE) as b:
        found = compare_nodes(a, b, random_inputs(DYN, 0, shapes=SHAPE))
    assert found.limit == 1e-4
    assert all(row.accumulated and row.accumulated.diff2 < 1e-6 for row in found.rows)
    assert all(row.isolated and row.isolated.diff2 < 1e-6 for row in found.rows)


def test_groups_return_the_same_rows() -> None:
    whole, parts = compared(DYN, **SHAPE), compared(DYN, memory=200_000, **SHAPE)
    assert any("groups of nodes" in note for note in parts.notes)
    assert len(whole.rows) == len(parts.rows)
    for one, other in zip(whole.rows, parts.rows, strict=True):
        assert (one.tensor, one.status, one.value_stats) == (other.tensor, other.status, other.value_stats)
        if one.isolated and one.accumulated:
            assert other.isolated
            assert other.accumulated
            assert one.isolated.diff2 == pytest.approx(other.isolated.diff2, rel=1e-2)
            assert one.accumulated.diff2 == pytest.approx(other.accumulated.diff2, rel=1e-2)


OVERFLOW = """
net (float[1, 64] x) => (float[1, 64] y)
<float[1] big = {600.0}, float[1] small = {0.00001}>
{
  a = Mul(x, big)
  b = Mul(a, a)
  c = ReduceMean <axes = [1]> (b)
  d = Sqrt(c)
  e = Div(a, d)
  f = Mul(e, small)
  y = Mul(f, small)
}
"""


def test_overflow_is_located(save_onnx: SaveOnnx) -> None:
    found = compared(save_onnx(OVERFLOW))
    by_name = {row.tensor: row for row in found.rows}
    assert found.first_bad is by_name["b"]
    assert by_name["b"].value_stats
    assert by_name["b"].value_stats.infinite > 0
    assert by_name["a"].value_stats
    assert by_name["a"].value_stats.infinite == 0
    # what follows inherits; by itself the mean overflows too, the division does not
    assert by_name["e"].isolated
    assert by_name["e"].isolated.mismatched == 0
    assert by_name["e"].accumulated
    assert by_name["e"].accumulated.diff2 > 0.5
    assert by_name["y"].value_stats
    assert by_name["y"].value_stats.flushed == 64


def test_isolated_error_locates_wrong_node() -> None:
    """The judged model has one scaled weight; the baseline is the correct model."""
    names = [node.name for node in onnx.load(DYN).graph.node if node.op_type == "Conv"]
    for index in (1, 4, 7):
        with traced(DYN, "onnx", shapes=SHAPE) as a, traced(DYN, "onnx", shapes=SHAPE) as b:
            assert b.model
            node = next(node for node in b.model.graph.node if node.name == names[index])
            b.weights[node.input[1]] = b.weights[node.input[1]] * np.float32(1.05)
            found = compare_nodes(a, b, random_inputs(DYN, 0, shapes=SHAPE), limit=1e-3)
        assert found.first_isolated
        assert found.first_isolated.node.name == names[index]
        bad = [row for row in found.rows if row.isolated and row.isolated.diff2 > 1e-3]
        assert len(bad) == 1
        worse = [row for row in found.rows if row.accumulated and row.accumulated.diff2 > 1e-3]
        assert len(worse) > 1


def test_replay_reads_baseline_values(save_onnx: SaveOnnx) -> None:
    path = save_onnx("net (float[2] x) => (float[2] y) { a = Neg(x) b = Exp(a) c = Shape(b) y = Add(b, a) }")
    with traced(path, "onnx") as found:
        replay = Replay(found, found.origin)
        values = {"a": np.array([1, 2], np.float32), "b": np.array([5, 6], np.float32), "y": np.zeros(2, np.float32)}
        alone = replay.run([np.array([7, 8], np.float32)], values)
        assert alone["a"].tolist() == [-7, -8]
        np.testing.assert_allclose(alone["b"], np.exp([1, 2]), rtol=1e-5)
        assert alone["y"].tolist() == [6, 8]
        assert "c" not in alone  # follows from shapes
        assert replay.needs(["y"]) == {"a", "b"}


def test_control_flow_and_dynamic_shapes(save_onnx: SaveOnnx) -> None:
    path = save_onnx(
        """
        net (float[2, 4] x) => (float[2, 4] y, int64[2, M] z)
        {
          s = SplitToSequence <axis = 0> (x)
          j = ConcatFromSequence <axis = 0> (s)
          m = ReduceMax <keepdims = 0> (x)
          c = Greater(m, m)
          k = If (c) <then_branch = then () => (float[2, 4] p) { p = Relu(j) },
                      else_branch = other () => (float[2, 4] q) { q = Neg(j) }>
          y = Abs(k)
          z = NonZero(x)
        }
        """
    )
    found = compared(path)
    status = {row.tensor: row.status for row in found.rows}
    assert status["s"] == "sequence, not an array of numbers"
    assert {status[name] for name in ("j", "m", "k", "y", "z")} == {"compared"}
    assert any("bodies" in note for note in found.notes)
    assert any("1 sequence tensor" in note for note in found.notes)
    assert found.first_bad is None
    # values too small for float16 become zero there, so fewer are found
    with traced(path, "onnx") as a, traced(path, "sdaa") as b:
        tiny = compare_nodes(a, b, [np.full((2, 4), 1e-9, np.float32)])
    assert next(row for row in tiny.rows if row.tensor == "z").status.startswith("shape [2, 0] is not")


def test_other_shape_is_bad(save_onnx: SaveOnnx) -> None:
    path = save_onnx("net (float[4] x) => (int64[1, M] z) { z = NonZero(x) }")
    with traced(path, "onnx") as a, traced(path, "sdaa") as b:
        found = compare_nodes(a, b, [np.array([1, 2, 3, 1e-9], np.float32)])
    assert found.code == 1
    made = report(found, "teco compare", "m", {})
    assert made.lead == "first bad node: NonZero_0 (NonZero), shape [1, 3] is not the baseline's [1, 4]"
    assert made.bad == {0}
    assert made.rows[0]["shape"] == [1, 3]
    assert made.charts[0].paths(made.charts[0].lines[0])  # at the upper edge


def test_limit_is_that_of_coarser_precision(save_onnx: SaveOnnx) -> None:
    path = save_onnx("net (float16[1, 64] x) => (float16[1, 64] y) { y = Exp(x) }")
    with traced(path, "onnx") as a, traced(path, "sdaa", dtype="float32") as b:
        assert (a.dtype, b.dtype) == ("float16", "float32")
        found = compare_nodes(a, b, random_inputs(path))
    assert found.rows[0].accumulated
    assert found.rows[0].accumulated.diff2 > 1e-4  # rounding of a, not an error of b
    assert found.code == 0


def test_sessions_are_closed_after_each_run() -> None:
    with traced(DYN, "onnx", shapes=SHAPE) as a, traced(DYN, "sdaa", shapes=SHAPE) as b:
        compare_nodes(a, b, random_inputs(DYN, 0, shapes=SHAPE))
        assert vars(a).get("_session") is None  # each holds the weights once more
        assert vars(b).get("_session") is None


def test_engines_that_show_only_outputs(save_onnx: SaveOnnx) -> None:
    found = compared(save_onnx(OVERFLOW), b="null")
    assert [row.tensor for row in found.rows] == ["y"]
    assert any("does not expose" in note for note in found.notes)


def test_compare_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], save_onnx: SaveOnnx) -> None:
    path = save_onnx(OVERFLOW)
    files = {form: tmp_path / f"out/report.{form}" for form in ("json", "csv", "html")}
    flags = [word for form, file in files.items() for word in (f"--{form}", str(file))]
    assert execute(["compare", str(path), *flags]) == 1
    printed = capsys.readouterr().out
    assert "first bad node: Mul_1 (Mul), diff2 inf isolated, limit 0.01" in printed
    made = json.loads(files["json"].read_text())
    assert made["schema_version"] == 1
    assert made["first_bad"] == {"name": "Mul_1", "op": "Mul", "module": "", "tensor": "b", "fused": []}
    assert made["rows"][1]["diff2"] == "inf"
    assert len(files["csv"].read_text().splitlines()) == 8
    page = files["html"].read_text()
    assert "<polyline" in page
    assert "Mul_1" in page
    assert "http" not in page.replace('http-equiv="Content-Security-Policy"', "")
    assert execute(["compare", str(DYN), "--shape", "input=1,3,32,32", "--threshold", "0.5", "--no_isolated"]) == 0
    assert "no bad node: 14 tensors" in capsys.readouterr().out


def test_bad_arguments() -> None:
    with pytest.raises(ConfigError, match="not a shape; write INPUT=1,3,224,224"):
        execute(["compare", str(DYN), "--shape", "input=a"])
    with pytest.raises(ConfigError, match="'0'"):
        execute(["compare", str(DYN), "--memory", "0"])
    with pytest.raises(TargetError, match="did you mean 'sdaa'"):
        execute(["compare", str(DYN), "--shape", "input=1,3,32,32", "--b", "sda"])
