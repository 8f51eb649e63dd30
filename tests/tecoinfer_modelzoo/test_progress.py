"""Progress bars on terminals: no escape sequence as text."""

from __future__ import annotations

import io
import sys

import pytest

from tecoinfer_modelzoo.progress import progress
from utils.pipeline.report.safe_stream import SafeStream


class Terminal(io.StringIO):
    """A terminal that records what is written."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_nested_bars_print_no_escape_sequence_as_text(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys, "stderr", SafeStream(terminal, "\n\t\r", brief=True))
    for _ in progress(range(2), "batch", "outer \x1b[31m"):
        assert list(progress(range(3), "call", "inner")) == [0, 1, 2]
    printed = terminal.getvalue()
    assert "2/2" in printed
    assert "inner" in printed
    assert "\x1b[31m" not in printed
    assert ("\x1b[A" in printed) == (term != "dumb")
    assert "\\x1b[A" not in printed
