"""Tables where there is little room, and pages of what there is."""

from __future__ import annotations

import io

import pytest

from toolkit.output import Column, Report, html_text, print_report

COLUMNS = (
    Column("name", "name"),
    Column("size", "size", True, spare=2),
    Column("share", "share of all", True, spare=1),
    Column("empty", "empty"),
    Column("note", "note"),
)
ROWS = [{"name": f"row{i}", "size": i, "share": i / 3, "note": "a note that is longer than others"} for i in range(2)]


@pytest.mark.parametrize(("width", "left_out"), [(200, []), (65, ["size"]), (50, ["size", "share of all"])])
def test_a_narrow_terminal_leaves_out_what_can_be_spared(
    monkeypatch: pytest.MonkeyPatch, width: int, left_out: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FORCE_COLOR", "1")  # taken for a terminal
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = io.StringIO()
    print_report(Report("teco x", "x", "done", COLUMNS, ROWS), text)
    note = f"note: too narrow for {', '.join(left_out)}; --csv, --json and --html have all"
    assert (note in text.getvalue()) == bool(left_out)
    assert "a note that is longer than others" in text.getvalue()  # on one line


def test_files_of_any_width_have_all() -> None:
    text = io.StringIO()
    print_report(Report("teco x", "x", "done", COLUMNS, ROWS), text)
    assert "share of all" in text.getvalue()
    assert "too narrow" not in text.getvalue()


def test_a_page_has_what_matters_first_and_no_empty_column() -> None:
    page = html_text(Report("teco x", "x", "done", COLUMNS, ROWS))
    places = [page.index(f">{label}</button>") for label in ("name", "note", "share of all", "size")]
    assert places == sorted(places)
    assert ">empty</button>" not in page
    assert 'class="words"' in page
