"""``--json [FILE]`` takes a file or standard output in every command."""

from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path

import pytest
from support import DIGITS, RunPython

from tecoinfer_modelzoo.flags import (
    STDOUT,
    add_json_flag,
    reserve_stdout,
    restoring_stdout,
    separated,
    write_stdout,
)
from toolkit.cli import execute


@pytest.mark.parametrize(
    ("words", "value"),
    [([], None), (["--json"], STDOUT), (["--json", "-"], STDOUT), (["--json", "r.json"], Path("r.json"))],
)
def test_value(words: list[str], value: Path | None) -> None:
    parser = argparse.ArgumentParser()
    add_json_flag(parser)
    assert parser.parse_args(words).json == value


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("info --json digits", "info --json=- digits"),
        ("info --json out.json digits", "info --json out.json digits"),
        ("info digits --json", "info digits --json"),
        ("fetch --json - minilm", "fetch --json - minilm"),
        ("fetch --json --path", "fetch --json --path"),
        ("list --json=out.txt digits", "list --json=out.txt digits"),
    ],
)
def test_names_after_the_flag_are_not_files(words: str, expected: str) -> None:
    assert separated(words.split()) == expected.split()


def test_printed_text_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    with restoring_stdout():
        reserve_stdout(STDOUT)
        sys.stdout.write("text\n")
        write_stdout("{}\n")
    assert sys.stdout is before
    assert tuple(capsys.readouterr()) == ("{}\n", "text\n")


@pytest.mark.parametrize("path", [None, Path("r.json")])
def test_standard_output_is_kept_for_text(path: Path | None, capsys: pytest.CaptureFixture[str]) -> None:
    with restoring_stdout():
        reserve_stdout(path)
        sys.stdout.write("text\n")
    assert tuple(capsys.readouterr()) == ("text\n", "")


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_characters_missing_in_the_encoding_are_escaped(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"name": "é 数 \udcff"}
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding))
    write_stdout(json.dumps(value, ensure_ascii=False))
    assert json.loads(raw.getvalue().decode(encoding)) == value


@pytest.mark.parametrize("words", [("list", "digits"), ("info", "digits"), ("ops", "digits")])
def test_file_and_standard_output_have_the_same_keys(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "r.json"
    assert execute([*words, "--json", str(file)]) == 0
    assert capsys.readouterr().out
    assert execute([*words, "--json"]) == 0
    stored, printed = json.loads(file.read_text()), json.loads(capsys.readouterr().out)
    assert type(stored) is type(printed)
    assert len(stored) == len(printed)
    if isinstance(stored, dict):
        assert list(stored) == list(printed)


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--batch_size", "8", "--decode", "reduced", "--max_drop", "1")])
def test_evaluation_prints_one_object(words: tuple[str, ...], run_python: RunPython, tmp_path: Path) -> None:
    script = DIGITS / "example_valid.py"
    done = run_python(script, "--target", "onnx", *words, "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (found["kind"], found["records"]) == ("evaluation", None)
    assert ("comparison" in found) == bool(words)
    assert "eval_metric" in done.stderr
    assert not list(tmp_path.iterdir())
