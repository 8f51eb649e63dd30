"""``teco site --draw``: answers of models, stored for the page of the zoo."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from support import DIGITS, ROOT

from engine import ConfigError
from model_config.reports.answers import FILE, IMAGE, read_answer
from toolkit.commands.site import main
from toolkit.drawn_answers import drawable
from toolkit.zoo import load_zoo


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    """Return a zoo of one model: a copy of the digits, with its case and without a stored answer."""
    cases = re.split(r"(?m)^(?=- case_name)", (ROOT / "model_config/model.yaml").read_text(encoding="utf-8"))
    (own,) = [case for case in cases if case.startswith("- case_name: digits\n")]
    (tmp_path / "model_config").mkdir()
    (tmp_path / "model_config/model.yaml").write_text(own, encoding="utf-8")
    folder = tmp_path / "example/classification/digits"
    shutil.copytree(DIGITS, folder, ignore=shutil.ignore_patterns("__pycache__", FILE, IMAGE))
    return tmp_path


def test_models_without_their_files_are_left_out(zoo: Path) -> None:
    models = load_zoo(zoo).models
    assert [model.name for model in drawable(models)] == ["digits"]
    (zoo / "example/classification/digits/digits_float16_dyn.onnx").unlink()
    assert drawable(models) == []
    with pytest.raises(ConfigError, match="--draw: no model with stored metrics has its files here"):
        main(["--draw", "--out", str(zoo / "site.html")], zoo)


@pytest.mark.slow
@pytest.mark.long
def test_an_answer_is_drawn_stored_and_shown(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = zoo / "example/classification/digits"
    texts = (folder / "zoo.yaml").read_text(encoding="utf-8")
    (folder / "zoo.yaml").write_text(f"{texts}shown_sample: 359\n", encoding="utf-8")
    assert main(["--draw", "digits", "--out", str(zoo / "site.html")], zoo) == 0
    last = read_answer(folder)
    assert last is not None
    assert last.text.startswith("9 ")
    capsys.readouterr()
    (folder / "zoo.yaml").write_text(texts, encoding="utf-8")
    assert main(["--out", str(zoo / "site.html"), "--draw", "digits"], zoo) == 0
    assert capsys.readouterr().out == f"{folder / FILE}: written\n{zoo / 'site.html'}: written\n"
    found = read_answer(folder)
    assert found is not None
    assert (found.case, found.target, found.dtype) == ("digits", "sdaa", "float16")
    assert found.text.startswith("0 ")
    assert found.image is not None
    assert found.image.uri in (zoo / "site.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.long
def test_a_model_that_fails_is_a_warning_and_exit_code_1(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = zoo / "example/classification/digits"
    (folder / "digits_float16_dyn.onnx").write_bytes(b"no model")
    assert main(["--out", str(zoo / "site.html"), "--draw", "digits"], zoo) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: example/classification/digits: no answer drawn: example_valid.py: ")
    assert "digits_float16_dyn.onnx" in line
    assert not (folder / FILE).exists()
    assert (zoo / "site.html").is_file()
