"""Faults planted at random nodes are found by name, in about k * log2(n) runs."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from planted import NETS, plant_mistakes, plant_overflow, write, write_data

from engine import EngineSpec, open_engine
from engine.base import ConfigError, DataError, ModelError
from engine.passes.options import PassOptions
from model_config.results import Verdict
from toolkit.cli import execute
from toolkit.fix.fixing import fix
from toolkit.overflow import find_overflow


def most_runs(culprits: int, nodes: int) -> int:
    """What the search may take, with the three runs before it, the two after it and the baseline's own."""
    return math.ceil((culprits + 2) * (math.log2(nodes) + 1)) + 6


@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize("count", [1, 3])
def test_nodes_that_overflow_are_found_and_stay_float32(kind: str, count: int, tmp_path: Path) -> None:
    model, shape = NETS[kind](1)
    planted = plant_overflow(model, count, seed=count)
    path = write(model, tmp_path / "model.onnx")
    data = write_data(tmp_path / "data.npz", shape)
    found = fix(path, data, "close", tmp_path / "out", tolerance=0.02)
    assert (found.verdict, found.culprits) == ("fixed", planted)
    assert len(found.trials) <= most_runs(len(planted), len(found.nodes))
    assert found.before.verdict is Verdict.FAIL
    assert found.after is not None
    assert found.mixed is not None
    assert abs(found.after.relative_difference) < 0.02 > abs(found.mixed.relative_difference)
    assert found.pass_file is not None
    assert PassOptions.load(found.pass_file).skip_ops == set(planted)
    assert found.cost is not None
    assert found.cost.float16 < min(found.cost.fixed, found.cost.float32)
    slow = [note for note in found.notes if "all float32 would be faster" in note]
    assert bool(slow) == (found.cost.fixed > found.cost.float32)
    assert found.model_file is not None
    kinds = {tensor.data_type for tensor in onnx.load(str(found.model_file)).graph.initializer}
    assert {onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT} <= kinds
    with open_engine("onnx", EngineSpec(found.model_file)) as engine:  # the file runs by itself
        outputs = engine(np.load(data)["x"][:2].astype(engine.inputs[0].dtype))
    assert all(np.isfinite(a).all() for a in (outputs if isinstance(outputs, list) else [outputs]))


@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize("count", [1, 3])
def test_nodes_that_differ_from_the_baseline_are_found(kind: str, count: int, tmp_path: Path) -> None:
    model, shape = NETS[kind](2)
    right = write(model, tmp_path / "right.onnx")
    planted = plant_mistakes(model, count, seed=count)
    wrong = write(model, tmp_path / "wrong.onnx")
    found = fix(wrong, write_data(tmp_path / "data.npz", shape), "close", tmp_path, tolerance=1e-3, baseline=right)
    assert (found.verdict, found.culprits) == ("model", planted)
    assert len(found.trials) <= most_runs(count, len(found.nodes))
    assert found.after is not None
    assert found.after.metric == pytest.approx(1.0, abs=1e-4)


def test_overflow_says_where_and_by_which_sample(tmp_path: Path) -> None:
    from toolkit.fix.fixing import open_samples
    from toolkit.intermediates import load_named

    model, shape = NETS["conv"](1)
    planted = plant_overflow(model, 1, seed=1)
    path = write(model, tmp_path / "model.onnx")
    data = np.random.default_rng(5).normal(size=(10, *shape)).astype(np.float32)
    data[:7] *= 1e-4
    np.savez(tmp_path / "data.npz", x=data)
    samples = open_samples(load_named(path), tmp_path / "data.npz", 4, None)
    found = {one.node.name: one for one in find_overflow(path, samples, 4)}
    first = found[planted[0]]
    assert first.overflows
    assert first.trigger == "data.npz[7]"
    assert first.counts["beyond"] > 0
    assert first.counts["inf"] + first.counts["saturated"] == pytest.approx(first.counts["beyond"], rel=0.01)
    assert first.largest > 65504
    assert not found[planted[1]].overflows
    assert found[planted[1]].inherited
    assert execute(["overflow", str(path), "--data", str(tmp_path / "data.npz"), "--csv", str(tmp_path / "o.csv")]) == 1
    assert planted[0] in (tmp_path / "o.csv").read_text()


def test_a_model_that_passes_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, shape = NETS["conv"](1)
    path = write(model, tmp_path / "model.onnx")
    data = write_data(tmp_path / "data.npz", shape)
    words = ["fix", str(path), "--data", str(data), "--metric", "close", "--tolerance", "0.02", "--out", str(tmp_path)]
    assert execute([*words, "--json", str(tmp_path / "fix.json")]) == 0
    assert "passes the gate as it is" in capsys.readouterr().out
    assert json.loads((tmp_path / "fix.json").read_text())["verdict"] == "passes"
    assert not list(tmp_path.glob("*_pass.py"))


def test_nodes_without_names_get_names_that_the_pass_file_has(tmp_path: Path) -> None:
    model, shape = NETS["conv"](1)
    plant_overflow(model, 1, seed=1)
    for node in model.graph.node:
        node.name = "Relu" if node.op_type == "Conv" else ""
    path = write(model, tmp_path / "model.onnx")
    found = fix(path, write_data(tmp_path / "data.npz", shape), "close", tmp_path, tolerance=0.02)
    assert (found.verdict, len(found.culprits)) == ("fixed", 2)
    assert (tmp_path / "model_named.onnx").is_file()


def test_what_cannot_be_done_is_one_clear_line(tmp_path: Path) -> None:
    model, shape = NETS["conv"](1)
    path = write(model, tmp_path / "model.onnx")
    data = write_data(tmp_path / "data.npz", shape)
    with pytest.raises(ConfigError, match="unknown metric 'f1'; metrics: top1"):
        fix(path, data, "f1", tmp_path)
    with pytest.raises(DataError, match="needs labels, and there are none"):
        fix(path, data, "top1", tmp_path)
    other, _ = NETS["conv"](3)
    other.graph.node[3].name = "renamed"
    with pytest.raises(ModelError, match="is not the same in both models"):
        fix(path, data, "close", tmp_path, baseline=write(other, tmp_path / "other.onnx"))
    np.savez(tmp_path / "bad.npz", z=np.zeros((2, 3)))
    np.savez(tmp_path / "bad2.npz", x=np.zeros((2, 3)))
    with pytest.raises(DataError, match="it holds: z"):
        fix(path, tmp_path / "bad.npz", "close", tmp_path)
    with pytest.raises(DataError, match="the model takes float32 Nx3x12x12"):
        fix(path, tmp_path / "bad2.npz", "close", tmp_path)


@pytest.mark.parametrize(
    ("mistake", "name"),
    [
        (lambda x: x[:, ::-1], "channel order: BGR"),
        (lambda x: x.swapaxes(2, 3), "layout: height and width exchanged"),
        (lambda x: (x - np.float32([0.485, 0.456, 0.406]).reshape(3, 1, 1)) / np.float32([0.229, 0.224, 0.225]).reshape(
            3, 1, 1
        ), "mean and std: 0 to 1, nothing subtracted"),
    ],
)  # fmt: skip
def test_mistakes_in_what_is_fed_are_named(mistake: object, name: str, tmp_path: Path) -> None:
    model, shape = NETS["conv"](1)
    path = write(model, tmp_path / "model.onnx")
    x = np.random.default_rng(0).random(size=(16, *shape)).astype(np.float32)
    with open_engine("onnx", EngineSpec(path)) as engine:
        np.savez(tmp_path / "golden.npz", out=engine(x))
    np.savez(tmp_path / "data.npz", x=np.ascontiguousarray(mistake(x)))  # type: ignore[operator]
    words = ["fix", str(path), "--data", str(tmp_path / "data.npz"), "--golden", str(tmp_path / "golden.npz")]
    assert execute([*words, "--json", str(tmp_path / "fix.json")]) == 0
    assert name in json.loads((tmp_path / "fix.json").read_text())["lead"]


def test_a_missing_softmax_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, shape = NETS["conv"](1)
    path = write(model, tmp_path / "model.onnx")
    data = write_data(tmp_path / "data.npz", shape)
    with open_engine("onnx", EngineSpec(path)) as engine:
        logits = engine(np.load(data)["x"])
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    np.savez(tmp_path / "golden.npz", out=powers / powers.sum(axis=1, keepdims=True))
    words = ["fix", str(path), "--data", str(data), "--golden", str(tmp_path / "golden.npz")]
    assert execute(words) == 0
    assert "this explains it: missing softmax" in capsys.readouterr().out
    np.savez(tmp_path / "golden.npz", out=-logits)
    assert execute(words) == 1
    assert "no usual suspect explains it" in capsys.readouterr().out
