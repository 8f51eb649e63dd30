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
from toolkit.output import Column, ToolReport, csv_text, html_text, page_columns, print_report, shown, write_text

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
    first, top = chart.paths(chart.lines[0])
    assert first == f"{chart.x(0)},{chart.height(1.0)} {chart.x(1)},{chart.height(0.1)}"
    assert top.split() == [f"{chart.x(5)},10.0"] * 2  # a line of no length, which draws a dot


def test_zeros_do_not_plunge_but_have_a_lane() -> None:
    values = [1e-3, 0.0, 1e-3, 0.0, 1e-4]
    chart = Chart("c", "node", [Line("a", "red", values)])
    heights = [float(pair.partition(",")[2]) for piece in chart.paths(chart.lines[0]) for pair in piece.split()]
    assert max(heights) == chart.height(1e-4)
    assert chart.lane is not None
    assert chart.lane > chart.height(1e-4)
    assert chart.dots(chart.lines[0]) == f"M{chart.x(1)} {chart.lane}h0M{chart.x(3)} {chart.lane}h0"
    assert chart.lane_label == "0"
    assert Chart("c", "step", [Line("a", "red", [-1.0, 1.0])]).lane_label == "≤ 0"
    assert Chart("c", "step", [Line("a", "red", [1.0])]).lane is None


def test_the_axis_has_names() -> None:
    names = [f"/layer{i}/block/conv{i}/Conv_output_of_a_long_name_{i}" for i in range(101)]
    chart = Chart("c", "node", [Line("a", "red", [1.0] * 101)], mark=100, names=names)
    found = chart.axis_names
    assert [one.whole for one in found] == [names[i] for i in (0, 25, 50, 75, 100)]
    assert all(len(one.text) <= 20 and one.whole.endswith(one.text[1:]) for one in found)
    assert [one.anchor for one in found] == ["start", "middle", "middle", "middle", "end"]
    marked = chart.marked_name
    assert marked is not None
    assert (marked.whole, marked.anchor) == (names[100], "end")
    page = html_text(ToolReport("teco x", "x", "done", COLUMNS, ROWS, charts=[chart]))
    assert page.count(f"<title>{names[50]}</title>") == 1
    assert f"<title>{names[7]}: a 1</title>" in page


WIDE = [Column("name", "node"), *(Column(f"c{i}", f"column {i}", True, spare=i) for i in range(1, 30))]


def test_a_page_keeps_columns_that_fit_and_folds_the_others() -> None:
    rows = [{"name": f"n{i}", **{f"c{k}": 0.123456 * k for k in range(1, 30)}} for i in range(3)]
    columns, further = page_columns(ToolReport("teco x", "x", "done", WIDE, rows))
    assert [column.key for column in columns[:3]] == ["name", "c1", "c2"]
    assert further
    assert {column.key for column in (*columns, *further)} == {column.key for column in WIDE}
    assert sum(len(column.label) + 5 for column in columns) <= 155
    body = html_text(ToolReport("teco x", "x", "done", WIDE, rows)).partition("<body>")[2]
    main, _, folded = body.partition('<details class="further">')
    assert main.count("<table") == folded.count("<table") == 1
    assert f">{further[-1].label}</th>" in folded


@pytest.mark.parametrize(("bad", "folded"), [([], False), ([3, 70], True)])
def test_bad_rows_of_a_long_table_are_first(bad: list[int], folded: bool) -> None:
    rows = [{"name": f"row{i}", "size": i} for i in range(80)]
    body = html_text(ToolReport("teco x", "x", "done", COLUMNS, rows, frozenset(bad))).partition("<body>")[2]
    assert ('<details class="rest">' in body) == folded
    first = re.findall(r'<table role="table" class="([^"]*)">.*?</table>', body, re.DOTALL)
    assert first == (["cards named", "cards named all"] if folded else ["cards named all"])
    if folded:
        marked = body[body.index("<table") : body.index("</table>")]
        assert re.findall(r"<span>(row\d+)</span>", marked) == ["row3", "row70"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(25557032, "25,557,032"), (101697.23, "101,697"), (999.7, "1,000"), (12.345, "12.3"), (0.99444, "0.99444"),
     (0.5, "0.5"), (1.5e-7, "1.5e-07"), (0, "0"), (0.0, "0"), (-2048, "-2,048"), (True, "True"), (inf, "inf"),
     (nan, "nan"), (1e20, "1e+20"), (None, "–"), ([1, 3, 1024], "1x3x1024")],
)  # fmt: skip
def test_numbers_have_separators_and_significant_digits(value: object, text: str) -> None:
    assert shown(value) == text


def test_names_of_files_in_headings_and_cells_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # taken for a terminal
    monkeypatch.delenv("NO_COLOR", raising=False)
    bad, text = "a\x1b]0;title\x07b\x1b[31mc\u202e", io.StringIO()
    columns = [Column("name", f"compared with {bad}"), Column("note", "note")]
    print_report(ToolReport("teco x", bad, bad, columns, [{"name": bad, "note": "n"}], notes=[bad]), text)
    printed = re.sub(r"\x1b\[[0-9;]*m", "", text.getvalue())  # rich's own
    assert not re.search("[\x1b\x07\u202e]", printed)
    assert "title" not in printed
    assert "31m" not in text.getvalue()


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
