"""Planted bottlenecks are reported with nodes and fix; models without one have no report."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import profile_models as models
import pytest
from onnx import helper

from engine import EngineSpec
from toolkit.cli import execute
from toolkit.profile import host
from toolkit.profile.bottlenecks import ShapeFacts, find_bottlenecks
from toolkit.profile.card import prepare, profile_card, profile_prepared
from toolkit.profile.host import OriginalNode, profile_host, work_of
from toolkit.profile.record import Bottleneck, Profile
from toolkit.profile.suggest import suggest

SLOW, COPIES = "slow operator", "copies of non-contiguous data"
CONVERSIONS, RECOMPILATION = "format conversions", "recompilation by changing shapes"


def of_kind(profile: Profile, kind: str) -> list[Bottleneck]:
    return [one for one in profile.bottlenecks if one.kind == kind]


def on_card(path: Path, batch: int = 4, **shapes: tuple[int, ...]) -> Profile:
    return profile_card(EngineSpec(path, batch_size=batch), shapes)


def on_host(path: Path, batch: int = 1, **shapes: tuple[int, ...]) -> Profile:
    return profile_host(EngineSpec(path, batch_size=batch), shapes, runs=3)


# ------------------------------------------------------------------------------------------------------------- card


def test_a_slow_operator_on_the_card(tmp_path: Path) -> None:
    found = on_card(models.slow(tmp_path / "m.onnx"))
    (one,) = found.bottlenecks
    assert (one.kind, one.nodes) == (SLOW, ("recurrent",))
    assert one.text.startswith("LSTM: 1 kernels take 100% of the time at 0% of the roof, mostly launch-bound")
    assert "number of launches" in one.fix
    assert one.seconds == found.compute


def test_copies_on_the_card(tmp_path: Path) -> None:
    found = on_card(models.copies(tmp_path / "m.onnx"))
    (one,) = of_kind(found, COPIES)
    assert set(one.nodes) == {"turn", "split", "join"}
    assert one.seconds == sum(step.seconds for step in found.steps if step.name in one.nodes)
    assert "channel_shuffle, shuffle_split" in one.fix
    assert not any(set(one.nodes) & set(slow.nodes) for slow in of_kind(found, SLOW))
    assert not of_kind(found, CONVERSIONS)
    assert not of_kind(found, RECOMPILATION)


def test_conversions_on_the_card(tmp_path: Path) -> None:
    found = on_card(models.conversions(tmp_path / "m.onnx"))
    (one,) = of_kind(found, CONVERSIONS)
    assert set(one.nodes) == {"to_last", "to_first"}
    assert "2 kernels only change the format (Transpose)" in one.text
    assert "transpose_past, transpose_pair" in one.fix
    assert not of_kind(found, COPIES)


def test_float32_islands_on_the_card(tmp_path: Path) -> None:
    path = models.conversions(tmp_path / "m.onnx")
    (tmp_path / "p.py").write_text('skip_ops = ["LayerNormalization"]\n')
    found = profile_card(EngineSpec(path, batch_size=4, pass_path=tmp_path / "p.py"))
    island = of_kind(found, CONVERSIONS)[-1]
    assert island.nodes == ("norm",)
    assert island.text.startswith("1 kernels stay float32 among float16")
    assert "skip_ops, convert_all, normalized" in island.fix


def test_changing_shapes_on_the_card(tmp_path: Path) -> None:
    found = on_card(models.changing(tmp_path / "m.onnx"), x=(2, 3, 8, 8))
    inputs, nodes = of_kind(found, RECOMPILATION)
    assert inputs.nodes == ("x [batch, 3, height, 8]",)
    assert "every new shape is compiled" in inputs.text
    assert "export with fixed sizes, or pad to a few sizes" in inputs.fix
    assert set(nodes.nodes) >= {"where", "negative"}
    assert not any({"where", "negative"} & set(slow.nodes) for slow in of_kind(found, SLOW))  # their time is unknown
    assert "TopK of a constant, masks" in nodes.fix
    assert " kernels have data-dependent sizes (" in found.notes[-1]
    assert found.notes[-1].endswith(": only their launch is counted")


def test_clean_model_has_no_bottleneck(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = models.clean(tmp_path / "m.onnx", rows=16384)
    assert on_card(path).bottlenecks == ()
    assert execute(["profile", str(path)]) == 0
    assert "no bottleneck found" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------------------- host


def test_clean_model_has_no_bottleneck_on_the_host(tmp_path: Path) -> None:
    """The share of the roof of a product depends on the load of the machine; only that may be reported."""
    found = on_host(models.clean(tmp_path / "m.onnx", rows=512))
    assert {one.kind for one in found.bottlenecks} <= {SLOW}

    def at(times: float) -> tuple[Bottleneck, ...]:
        steps = tuple(replace(step, seconds=times * step.roof) for step in found.steps)
        return find_bottlenecks(replace(found, steps=steps), ShapeFacts((), (), frozenset()))

    assert at(1.5) == ()
    assert {one.kind for one in at(3)} == {SLOW}


def test_copies_on_the_host(tmp_path: Path) -> None:
    found = on_host(models.copies(tmp_path / "m.onnx", size=64), batch=4)
    (one,) = of_kind(found, COPIES)
    assert {"turn", "join"} <= set(one.nodes)
    assert one.seconds == pytest.approx(sum(step.seconds for step in found.steps if step.name in one.nodes))


def test_conversions_on_the_host(tmp_path: Path) -> None:
    found = on_host(models.conversions(tmp_path / "m.onnx", size=56, channels=32), batch=2)
    (one,) = of_kind(found, CONVERSIONS)
    turns = [step for step in found.steps if step.op_type in ("Transpose", "ReorderInput", "ReorderOutput")]
    assert len(turns) >= 2  # ONNX Runtime takes a transpose into its own change of layout
    assert "to_first" in one.nodes
    assert set(one.nodes) == {step.name for step in turns}
    without = {other.what: other.seconds for other in found.what_if}
    label = f"one layout and dtype throughout: without {len(turns)} conversions"
    assert without[label] == pytest.approx(found.compute - sum(step.seconds for step in turns))


def test_a_slow_operator_on_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime sums along the last axis element by element, below half of the roof on any machine."""
    monkeypatch.setattr(host, "measure_roof", lambda: host.Roof(1e15, 1e14))
    nodes = [models.node("Relu", ["x"], "a", "relu"), models.node("CumSum", ["a", "axis"], "y", "running_sum")]
    onnx.save(models.model_of(nodes, {"axis": np.array(1)}, [512, 2048]), tmp_path / "m.onnx")
    (one,) = [one for one in of_kind(on_host(tmp_path / "m.onnx"), SLOW) if "CumSum" in one.text]
    assert one.nodes == ("running_sum",)


def test_changing_shapes_on_the_host(tmp_path: Path) -> None:
    inputs, nodes = of_kind(on_host(models.changing(tmp_path / "m.onnx"), x=(2, 3, 8, 8)), RECOMPILATION)
    assert inputs.nodes == ("x [batch, 3, height, 8]",)
    assert "targets that compile (sdaa, cuda)" in inputs.text
    assert nodes.nodes == ("where",)


def test_no_step_is_above_the_roof_on_the_host(tmp_path: Path) -> None:
    found = on_host(models.clean(tmp_path / "m.onnx", rows=512))
    assert all(step.flops / step.seconds <= found.peak_flops * (1 + 1e-9) for step in found.steps)


def test_unreported_weights_of_product_are_computed(tmp_path: Path) -> None:
    """ONNX Runtime's profiler does not report prepacked weights."""
    weights = {"w": models.floats(96, 64), "b": models.floats(96), "v": models.floats(96, 32)}
    nodes = [models.node("Gemm", ["x", "w", "b"], "a", "gemm", transB=1), models.node("MatMul", ["a", "v"], "y", "mm")]
    onnx.save(models.model_of(nodes, weights, [48, 64]), tmp_path / "m.onnx")
    steps = {step.name: step for step in on_host(tmp_path / "m.onnx").steps}
    assert steps["gemm"].flops == 2 * 48 * 64 * 96
    assert steps["mm"].flops == 2 * 48 * 96 * 32
    assert steps["mm"].bytes == 4 * (48 * 96 + 96 * 32 + 48 * 32)


def test_product_with_reported_bias_only() -> None:
    def reported(*shapes: list[int]) -> list[dict[str, list[int]]]:
        return [{"float": shape} for shape in shapes]

    args = {"input_type_shape": reported([48, 64], [96]), "output_type_shape": reported([48, 96])}
    flops, size = work_of("Gemm", args, OriginalNode("gemm", "Gemm", "", ()))
    assert flops == 2 * 48 * 64 * 96
    assert size == 4 * (48 * 64 + 64 * 96 + 96 + 48 * 96)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_dtype_of_inputs(dtype: str, save_onnx: Callable[..., Path]) -> None:
    kind = "float" if dtype == "float32" else "float16"
    assert on_host(save_onnx(f"net ({kind}[4, 8] x) => ({kind}[4, 8] y) {{ y = Exp(x) }}")).dtype == dtype


# ---------------------------------------------------------------------------------------------------------- what if


def test_layout_prediction_is_exact(tmp_path: Path) -> None:
    path = models.conversions(tmp_path / "m.onnx")
    message = {one.what: one.seconds for one in on_card(path).what_if}
    (tmp_path / "p.py").write_text('layout = "blocked"\n')
    blocked = profile_card(EngineSpec(path, batch_size=4, pass_path=tmp_path / "p.py"))
    assert blocked.compute == message["layout blocked"]
    back = {one.what: one.seconds for one in blocked.what_if}
    assert back["layout plain"] == on_card(path).compute


@pytest.mark.parametrize("inner", [["Sigmoid"], ["HardSigmoid"], ["Tanh", "Sigmoid"]])
def test_fusion_estimate_is_a_bound(inner: list[str], tmp_path: Path) -> None:
    """SiLU and others: the fusion estimate is a lower bound of any rule."""
    names = ["c", *(f"s{i}" for i in range(len(inner)))]
    nodes = [models.node("Conv", ["x", "w"], "c", "conv")]
    nodes += [
        models.node(kind, [a], b, **({"alpha": 1 / 6} if kind == "HardSigmoid" else {}))
        for kind, a, b in zip(inner, names, names[1:], strict=False)
    ]
    nodes += [models.node("Mul", ["c", names[-1]], "y", "gate")]
    path = tmp_path / "m.onnx"
    onnx.save(models.model_of(nodes, {"w": models.floats(16, 8, 3, 3)}, [4, 8, 32, 32], opset=24), path)
    loaded = prepare(EngineSpec(path))
    found = profile_prepared(EngineSpec(path), loaded)
    (bound,) = [one.seconds for one in found.what_if if "fused into those before (at best)" in one.what]
    assert bound <= suggest(loaded).after <= found.compute
    # The bound is reached where an activation really is in the kernel: no loose step is left.
    assert bound == pytest.approx(sum(step.seconds for step in found.steps if step.op_type == "Conv"))


def test_roof_is_below_every_layout(tmp_path: Path) -> None:
    found = on_card(models.copies(tmp_path / "m.onnx"))
    roof = found.what_if[-1]
    assert roof.what == "no launch cost (the roof)"
    assert roof.seconds == pytest.approx(sum(step.roof for step in found.steps))
    assert roof.seconds < min(one.seconds for one in found.what_if[:-1])


# ------------------------------------------------------------------------------------------------------------ names


@pytest.mark.parametrize("target", ["sdaa", "onnx"])
def test_missing_and_duplicate_names(target: str, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], "twice"),
        helper.make_node("Softmax", ["a"], ["b"], "twice"),
        helper.make_node("Exp", ["b"], ["c"]),
        helper.make_node("Softmax", ["c"], ["y"]),
    ]
    onnx.save(models.model_of(nodes, {}, [4, 8]), tmp_path / "m.onnx")
    out = tmp_path / "out.json"
    assert execute(["profile", str(tmp_path / "m.onnx"), "--target", target, "--runs", "2", "--json", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == len({row["name"] for row in rows}) == 4
    assert all(row["name"] for row in rows)


CONTROL = """g (float[2,4] x) => (float[2,4] y) {
    total = ReduceSum <keepdims = 0> (x)
    zero = Constant <value = float {0.0}> ()
    up = Greater (total, zero)
    y = If (up) <
        then_branch = a () => (float[2,4] p) { p = Relu (x) },
        else_branch = b () => (float[2,4] q) { q = Exp (x) }
    >
}"""


@pytest.mark.parametrize("target", ["sdaa", "onnx"])
def test_control_flow(target: str, save_onnx: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["profile", str(save_onnx(CONTROL)), "--target", target, "--runs", "2"]) == 0
    out = capsys.readouterr().out
    assert "If" in out
    assert "nodes have data-dependent sizes" in out


def test_empty_profile(save_onnx: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = save_onnx("g (float[2,4] x) => (float[8] y) { s = Constant <value = int64[1] {8}> ()  y = Reshape (x, s) }")
    assert execute(["profile", str(path), "--suggest"]) == 0
    out = capsys.readouterr().out
    assert "0 s compute" in out
    assert "no rewrite rule saves time on this model" in out


def test_shares_add_up(tmp_path: Path) -> None:
    found = on_card(models.conversions(tmp_path / "m.onnx"))
    assert sum(found.share(step.seconds) for step in found.steps) == pytest.approx(1)
    assert sum(seconds for _, _, seconds in found.operators()) == pytest.approx(found.compute)
    assert replace(found, steps=()).share(1.0) == 0.0
