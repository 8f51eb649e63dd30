"""``teco table``: costs of models on the terminal, in JSON and in Markdown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import DIGITS

from engine import ConfigError, DataError
from toolkit.commands.table import BEGIN, END, main

FILE = str(DIGITS / "digits_dyn.onnx")


def test_terminal_marks_simulated_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["digits", FILE]) == 0
    shown = capsys.readouterr().out
    assert "digits_dyn" in shown
    assert "2 models; times and memory are simulated (t1.yaml)" in shown


def test_json_and_markdown(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    words = [FILE, "--batches", "8", "1", "--json", str(tmp_path / "x.json"), "--markdown", str(page)]
    assert main(words) == 0
    data = json.loads((tmp_path / "x.json").read_text())
    assert data["schema_version"] == 1
    [row] = data["rows"]
    assert [one["batch"] for one in row["simulated"]] == [1, 8]
    assert row["parameters"] == 38714
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n| model | input |")
    assert text.endswith(f"{END}\nafter\n")
    assert "| digits_dyn | 3x32x32 | 0.04 |" in text
    assert "old" not in text
    assert "simulated latency, ms, at 1/8" in text
    assert main(words) == 0
    assert page.read_text() == text


def test_failed_model_is_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    assert main([FILE, str(tmp_path / "bad.onnx")]) == 1
    shown = capsys.readouterr().out
    assert "note: bad: " in shown
    assert "1 model; " in shown


def test_errors_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown model 'digts'; did you mean 'digits'"):
        main(["digts"])
    (tmp_path / "page.md").write_text("no marks")
    with pytest.raises(DataError, match=r"page.md: .*teco table: begin"):
        main([FILE, "--markdown", str(tmp_path / "page.md")])
