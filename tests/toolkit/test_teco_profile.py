"""teco profile: times of nodes on card and host, bottlenecks by name, comparison, suggestions, and every file."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine.base import ConfigError, EngineSpec
from engine.passes.options import PassOptions
from engine.passes.runner import apply_passes
from toolkit.cli import execute
from toolkit.profile.card import prepare, profile_card
from toolkit.profile.record import read_profile
from toolkit.profile.suggest import suggest

Run = Callable[..., str]


def model_of(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], shape: list[int | str]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made, strict_mode=True)


@pytest.fixture
def shuffle(tmp_path: Path) -> Path:
    """A ShuffleNet block of dynamic batch."""
    rng = np.random.default_rng(1)
    weights = {
        "into": np.array([0, 2, 4, 6, 6]),
        "back": np.array([0, 8, 6, 6]),
        "parts": np.array([4, 4]),
        "w": rng.standard_normal((4, 4, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Reshape", ["x", "into"], ["a"], "into"),
        helper.make_node("Transpose", ["a"], ["b"], "turn", perm=[0, 2, 1, 3, 4]),
        helper.make_node("Reshape", ["b", "back"], ["c"], "back"),
        helper.make_node("Split", ["c", "parts"], ["p", "q"], "split", axis=1),
        helper.make_node("Conv", ["q", "w"], ["r"], "conv"),
        helper.make_node("Concat", ["p", "r"], ["y"], "join", axis=1),
    ]
    path = tmp_path / "shuffle.onnx"
    onnx.save(model_of(nodes, weights, ["batch", 8, 6, 6]), path)
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: object) -> str:
        assert execute(["profile", *map(str, words)]) == 0
        return capsys.readouterr().out

    return call


def test_the_card_is_simulated_and_says_so(shuffle: Path, run: Run) -> None:
    out = run(shuffle, "--batch_size", 8)
    assert "float16, batch 2" in out
    assert "(simulated)" in out
    assert "measured" not in out
    assert "copies of non-contiguous data: 3 kernels only move data (Concat, Split, Transpose)" in out
    assert "what if: layout blocked" in out


def test_the_times_are_those_of_the_cost_model(shuffle: Path) -> None:
    found = profile_card(EngineSpec(shuffle, batch_size=8))
    assert [step.op_type for step in found.steps] == ["Transpose", "Split", "Conv", "Concat"]
    conv = found.steps[2]
    assert conv.flops == 2 * 2 * 36 * 4 * 4
    assert conv.bytes == 2 * (2 * 36 * 4 * 2 + 16)
    assert conv.bound == "launch"
    assert 0 < conv.roof_share < 0.5
    assert found.call == pytest.approx(found.copy_in + found.compute + found.copy_out)


def test_the_host_is_measured(shuffle: Path, run: Run, tmp_path: Path) -> None:
    out = run(shuffle, "--target", "onnx", "--runs", 3, "--json", tmp_path / "h.json", "--trace", tmp_path / "t.json")
    assert "(measured)" in out
    assert "simulated" not in out
    found = read_profile(tmp_path / "h.json")
    assert {"Transpose", "Split", "Concat"} <= {step.op_type for step in found.steps}
    assert 0 < found.compute <= found.call * 1.5
    names = {event["args"]["name"] for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"][:3]}
    assert names == {"framework (measured)", "runtime (measured)", "device (measured)"}


def test_every_file(shuffle: Path, run: Run, tmp_path: Path) -> None:
    files = {kind: tmp_path / f"out.{kind}" for kind in ("json", "csv", "html", "trace")}
    run(shuffle, "--suggest", *(word for kind, path in files.items() for word in (f"--{kind}", path)))
    data = json.loads(files["json"].read_text())
    assert data["schema_version"] == 1
    assert data["simulated"] is True
    assert [gain["rule"] for gain in data["suggestion"]["chosen"]] == [
        "channel_shuffle",
        "shuffle_split",
        "gather_conv",
    ]
    rows = list(csv.DictReader(files["csv"].read_text().splitlines()))
    assert [row["name"] for row in rows] == [step["name"] for step in data["steps"]]
    assert {row["kind"] for row in rows} == {"simulated"}
    page = files["html"].read_text()
    assert "Roofline" in page
    assert "http" not in page.replace("http-equiv", "")
    spans = [event for event in json.loads(files["trace"].read_text())["traceEvents"] if event["ph"] == "X"]
    assert {span["pid"] for span in spans} == {1, 2, 3}
    device = [span for span in spans if span["pid"] == 3]
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-6 for a, b in pairwise(device))


def test_apply_writes_a_pass_that_saves_what_was_predicted(shuffle: Path, run: Run, tmp_path: Path) -> None:
    before, made = tmp_path / "before.json", tmp_path / "my_pass.py"
    out = run(shuffle, "--apply", made, "--json", before)
    assert f"wrote {made}" in out
    assert "less (simulated)" in out
    predicted = suggest(prepare(EngineSpec(shuffle)))
    after = profile_card(EngineSpec(shuffle, pass_path=made))
    assert after.compute == pytest.approx(predicted.after)
    assert after.compute < read_profile(before).compute
    assert "Transpose" in run(shuffle, "--pass_path", made, "--against", before)
    with pytest.raises(ConfigError, match=r"my_pass\.py exists; choose another name"):
        run(shuffle, "--apply", made)


def test_apply_keeps_the_pass_file_it_ran_with(shuffle: Path, run: Run, tmp_path: Path) -> None:
    first, made = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text('layout = "blocked"\nskip_ops = ["Concat"]\n')
    run(shuffle, "--pass_path", first, "--apply", made)
    options = PassOptions.load(made)
    assert (options.layout, options.skip_ops) == ("blocked", frozenset({"Concat"}))
    assert len(apply_passes(onnx.load(shuffle), options).graph.node) == 3


def test_format_conversions_and_changing_shapes_are_named(run: Run, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], "to_last", perm=[0, 2, 3, 1]),
        helper.make_node("Sigmoid", ["a"], ["b"], "act"),
        helper.make_node("Transpose", ["b"], ["y"], "to_first", perm=[0, 3, 1, 2]),
    ]
    path = tmp_path / "turned.onnx"
    onnx.save(model_of(nodes, {}, ["batch", 3, "height", 8]), path)
    out = run(path, "--shape", "x=2,3,8,8", "--suggest")
    assert "format conversions: 2 kernels only change the format (Transpose)" in out
    assert "recompilation by changing shapes: inputs of changing shape: x [batch, 3, height, 8]" in out
    assert "transpose_past" in out
    with pytest.raises(ConfigError, match=r"input 'x' has dynamic dimensions"):
        run(path)


def test_what_cannot_be_done_is_one_line(shuffle: Path, run: Run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"target 'cuda' does not tell the time of single nodes"):
        run(shuffle, "--target", "cuda")
    damaged = tmp_path / "damaged.json"
    damaged.write_text('{"schema_version": 1')
    with pytest.raises(ConfigError, match=r"damaged\.json cannot be read"):
        run(shuffle, "--against", damaged)
    damaged.write_text('{"schema_version": 9}')
    with pytest.raises(ConfigError, match="no profile of schema_version 1"):
        run(shuffle, "--against", damaged)
    host = tmp_path / "host.json"
    run(shuffle, "--target", "onnx", "--runs", 2, "--json", host)
    with pytest.raises(ConfigError, match="host and card times are never compared"):
        run(shuffle, "--against", host)
    plain = tmp_path / "plain.onnx"
    onnx.save(model_of([helper.make_node("Relu", ["x"], ["y"], "relu")], {}, [1, 4]), plain)
    with pytest.raises(ConfigError, match="no rewrite rule saves time"):
        run(plain, "--apply", tmp_path / "none.py")
