"""Sizes of dynamic models: from flags, from samples, or defaults with a note."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import ROOT
from text_models import encoder

from engine import ConfigError, EngineSpec
from toolkit.cli import execute
from toolkit.profile.card import profile_card
from utils.fetch import UnreachableError

Run = Callable[..., tuple[str, dict[str, Any]]]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return encoder(tmp_path / "text.onnx")


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: object) -> tuple[str, dict[str, Any]]:
        out = tmp_path / "out.json"
        assert execute(["profile", "--json", str(out), *map(str, words)]) == 0
        return capsys.readouterr().out, json.loads(out.read_text())

    return call


DEFAULT = "note: default sizes: seq = 128; set others with --dim NAME=N or --data"


@pytest.mark.parametrize("target", ["sdaa", "onnx"])
def test_default_sizes_are_noted(target: str, text: Path, run: Run) -> None:
    out, data = run(text, "--target", target, "--runs", 1, "--batch_size", 4, "--html", text.with_suffix(".html"))
    assert DEFAULT in out.splitlines()
    batch = 1 if target == "sdaa" else 4
    assert (data["inputs"], data["sizes"]) == ({"ids": [batch, 128], "mask": [batch, 128]}, "default")
    assert data["notes"][-1] == DEFAULT.removeprefix("note: ")
    assert DEFAULT.removeprefix("note: ") in text.with_suffix(".html").read_text()


@pytest.mark.parametrize("target", ["sdaa", "onnx"])
@pytest.mark.parametrize(
    ("words", "length"),
    [
        (["--dim", "seq=24"], 24),
        (["--shape", "ids=1,20", "--shape", "mask=1,20"], 20),
        (["--shape", "ids=1,20"], 20),  # the other has the same symbol
    ],
)
def test_sizes_by_flags(target: str, words: list[str], length: int, text: Path, run: Run) -> None:
    out, data = run(text, "--target", target, "--runs", 1, *words)
    assert "by default" not in out
    assert (data["inputs"], data["sizes"]) == ({"ids": [1, length], "mask": [1, length]}, "flags")


@pytest.mark.parametrize("target", ["sdaa", "onnx"])
def test_sizes_of_samples(target: str, text: Path, run: Run, tmp_path: Path) -> None:
    ids = np.ones((12, 40), np.int64)
    np.savez(tmp_path / "d.npz", ids=ids, mask=ids)
    out, data = run(text, "--target", target, "--runs", 1, "--data", tmp_path / "d.npz", "--batch_size", 8)
    assert f"note: sizes of the first call of {tmp_path / 'd.npz'}" in out.splitlines()
    batch = 2 if target == "sdaa" else 8
    assert (data["inputs"], data["sizes"]) == ({"ids": [batch, 40], "mask": [batch, 40]}, "samples")


def test_sizes_of_task_samples(run: Run, digits: Path) -> None:
    words = ["--task", "classification", "--data", digits / "data" / "val", "--batch_size", 8]
    out, data = run(digits / "digits_dyn.onnx", *words, "--", "--input_size", 32)
    assert f"note: sizes of the first call of {digits / 'data' / 'val'}" in out.splitlines()
    assert data["inputs"] == {"input": [2, 3, 32, 32]}


def test_no_note_for_static_sizes(run: Run, digits: Path) -> None:
    out, data = run(digits / "digits.onnx")
    assert "note: sizes" not in out
    assert data["sizes"] == "model"


def test_image_size_from_metadata(run: Run, digits: Path) -> None:
    out, data = run(digits / "digits_dyn.onnx")
    assert data["inputs"] == {"input": [1, 3, 32, 32]}
    assert ("default sizes" in out) == (data["sizes"] == "default")


def test_unknown_dimension_is_an_error(text: Path) -> None:
    with pytest.raises(ConfigError, match=r"--dim len: .*: batch, seq"):
        execute(["profile", str(text), "--dim", "len=3"])
    with pytest.raises(ConfigError, match=r"--dim x: .*: ids, mask"):
        execute(["profile", str(text), "--shape", "x=3"])


def test_suggestions_are_for_the_same_sizes(text: Path, run: Run) -> None:
    _, card = run(text, "--dim", "seq=24", "--suggest")
    _, host = run(text, "--dim", "seq=24", "--suggest", "--target", "onnx", "--runs", 1)
    assert host["suggestion"]["before"] == card["suggestion"]["before"] == pytest.approx(card["compute"])


# ------------------------------------------------------------------------------------------------------ all is priced


@pytest.mark.parametrize("length", [8, 128])
def test_every_kernel_of_a_text_model_has_a_cost(length: int, text: Path) -> None:
    shapes = {"ids": (2, length), "mask": (2, length)}
    found = profile_card(EngineSpec(text, batch_size=8), shapes)
    assert [step.name for step in found.steps if step.bound == "unknown"] == []
    by_name = {step.name: step for step in found.steps}
    assert by_name["scores1"].flops == 2 * 2 * 4 * length * length * 8
    assert by_name["project1"].flops == 2 * 2 * length * 32 * 32
    assert not any("only their launch" in note for note in found.notes)
    passed = profile_card(EngineSpec(text, batch_size=8, pass_path=ROOT / "engine/passes/default_pass.py"), shapes)
    assert found.compute == pytest.approx(passed.compute)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.torch
def test_every_kernel_of_minilm_has_a_cost(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import real_models

    try:
        model = real_models.minilm(tmp_path / "minilm")
    except UnreachableError as error:
        pytest.skip(str(error))
    out, data = run(model, "--dim", "seq=64")
    assert "only their launch is counted" not in out
    assert data["inputs"]["input_ids"] == [1, 64]
    products = sum(row["flops"] for row in data["rows"] if row["op_type"] in ("Gemm", "MatMul"))
    assert products == pytest.approx(6 * 2 * 64 * (12 * 384 * 384 + 2 * 64 * 384), rel=0.01)
    _, default = run(model)
    assert default["inputs"]["input_ids"] == [1, 128]
