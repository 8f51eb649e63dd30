"""Tables and lines have colours on a terminal only, and not with ``NO_COLOR`` or ``TERM=dumb``."""

from __future__ import annotations

import io

import pytest

from tecoinfer_modelzoo.terminal import has_colours, new_table, open_console, print_line


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


class Safe(Terminal):
    """A stream that prints control characters as text, like those of a running command."""

    bare = None


def printed(file: io.StringIO) -> str:
    console = open_console(file)
    table = new_table(console)
    table.add_column("model")
    table.add_row("digits", style="bold red")
    console.print(table)
    print_line(console, "FAIL", style="red")
    return file.getvalue()


@pytest.mark.parametrize(
    ("terminal", "term", "no_color", "coloured"),
    [
        (True, "xterm-256color", "", True),
        (True, "xterm-256color", "1", False),
        (True, "dumb", "", False),
        (False, "xterm-256color", "", False),
        (False, "xterm-256color", "1", False),
    ],
)
def test_colours_only_where_they_are_wanted(
    terminal: bool, term: str, no_color: str, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    text = printed(Terminal() if terminal else io.StringIO())
    assert "digits" in text
    assert ("\x1b[" in text) == coloured
    assert has_colours(Terminal() if terminal else io.StringIO()) == coloured


def test_a_safe_stream_gets_no_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert has_colours(Terminal())
    assert not has_colours(Safe())
    assert not has_colours(None)
