"""Tables on narrow terminals, and pages."""

from __future__ import annotations

import io
import json
import re
import sys
from math import inf, nan
from pathlib import Path

import pytest

from engine import ConfigError, DataError
from toolkit.chart import Chart, Line
from toolkit.cli import execute
from toolkit.output import Column, ToolReport, csv_text, html_text, print_report, write_text

COLUMNS = (
    Column("name", "name"),
    Column("size", "size", True, spare=2),
    Column("share", "share of all", True, spare=1),
    Column("empty", "empty"),
    Column("note", "note"),
)
ROWS = [{"name": f"row{i}", "size": i, "share": i / 3, "note": "a note that is longer than others"} for i in range(2)]


@pytest.mark.parametrize(("width", "left_out"), [(200, []), (65, ["size"]), (50, ["size", "share of all"])])
def test_narrow_terminal_drops_columns(monkeypatch: pytest.MonkeyPatch, width: int, left_out: list[str]) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FORCE_COLOR", "1")  # taken for a terminal
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = io.StringIO()
    print_report(ToolReport("teco x", "x", "done", COLUMNS, ROWS), text)
    note = f"note: too narrow for {', '.join(left_out)}; --csv, --json and --html have all"
    assert (note in text.getvalue()) == bool(left_out)
    assert "a note that is longer than others" in text.getvalue()  # on one line


def test_files_have_all_columns() -> None:
    text = io.StringIO()
    print_report(ToolReport("teco x", "x", "done", COLUMNS, ROWS), text)
    assert "share of all" in text.getvalue()
    assert "too narrow" not in text.getvalue()


def test_page_sorts_columns_and_drops_empty_ones() -> None:
    page = html_text(ToolReport("teco x", "x", "done", COLUMNS, ROWS))
    places = [page.index(f">{label}</button>") for label in ("name", "note", "share of all", "size")]
    assert places == sorted(places)
    assert ">empty</button>" not in page
    assert 'class="words"' in page


def test_curve_has_gaps_for_missing_values() -> None:
    values = [1.0, 0.1, None, 0.0, nan, inf, None]
    chart = Chart("c", "node", [Line("a", "red", values)])
    first, dot, top = chart.paths(chart.lines[0])
    assert first == f"{chart.x(0)},{chart.height(1.0)} {chart.x(1)},{chart.height(0.1)}"
    assert dot == " ".join([f"{chart.x(3)},{chart.height(0.1)}"] * 2)  # 0 is at the lower edge; a line of no length
    assert top.split() == [f"{chart.x(5)},10.0"] * 2


def test_bad_rows_are_red_and_names_break() -> None:
    rows = [{"name": "custom::Op_of<b>/a.long_name", "note": "n"}, {"name": "fine_name", "note": "n"}]
    made = ToolReport("teco x", "a_very_long/model.onnx", "done", COLUMNS, rows, frozenset([0]), notes=["only a note"])
    body = html_text(made).partition("<body>")[2]
    assert "a_<wbr>very_<wbr>long/<wbr>model.<wbr>onnx" in body
    assert '<ul class="card notes">' in body
    assert "problems" not in body
    assert re.findall("v-fail", body.partition("<script>")[0]) == ["v-fail"]  # the mark of the bad row
    name = "custom::<wbr>Op_<wbr>of&lt;b&gt;/<wbr>a.<wbr>long_<wbr>name"
    assert f"!</span> <span>{name}</span></span></th>" in body  # side by side, whatever the width
    assert ">fine_name</th>" in body  # short ones stay whole


def test_files_are_written_atomically_into_new_folders(tmp_path: Path) -> None:
    file = write_text(tmp_path / "new/a.txt", "\udcff é", "json")  # surrogates of invalid UTF-8
    assert file.read_text(encoding="utf-8") == "\\udcff é"
    with pytest.raises(DataError, match=r"cannot be written: .*--json"):
        write_text(file / "b.txt", "", "json")
    assert [path.name for path in file.parent.iterdir()] == ["a.txt"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["compare", "digits"],
        ["dump", "full", "digits", "--out", "dump"],
        ["ops", "digits"],
        ["optest", "digits", "node_linear"],
        ["overflow", "digits"],
        ["profile", "digits"],
    ],
)
def test_files_are_written_without_rich(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("rich", "rich.box", "rich.console"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match="needs the package rich"):
        execute([*command, "--json", "all.json"])
    assert json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))["rows"]


def test_names_are_escaped() -> None:
    names = ("<script>alert(1)</script>", "=1+1", "@SUM(A1)", "+cmd|x", "-2+3", "-1.5", "-", "+3.1 %", "/a/b")
    report = ToolReport("teco x", names[0], names[0], COLUMNS, [{"name": name, "size": -1} for name in names])
    assert "<script>alert" not in html_text(report)
    found = [line.split(",")[0] for line in csv_text(report).splitlines()[1:]]
    assert found == [names[0], "'=1+1", "'@SUM(A1)", "'+cmd|x", "'-2+3", "-1.5", "-", "+3.1 %", "/a/b"]


def test_long_names_are_shortened() -> None:
    text = io.StringIO()
    print_report(ToolReport("teco x", "x", "done", COLUMNS, [{"name": "n" * 5000}]), text)
    assert max(map(len, text.getvalue().splitlines())) < 300
    assert "characters" in text.getvalue()


def test_long_notes_are_shortened() -> None:
    text = io.StringIO()
    print_report(ToolReport("teco x", "x", "done", COLUMNS, [], notes=["n" * 9000 + "\nforged"]), text)
    message = text.getvalue().replace("\n", "")
    assert "characters ..." in message
    assert len(message) < 1300
