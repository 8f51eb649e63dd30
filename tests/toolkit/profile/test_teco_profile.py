"""teco profile: times of nodes on card and host, comparison, suggestions, and every file."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from profile_models import copies, floats, model_of, node

from engine import ConfigError, EngineSpec
from engine.passes import PassOptions, apply_passes
from toolkit.cli import execute
from toolkit.profile.card import prepare, profile_card
from toolkit.profile.record import read_profile
from toolkit.profile.suggest import suggest, write_pass

Run = Callable[..., str]


@pytest.fixture
def shuffle(tmp_path: Path) -> Path:
    """A ShuffleNet block of dynamic batch."""
    return copies(tmp_path / "shuffle.onnx")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: object) -> str:
        assert execute(["profile", *map(str, words)]) == 0
        return capsys.readouterr().out

    return call


def test_card_profile_is_marked_simulated(shuffle: Path, run: Run) -> None:
    out = run(shuffle, "--batch_size", 8)
    assert "float16, batch 2" in out
    assert "(simulated)" in out
    assert "measured" not in out
    assert "copies of non-contiguous data: 3 kernels only move data (Concat, Split, Transpose)" in out
    assert "what if: layout blocked" in out


def test_times_equal_cost_model(shuffle: Path) -> None:
    found = profile_card(EngineSpec(shuffle, batch_size=8))
    assert [step.op_type for step in found.steps] == ["Transpose", "Split", "Conv", "Concat"]
    conv = found.steps[2]
    assert conv.flops == 2 * 2 * 36 * 4 * 4
    assert conv.bytes == 2 * (2 * 36 * 4 * 2 + 16)
    assert conv.bound == "launch"
    assert 0 < conv.roof_share < 0.5
    assert found.call == pytest.approx(found.copy_in + found.compute + found.copy_out)


def test_the_host_is_measured(shuffle: Path, run: Run, tmp_path: Path) -> None:
    out = run(shuffle, "--target", "onnx", "--runs", 3, "--json", tmp_path / "h.json")
    assert "(measured)" in out
    assert "simulated" not in out
    found = read_profile(tmp_path / "h.json")
    assert {"Transpose", "Split", "Concat"} <= {step.op_type for step in found.steps}
    assert 0 < found.compute <= found.call * 1.5


def test_output_files(shuffle: Path, run: Run, tmp_path: Path) -> None:
    files = {kind: tmp_path / f"out.{kind}" for kind in ("json", "csv", "html", "trace")}
    out = run(shuffle, "--suggest", *(word for kind, path in files.items() for word in (f"--{kind}", path)))
    assert [line for line in out.splitlines() if line.startswith("written: ")] == [
        f"written: {path}" for path in files.values()
    ]
    data = json.loads(files["json"].read_text())
    assert data["schema_version"] == 1
    assert data["simulated"] is True
    assert [gain["rule"] for gain in data["suggestion"]["chosen"]] == [
        "channel_shuffle",
        "shuffle_split",
        "gather_conv",
    ]
    rows = list(csv.DictReader(files["csv"].read_text().splitlines()))
    assert (data["command"], data["title"]) == ("teco profile", "shuffle.onnx")
    assert "compute" in data["lead"]
    assert [row["name"] for row in rows] == [row["name"] for row in data["rows"]]
    assert {row["kind"] for row in rows} == {"simulated"}
    page = files["html"].read_text()
    assert "Roofline" in page
    assert "http" not in page.replace("http-equiv", "")


def test_apply_saves_predicted_time(shuffle: Path, run: Run, tmp_path: Path) -> None:
    before, made = tmp_path / "before.json", tmp_path / "my_pass.py"
    out = run(shuffle, "--apply", made, "--json", before)
    assert f"written: {made}; use it with --pass_path {made}" in out
    assert "less (simulated)" in out
    predicted = suggest(prepare(EngineSpec(shuffle)))
    after = profile_card(EngineSpec(shuffle, pass_path=made))
    assert after.compute == pytest.approx(predicted.after)
    assert after.compute < read_profile(before).compute
    assert "Transpose" in run(shuffle, "--pass_path", made, "--against", before)


def test_apply_keeps_the_pass_file_it_ran_with(shuffle: Path, run: Run, tmp_path: Path) -> None:
    first, made = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text('layout = "blocked"\nskip_ops = ["Concat"]\n')
    run(shuffle, "--pass_path", first, "--apply", made)
    options = PassOptions.load(made)
    assert (options.layout, options.skip_ops) == ("blocked", frozenset({"Concat"}))
    assert len(apply_passes(onnx.load(shuffle), options).graph.node) == 3


def test_apply_follows_rules_of_pass_file(shuffle: Path, run: Run, tmp_path: Path) -> None:
    first, made = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text("def use_passes(model):\n    model.producer_name = 'seen by the first'\n    return model\n")
    run(shuffle, "--pass_path", first, "--apply", made)
    changed = PassOptions.load(made).use_passes
    assert changed is not None
    assert changed(onnx.load(shuffle)).producer_name == "seen by the first"


def test_existing_pass_file_is_not_overwritten(shuffle: Path, tmp_path: Path) -> None:
    other = tmp_path / "mine.py"
    other.write_text("# mine\n")
    loaded = prepare(EngineSpec(shuffle))
    with pytest.raises(ConfigError, match=r"mine\.py .*File exists"):
        write_pass(other, suggest(loaded), loaded)
    assert other.read_text() == "# mine\n"


def test_default_size_is_printed(run: Run, tmp_path: Path) -> None:
    nodes = [
        node("Transpose", ["x"], "a", "to_last", perm=[0, 2, 3, 1]),
        node("Sigmoid", ["a"], "b", "act"),
        node("Transpose", ["b"], "y", "to_first", perm=[0, 3, 1, 2]),
    ]
    path = tmp_path / "turned.onnx"
    onnx.save(model_of(nodes, {}, ["batch", 3, "height", 8]), path)
    assert "transpose_past" in run(path, "--shape", "x=2,3,8,8", "--suggest")
    out = run(path)
    assert "note: default sizes: height = 224; " in out


def test_old_opset_is_converted_if_it_saves_time(run: Run, tmp_path: Path) -> None:
    weights = {"w": floats(64, 64), "root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}
    nodes = [node("MatMul", ["x", "w"], "m"), node("Div", ["m", "root"], "s"), node("Erf", ["s"], "e")]
    nodes += [node("Add", ["e", "one"], "i"), node("Mul", ["m", "i"], "p"), node("Mul", ["p", "half"], "y")]
    path, made = tmp_path / "old.onnx", tmp_path / "p.py"
    onnx.save(model_of(nodes, weights, ["batch", 64], opset=17), path)
    out = run(path, "--apply", made)
    assert "the pass converts the model to opset 20" in out
    assert "opset=20" in made.read_text()
    predicted = suggest(prepare(EngineSpec(path)))
    after = profile_card(EngineSpec(path, pass_path=made))
    assert [step.op_type for step in after.steps] == ["MatMul", "Gelu"]
    assert after.compute == pytest.approx(predicted.after, rel=1e-6)


def test_other_files_are_written_if_no_rule_helps(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, made = tmp_path / "plain.onnx", tmp_path / "none.py"
    onnx.save(model_of([node("Relu", ["x"], "y", "relu")], {}, [1, 4]), plain)
    files = {kind: tmp_path / f"out.{kind}" for kind in ("json", "csv", "trace")}
    words = [str(word) for kind, path in files.items() for word in (f"--{kind}", path)]
    assert execute(["profile", str(plain), "--apply", str(made), *words]) == 1
    out = capsys.readouterr().out
    assert out.endswith(f"not written: {made}, since no rewrite rule saves time on this model\n")
    assert "relu" in out
    assert all(file.is_file() for file in files.values())
    assert not made.exists()
    assert read_profile(files["json"]).steps[0].name == "relu"


def test_unwritable_pass_file_keeps_other_files(
    shuffle: Path, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=r"none\.py cannot be written"):
        run(shuffle, "--apply", tmp_path / "no" / "folder" / "none.py", "--json", tmp_path / "out.json")
    assert "together: " in capsys.readouterr().out
    assert (tmp_path / "out.json").is_file()


def test_existing_pass_file_is_an_error_before_any_run(
    shuffle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "mine.py"
    made.write_text("# mine\n")
    with pytest.raises(ConfigError, match=r"mine\.py exists; choose another name"):
        execute(["profile", str(shuffle), "--apply", str(made)])
    assert capsys.readouterr().out == ""
    assert made.read_text() == "# mine\n"
