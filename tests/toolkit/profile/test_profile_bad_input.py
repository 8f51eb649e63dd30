"""Errors of teco profile are one line: invalid profiles to compare with, and unsupported models."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import profile_models as models
import pytest
from hypothesis import given, settings, strategies as st
from support import ROOT

from engine import ConfigError, TecoInferError
from toolkit.cli import execute
from toolkit.profile.record import read_profile

Save = Callable[..., Path]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.copies(tmp_path_factory.mktemp("profiled") / "model.onnx")


@pytest.fixture(scope="module")
def written(model: Path) -> Path:
    """The JSON of a profile."""
    out = model.with_name("before.json")
    assert execute(["profile", str(model), "--batch_size", "4", "--json", str(out)]) == 0
    return out


def refused(*words: object) -> str:
    """Return the error line of a command."""
    with pytest.raises(TecoInferError) as caught:
        execute(["profile", *map(str, words)])
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_node_names_are_escaped(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = onnx.load(model)
    for place, node in enumerate(named.graph.node):
        node.name = f"n{place}\nforged"
    onnx.save(named, tmp_path / "m.onnx")
    assert execute(["profile", str(tmp_path / "m.onnx")]) == 0
    out = capsys.readouterr().out
    assert "\\nforged" in out or " forged" in out
    assert "\nforged" not in out


# ---------------------------------------------------------------------------------------------------------- against


def changed(written: Path, tmp_path: Path, **values: Any) -> Path:
    data = json.loads(written.read_text())
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(data | values))
    return path


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"schema_version": 2}, "is not a profile of schema_version 1"),
        ({"command": "teco compare"}, "is not a profile of schema_version 1"),
        ({"rows": None}, "changed.json"),
        ({"rows": [{"name": "a"}]}, "'op_type'"),
        ({"rows": "abc"}, "changed.json"),
        ({"batch": "4"}, "'batch' ('4')"),
        ({"call": math.nan}, "'call' (nan)"),
        ({"call": True}, "'call' (True)"),
        ({"inputs": []}, "changed.json"),
        ({"inputs": {"x": "aaa"}}, "the shape of 'x' ('aaa')"),
        ({"inputs": {"x": [1, 1e400]}}, "the shape of 'x' ([1, inf])"),
        ({"simulated": False, "target": "onnx"}, "profile both on one target"),
        ({"batch": 2}, "batches 2 and 1"),
    ],
)
def test_incomparable_profile(values: dict[str, Any], says: str, model: Path, written: Path, tmp_path: Path) -> None:
    message = refused(model, "--batch_size", 4, "--against", changed(written, tmp_path, **values))
    assert says in message


@settings(max_examples=25, deadline=None, database=None)
@given(data=st.data())
def test_truncated_profile(data: st.DataObject, written: Path) -> None:
    text = written.read_text()
    cut = written.with_name("cut.json")
    cut.write_text(text[: data.draw(st.integers(0, len(text.rstrip()) - 1))])
    with pytest.raises(ConfigError, match=r"cut\.json cannot be read: .*--json"):
        read_profile(cut)


def test_missing_profile(model: Path, tmp_path: Path) -> None:
    assert "cannot be read: No such file" in refused(model, "--against", tmp_path / "none.json")
    for text in ("[]", "3", "null", "[" * 100_000, '{"schema_version": 1}'):
        (tmp_path / "odd.json").write_text(text)
        assert "odd.json" in refused(model, "--against", tmp_path / "odd.json")


def test_other_differences_are_noted(model: Path, written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = model.with_name("other.onnx")
    models.copies(other, size=8)
    capsys.readouterr()
    words = ["profile", str(other), "--batch_size", "4", "--dtype", "float32", "--against", str(written)]
    page, out = model.with_name("page.html"), model.with_name("out.json")
    assert execute([*words, "--html", str(page), "--json", str(out)]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    assert "note: the models differ: model.onnx before, other.onnx now" in notes
    assert "note: the dtypes differ: float16 before, float32 now" in notes
    assert "the models differ" in page.read_text()
    assert json.loads(out.read_text())["notes"][-1] == "the dtypes differ: float16 before, float32 now"


def test_other_shapes_are_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = models.changing(tmp_path / "m.onnx"), tmp_path / "out.json"
    assert execute(["profile", str(path), "--shape", "x=2,3,8,8", "--json", str(out)]) == 0
    assert execute(["profile", str(path), "--shape", "x=2,3,16,8", "--against", str(out)]) == 0
    assert "x [2, 3, 8, 8] before, x [2, 3, 16, 8] now" in capsys.readouterr().out


def test_profile_round_trip(model: Path, written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert execute(["profile", str(model), "--batch_size", "4", "--against", str(written)]) == 0
    assert "before" in capsys.readouterr().out
    found = read_profile(written)
    assert [row["name"] for row in json.loads(written.read_text())["rows"]] == [step.name for step in found.steps]
    assert found.inputs == {"x": (1, 8, 6, 6)}


# ----------------------------------------------------------------------------------------------------------- models


@pytest.mark.parametrize("target", ["sdaa", "onnx"])
def test_string_inputs_are_an_error(target: str, save_onnx: Save) -> None:
    path = save_onnx("g (string[2] x) => (string[2] y) { y = Identity (x) }")
    message = refused(path, "--target", target)
    assert "'x'" in message
    assert "--data" not in message  # teco profile has no such flag


@pytest.mark.parametrize("target", ["sdaa", "onnx"])
def test_sequence_inputs_are_an_error(target: str, save_onnx: Save) -> None:
    path = save_onnx("g (seq(float[2]) x) => (float[N] y) { y = ConcatFromSequence <axis = 0> (x) }")
    assert "'x' " in refused(path, "--target", target)


@pytest.mark.parametrize("target", ["sdaa", "onnx"])
def test_data_dependent_outputs(target: str, save_onnx: Save, capsys: pytest.CaptureFixture[str]) -> None:
    path = save_onnx("g (float[2,4] x) => (int64[2,N] y) { e = Exp (x)  y = NonZero (e) }")
    assert execute(["profile", str(path), "--target", target, "--runs", "2"]) == 0
    assert "have data-dependent sizes (NonZero_1" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["cuda", "cpu", "null", "sda"])
def test_unsupported_target(target: str, model: Path) -> None:
    message = refused(model, "--target", target)
    assert f"target {target!r}" in message


@pytest.mark.parametrize("target", ["sdaa", "onnx"])
def test_shapes_that_do_not_fit(target: str, model: Path) -> None:
    message = refused(model, "--target", target, "--shape", "pixels=1,8,6,6")
    assert message.startswith("--dim pixels: ")
    for shape in ("1,8", "1,9,6,6"):
        message = refused(model, "--target", target, "--shape", f"x={shape}")
        assert message == f"--dim x={shape.replace(',', 'x')} does not fit the model's shape (N, 8, 6, 6)"


def test_a_pass_that_fails(model: Path, tmp_path: Path) -> None:
    failing = tmp_path / "p.py"
    failing.write_text("def use_passes(model):\n    raise RuntimeError('no luck')\n")
    assert "use_passes failed: RuntimeError: no luck" in refused(model, "--pass_path", failing)
    failing.write_text("def use_passes(model):\n    del model.graph.node[:]\n    return model\n")
    assert "p.py" in refused(model, "--pass_path", failing)
    assert "none.py" in refused(model, "--pass_path", tmp_path / "none.py")


@pytest.mark.parametrize("form", ["json", "csv", "html", "trace"])
def test_unwritable_file(form: str, model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    message = refused(model, f"--{form}", tmp_path / "file" / "out")
    place = tmp_path / "file" / "out"
    assert message == f"--{form} {place}: no such path can exist; name another"


@pytest.mark.parametrize(
    "words", [["--runs", "0"], ["--top", "-1"], ["--shape", "x"], ["--dtype", "int4"], ["--suggest=1"]]
)
def test_invalid_arguments(words: list[str], model: Path) -> None:
    assert "(see teco profile --help)" in refused(model, *words)


def test_invalid_models(tmp_path: Path) -> None:
    (tmp_path / "damaged.onnx").write_bytes(b"\x08\x08\x12")
    for target in ("sdaa", "onnx"):
        assert "damaged.onnx" in refused(tmp_path / "damaged.onnx", "--target", target)
        assert "none.onnx" in refused(tmp_path / "none.onnx", "--target", target)


def test_error_is_one_line_and_exit_code_2(model: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "toolkit.cli", "profile", str(model), "--against", str(tmp_path / "none.json")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_model_without_inputs(save_onnx: Save, capsys: pytest.CaptureFixture[str]) -> None:
    onnx_text = "g () => (float[2] y) { c = RandomNormal <shape = [2]> ()  y = Exp (c) }"
    for target in ("sdaa", "onnx"):
        assert execute(["profile", str(save_onnx(onnx_text)), "--target", target, "--runs", "2"]) == 0
    assert "Exp" in capsys.readouterr().out
