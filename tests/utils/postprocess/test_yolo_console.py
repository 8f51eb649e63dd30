"""Console functions of YOLO's scripts."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from support import RunPython
from tqdm import tqdm

from utils.postprocess.pytorch.yolo_pt import LOGGER, TQDM_BAR_FORMAT, colorstr, increment_path, print_args


def test_the_logger_writes_bare_lines_to_the_current_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    LOGGER.info("%5.2f of %i", 1.234, 7)
    assert capsys.readouterr() == ("", " 1.23 of 7\n")
    other = io.StringIO()
    monkeypatch.setattr(sys, "stderr", other)
    LOGGER.warning("two")
    LOGGER.debug("three")
    assert other.getvalue() == "two\n"


def test_the_logger_writes_lines_once(run_python: RunPython) -> None:
    code = (
        "import logging; logging.basicConfig(level=logging.INFO)\n"
        "from utils.postprocess.pytorch.yolo_pt import LOGGER; LOGGER.info('once \\u26a0')"
    )
    done = run_python("-c", code, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "once \\u26a0\n")


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert colorstr("val: ") == "\033[34m\033[1mval: \033[0m"
    assert colorstr("red", "underline", 5) == "\033[31m\033[4m5\033[0m"
    with pytest.raises(ValueError, match=r"'pinkish' is not a colour; .*black, red"):
        colorstr("pinkish", "text")
    monkeypatch.setenv("NO_COLOR", "1")
    assert colorstr("red", "val: ") == "val: "
    monkeypatch.setenv("NO_COLOR", "")
    assert colorstr("red", "x") == "\033[31mx\033[0m"
    monkeypatch.setenv("TERM", "dumb")
    assert colorstr("val: ") == "val: "


def test_free_paths(tmp_path: Path) -> None:
    first = tmp_path / "runs" / "exp"
    assert increment_path(first, mkdir=True) == first
    assert first.is_dir()
    assert increment_path(str(first)) == tmp_path / "runs" / "exp2"
    assert increment_path(first, mkdir=True).is_dir()
    assert increment_path(first, sep="_") == tmp_path / "runs" / "exp_2"
    assert increment_path(first).name == "exp3"
    assert increment_path(first, exist_ok=True) == first
    dotted = tmp_path / "v1.5"
    dotted.mkdir()
    assert increment_path(dotted).name == "v1.52"
    (tmp_path / "log.txt").write_text("")
    assert increment_path(tmp_path / "log.txt", sep="-").name == "log-2.txt"


def test_arguments_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    def run(batch: int, name: str = "exp") -> None:
        print_args(show_func=True)

    print_args({"ckpt": "a.onnx", "half": True})
    run(4)
    print_args({"a": 1}, show_file=False)
    first, second, third = capsys.readouterr().err.splitlines()
    assert first.endswith("test_yolo_console: ckpt=a.onnx, half=True")
    assert second.endswith("test_yolo_console: run: batch=4, name=exp")
    assert third == "a=1"


def test_progress_bar() -> None:
    file = io.StringIO()
    for _ in tqdm(range(3), desc="Class", bar_format=TQDM_BAR_FORMAT, file=file, mininterval=0):
        pass
    assert "Class 100%|" in file.getvalue()
    assert "3/3" in file.getvalue()
