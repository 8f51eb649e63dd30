"""What both streams write of names and texts that their encoding cannot hold."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from utils.pipeline import cli
from utils.pipeline.report.safe_stream import safe_streams


@pytest.mark.parametrize("errors", ["strict", "surrogateescape", "surrogatepass"])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_characters_missing_in_the_encoding_are_escaped(
    encoding: str, errors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    for name in ("stdout", "stderr"):
        stream = io.TextIOWrapper(written, encoding, errors, newline="", write_through=True)
        monkeypatch.setattr(sys, name, stream)
        with safe_streams():
            print("half \ud800, byte \udcff, \u4e2d", file=getattr(sys, name))
        stream.detach()
    wide = "\\u4e2d" if encoding == "ascii" else "\u4e2d"
    assert written.getvalue().decode(encoding) == f"half \\ud800, byte \\udcff, {wide}\n" * 2


def test_the_streams_own_error_handler_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, "ascii", "replace", newline="", write_through=True)
    monkeypatch.setattr(sys, "stdout", stream)
    with safe_streams():
        print("\u4e2d")  # noqa: T201
    stream.detach()
    assert written.getvalue() == b"?\n"


def code_of(main: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # cli.run replaces it
    with pytest.raises(SystemExit) as caught:
        cli.run(main)
    return caught.value.code


def test_an_os_error_gives_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    name = "d/" * 3000
    assert code_of(lambda: int(Path(name).is_dir()), monkeypatch) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: d/d/d/")
    assert said.count("\n") == 1
    assert ": File name too long" in said
    assert len(said) < 1300


def test_a_warning_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> int:
        warnings.showwarning("data/line\neval_metric 9.9.wav: 0.1 s long\x1b[31m", UserWarning, "x.py", 1)
        return 0

    assert code_of(main, monkeypatch) == 0
    assert capsys.readouterr().err == "warning: data/line\\neval_metric 9.9.wav: 0.1 s long\\x1b[31m\n"
