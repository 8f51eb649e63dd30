"""Tests of the terminal, JSON, JUnit and Markdown reports on artificial results."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from hypothesis import given, strategies as st
from report_samples import FAILED, HOSTILE, OPEN, PASSED, SLOW, Samples
from support import ROOT

from engine import ConfigError
from model_config import results
from model_config.reports import html_page, junit_xml, markdown, print_table, write_text
from model_config.reports.looks import case_look, check_look, look_of
from model_config.reports.markdown import LIMIT, escape
from model_config.reports.plots import difference_plot, ratio_plot, tail_plot
from model_config.reports.text import EXIT_MEANINGS, domain_of, exit_line, read_log
from model_config.results import CaseResult, CheckResult, StepResult, Verdict
from tecoinfer_modelzoo.extra import extra
from tecoinfer_modelzoo.formatting import clean, seconds
from utils.pipeline.report.report import write_json

SCHEMA = json.loads((ROOT / "model_config/reports/schema.json").read_text(encoding="utf-8"))
EMPTY = CheckResult(())


@pytest.fixture
def samples(tmp_path: Path) -> Samples:
    return Samples(tmp_path)


def variants(samples: Samples) -> dict[str, CheckResult]:
    check = samples.check()
    return {
        "full": check,
        "empty": EMPTY,
        "interrupted": replace(check, cases=check.cases[:1], interrupted=True),
        "problems": CheckResult((), ("model.yaml:3: is not YAML; mend it", HOSTILE)),
        "hostile": replace(
            check,
            cases=(samples.hostile(),),
            problems=(HOSTILE,),
            commit=HOSTILE,
            date=HOSTILE,
            environment={HOSTILE: HOSTILE},
        ),
    }


VARIANTS = ("full", "empty", "interrupted", "problems", "hostile")


def shown(check: CheckResult, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    print_table(check, file)
    file.flush()
    return raw.getvalue().decode(encoding)


# ---------------------------------------------------------------------------------------------------------- terminal


def test_the_table_has_a_row_per_case_and_full_reasons(samples: Samples) -> None:
    check = samples.check()
    long = replace(check.cases[1], findings=(replace(check.cases[1].findings[0], message="x" * 3000),))
    check = replace(check, cases=(check.cases[0], long, *check.cases[2:]))
    lines = shown(check).splitlines()
    for case in check.cases:
        row = next(line for line in lines if line.startswith(case.case + " "))
        assert [part.value in row for part in case.parts.values() if part is not Verdict.NONE]
        assert ("cached" in row) == case.cached
        judged = [one.reason for one in case.accuracy]
        assert all(f"{case.case}: {reason}" in lines for reason in case.reasons if reason not in judged)
        said = [f"{case.case}: {one.verdict.value}: {one.reason}" for one in case.accuracy if one.reason]
        begin = lines.index(said[0]) if said else 0
        assert lines[begin : begin + len(said)] == said
    row = next(line for line in lines if line.startswith("yolov5s"))
    assert row.split() == [
        "yolov5s",
        "onnx",
        "FAIL",
        "FAIL",
        "FAIL",
        "FAIL",
        "0.3671",
        "−2.11",
        "%",
        "1",
        "min",
        "14",
        "s",
    ]
    assert lines[-1] == "FAIL: 2 FAIL, 1 INCONCLUSIVE, 1 PASS (part), 2 PASS; exit code 1: something failed"
    assert any("digits" in line and "360 samples" in line for line in lines)
    assert "\x1b" not in "".join(lines)


def test_partial_pass_has_own_look_in_every_report(samples: Samples) -> None:
    part = samples.good("few")
    whole = replace(part, case="whole", partial="")
    check = CheckResult((part, whole))
    few, all_of_it, *_ = (line for line in shown(check).splitlines() if line.startswith(("few ", "whole ")))
    assert ("PASS (part)" in few, "PASS (part)" in all_of_it) == (True, False)
    lines = markdown(check).splitlines()
    rows = {row.split(" | ")[1]: row for row in lines if row.startswith("| ")}
    assert rows["few"].startswith("| 🟡 |")
    assert "🟡 PASS (part)" in rows["few"]
    assert "🟡" not in rows["whole"]
    assert lines[0] == "## 🟡 PASS: 1 PASS (part), 1 PASS"
    html = html_page(check)
    assert re.search(r'id="case-few".*?badge v-partial.*?PASS \(part\)', html, re.DOTALL)
    assert '<header class="top v-partial">' in html
    assert '<details class="case card v-pass" id="case-whole"' in html
    assert check.exit_code == 0
    assert [case["verdict"] for case in check.to_dict()["cases"]] == ["PASS", "PASS"]
    assert check.to_dict()["verdict"] == "PASS"


def test_a_partial_pass_is_yellow_on_a_terminal(samples: Samples) -> None:
    from rich.console import Console

    from model_config.reports.terminal import _table

    console = Console(force_terminal=True, color_system="standard", width=200, no_color=False)
    check = CheckResult((samples.good("few"), replace(samples.good("whole"), partial="")))
    with console.capture() as capture:
        console.print(_table(check, console))
    few, sure = (next(line for line in capture.get().splitlines() if name in line) for name in ("few", "whole"))
    assert "\x1b[33m" in few
    assert "\x1b[33m" not in sure


def test_a_failure_with_a_partial_pass_is_a_failure(samples: Samples) -> None:
    case = replace(samples.good(), accuracy=(replace(FAILED), *samples.good().accuracy))
    assert case_look(case) == look_of(case.verdict) == look_of(Verdict.FAIL)
    assert check_look(CheckResult((case, samples.good()))) == look_of(Verdict.FAIL)
    assert check_look(CheckResult((replace(samples.good(), accuracy=(OPEN,)),))) == look_of(Verdict.INCONCLUSIVE)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "gbk", "latin-1"])
@pytest.mark.parametrize("name", VARIANTS)
def test_any_result_can_be_printed_in_any_encoding(name: str, encoding: str, samples: Samples) -> None:
    check = variants(samples)[name]
    text = shown(check, encoding)
    assert text.splitlines()[-1].endswith(exit_line(check))
    assert not re.search("[\x00-\x08\x1b\u202e]", text)


def test_every_exit_code_has_a_meaning() -> None:
    assert {*results.EXIT_CODES.values(), 2, 130} == set(EXIT_MEANINGS)
    assert shown(EMPTY).strip() == "not judged: no cases; exit code 0: nothing failed"


def test_a_missing_package_is_one_line_with_the_command() -> None:
    with (
        pytest.raises(ConfigError, match=r'the page needs the package nowhere_x.*\n?.*-e "\.\[check\]"'),
        extra("the page"),
    ):
        import nowhere_x  # noqa: F401


def test_importing_the_reports_needs_nothing_extra() -> None:
    code = (
        "import sys\nfor name in ('rich', 'jinja2', 'jsonschema', 'scipy', 'matplotlib'): sys.modules[name] = None\n"
        "from model_config.reports import print_table\nfrom model_config.results import CheckResult\n"
        "try: print_table(CheckResult(()))\nexcept Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("ConfigError the table needs the package rich,")


# -------------------------------------------------------------------------------------------------------------- JSON


@pytest.mark.parametrize("name", VARIANTS)
def test_results_fit_the_schema(name: str, samples: Samples, tmp_path: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    check = variants(samples)[name]
    if name == "hostile":  # a bucket is one of a few words
        check = replace(check, cases=(replace(check.cases[0], speed=(SLOW,)),))
    write_json(check.to_dict(), tmp_path / "check.json")
    jsonschema.validate(json.loads((tmp_path / "check.json").read_text(encoding="utf-8")), SCHEMA)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_figures_that_are_not_finite_fit_the_schema(value: float, tmp_path: Path) -> None:
    case = CaseResult("a", "b", accuracy=(replace(FAILED, metric=value, interval=(-value, value)),))
    write_json(CheckResult((case,)).to_dict(), tmp_path / "check.json")
    jsonschema.validate(json.loads((tmp_path / "check.json").read_text(encoding="utf-8")), SCHEMA)


def test_schema_has_every_field_and_version() -> None:
    assert SCHEMA["properties"]["schema_version"]["const"] == results.SCHEMA_VERSION
    assert SCHEMA["$id"].endswith(f":{results.SCHEMA_VERSION}")
    assert SCHEMA["$defs"]["verdict"]["enum"] == [verdict.value for verdict in Verdict]
    definitions = SCHEMA["$defs"]
    added = {"check": {"schema_version", "kind", "verdict"}, "case": {"verdict", "parts", "reasons"}}
    pairs = {"case": CaseResult, "finding": results.Finding, "step": StepResult}
    pairs |= {"accuracy": results.Accuracy, "speed": results.Speed, "check": CheckResult}
    for name, kind in pairs.items():
        described = SCHEMA if name == "check" else definitions[name]
        fields = {field.name for field in dataclasses.fields(kind)} | added.get(name, set())
        assert set(described["properties"]) == set(described["required"]) == fields, name
        assert all("description" in one for one in described["properties"].values()), name


@pytest.mark.parametrize("change", [{"schema_version": 1}, {"verdict": "maybe"}, {"cases": {}}, {"interrupted": 1}])
def test_schema_rejects_invalid_results(change: dict[str, Any], samples: Samples) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(samples.check().to_dict() | change, SCHEMA)


# ------------------------------------------------------------------------------------------------------------- JUnit


def parsed(check: CheckResult) -> ElementTree.Element:
    return ElementTree.fromstring(junit_xml(check).encode())  # noqa: S314


@pytest.mark.parametrize("name", VARIANTS)
def test_junit_parses_back_and_counts_right(name: str, samples: Samples) -> None:
    root = parsed(variants(samples)[name])
    assert root.tag == "testsuites"
    for element in (root, *root):
        for attribute, tag in (
            ("tests", "testcase"),
            ("failures", "failure"),
            ("errors", "error"),
            ("skipped", "skipped"),
        ):
            assert int(element.get(attribute, "-1")) == len(list(element.iter(tag)))


def outcomes(suite: ElementTree.Element) -> dict[str, list[str]]:
    return {f"{test.get('classname')} {test.get('name')}": [child.tag for child in test] for test in suite}


def test_junit_has_a_suite_per_case_and_a_test_per_part(samples: Samples) -> None:
    check = samples.check()
    root = parsed(check)
    suites = {str(suite.get("name")): suite for suite in root}
    assert list(suites) == [case.case for case in check.cases]
    broken = outcomes(suites["yolov5s"])
    assert broken["yolov5s.structure absolute-path"] == broken["yolov5s.structure readme-headings"] == ["failure"]
    assert broken["yolov5s.function export"] == ["system-out"]
    assert broken["yolov5s.function valid"] == ["failure", "system-out", "system-err"]
    assert broken["yolov5s.accuracy 1 train.py, PyTorch"] == ["failure"]
    assert broken["yolov5s.speed 2 simulated time per sample"] == ["failure"]
    assert outcomes(suites["mobilenet_v2"])["mobilenet_v2.accuracy 1 onnx float32"] == ["error"]
    assert outcomes(suites["digits"])["digits.accuracy 1 onnx float32"] == ["system-out"]
    assert outcomes(suites["digits"])["digits.accuracy 2 train.py, PyTorch"] == ["system-out"]
    assert outcomes(suites["resnet18_random"])["resnet18_random.speed 1 simulated time per sample"] == ["skipped"]
    assert ("cached", "true") in {
        (one.get("name"), one.get("value")) for one in suites["resnet18_random"].iter("property")
    }
    assert "ValueError: shapes (4, 3)" in str(suites["yolov5s"].findtext("testcase/system-err"))


def test_junit_passes_exactly_where_the_check_does(samples: Samples) -> None:
    for case in samples.check().cases:
        root = parsed(CheckResult((case,)))
        bad = int(root.get("failures", "0")) + int(root.get("errors", "0"))
        assert (bad == 0) == (case.verdict in (Verdict.PASS, Verdict.NONE)), case.case


def test_a_step_that_never_ended_is_an_error(samples: Samples) -> None:
    step = replace(samples.step("a", "valid", reason="timed out after 5 s"), exit_code=None)
    root = parsed(CheckResult((CaseResult("a", "b", steps=(step,)),), interrupted=True))
    assert [one.get("message") for one in root.iter("error")] == [
        "interrupted: not every case was run",
        "timed out after 5 s",
    ]


@given(st.text(st.characters()))
def test_any_text_survives_as_xml(text: str) -> None:
    root = parsed(CheckResult((CaseResult("a", "b", notes=(text,)),), (text,)))
    assert root.get("errors") == "1"


# ---------------------------------------------------------------------------------------------------------- Markdown


def test_markdown_has_verdict_table_and_failing_cases(samples: Samples) -> None:
    lines = markdown(samples.check()).splitlines()
    assert lines[0] == "## ❌ FAIL: 2 FAIL, 1 INCONCLUSIVE, 1 PASS (part), 2 PASS"
    rows = [line for line in lines if line.startswith("| ")]
    assert [row.split(" | ")[1] for row in rows[1:]] == [
        "yolov5s", "skeleton", "mobilenet\\_v2", "digits", "resnet18\\_random", "中文模型",
    ]  # fmt: skip
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {11}
    summaries = [line for line in lines if "<summary>" in line]
    names = [re.findall("summary>. (.*?):", line) for line in summaries]
    assert names == [["yolov5s"], ["skeleton"], ["mobilenet_v2"], []]
    assert lines.count("</details>") == 4
    passed = lines[lines.index(summaries[-1]) :]
    reason = "-0.02 % is proven to be within 0.1 %"
    assert passed.count(f"- digits: PASS: {reason}") == 2
    assert any(line.startswith("- 🟡 digits: ") and "360 samples" in line for line in lines)
    assert "ValueError: shapes (4, 3) and (2, 4) not aligned" in lines


def outside_fences(text: str) -> str:
    kept, fence = [], ""
    for line in text.split("\n"):
        if fence:
            fence = "" if line == fence else fence
        elif found := re.fullmatch("(`{3,})text", line):
            fence = found[1]
        else:
            kept.append(line)
    assert not fence
    return "\n".join(kept)


def test_hostile_texts_are_escaped_in_markdown(samples: Samples) -> None:
    text = outside_fences(markdown(variants(samples)["hostile"]))
    assert set(re.findall("<[^>]*>", text)) == {"<details>", "</details>", "<summary>", "</summary>"}
    assert not re.search(r"@\w|#\d|\w://|\x1b|\x00|\u202e", text)
    markup = [line for line in text.splitlines() if "<summary>" not in line]  # raw HTML, in which a backtick is literal
    assert not any(re.search(r"(?<!\\)`", line) for line in markup)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {11}


@given(st.text(st.characters()))
def test_escaped_text_is_one_line_without_markup(text: str) -> None:
    done = escape(text)
    assert len(done.splitlines()) <= 1
    assert not re.search(r"<|>|@\w|(?<!\\)(\\\\)*[`*_|\[\]~]", done)
    assert not re.match(r"[-+#]|\d+[.)]", done)


def test_markdown_keeps_to_the_limit(samples: Samples) -> None:
    log = samples.log("long", "a very long line of a log\n" * 9000)
    step = replace(samples.step("x", "valid", reason="r" * 5000), stderr=log)
    finding = replace(samples.broken().findings[0], message="m" * 900)
    many = tuple(CaseResult(f"case_{n}", "example/a/b", "onnx", (finding,) * 90, (step,) * 4) for n in range(400))
    text = markdown(CheckResult(many, ("p" * 3000,) * 200))
    assert len(text) <= LIMIT
    for what in ("problems", "cases", "failing cases"):
        assert re.search(rf"_\d+ more {what} left out: too long for a comment\._", text), what
    assert text.count("<details>") == text.count("</details>") > 0
    one = markdown(CheckResult(many[:1]))
    assert len(one) <= LIMIT
    assert "[... the beginning is omitted]" in one
    assert re.search(r"_\d+ more reasons left out", one)


# ------------------------------------------------------------------------------------------------------------- texts


def test_clean_keeps_text_visible_on_terminal() -> None:
    assert clean("\x1b[1;31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07") == "red link"
    assert clean("10%\r50%\r100%\r\nnext\r") == "100%\nnext"
    assert clean("a\x00b\x85c\ud800d\u202ee\ttab 中文 😀") == "a\ufffdb\ufffdc\ufffdd\ufffde\ttab 中文 😀"


def test_only_the_end_of_a_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 100 + "\n末尾\n\n".encode())
    log = read_log(path, 12)
    assert (log.text, log.left_out) == ("xxx\n末尾", 97)
    assert log.tail(1, 99) == "[... the beginning is omitted]\n末尾"
    assert read_log(tmp_path / "none", 10).text == read_log(tmp_path, 10).text == ""


def test_figure_formats() -> None:
    times = [0.0, 1.23e-6, 0.00123, 1.5, 59.9, 125.2, float("nan"), None]
    assert [seconds(value) for value in times] == [
        "0 s",
        "1.23 µs",
        "1.23 ms",
        "1.5 s",
        "59.9 s",
        "2 min 05 s",
        "–",
        "–",
    ]
    assert [domain_of(name) for name in ("example/a/b", "TecoInference/contrib/example/a/b", "x/y", "example/x")] == [
        "a",
        "a",
        "",
        "",
    ]


def test_unwritable_report(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"report .* cannot be written"):
        write_text("x", tmp_path / "file" / "out.html")
    write_text("中\ud800", tmp_path / "new" / "out.html")
    assert (tmp_path / "new" / "out.html").read_text(encoding="utf-8") == "中?"


@pytest.mark.parametrize("one", [PASSED, OPEN, FAILED, replace(FAILED, relative_difference=-1.0, interval=None)])
def test_difference_plots_are_within_range(one: results.Accuracy) -> None:
    plot = difference_plot(one)
    assert plot is not None
    spans = [span for span in (plot.band, plot.interval) if span]
    assert all(left >= 0 and width >= 0 and left + width <= 100 for left, width in spans)
    assert 0 <= plot.point <= 100
    assert plot.zero == pytest.approx(50)
    assert 3 <= len(plot.ticks) <= 5
    assert difference_plot(replace(one, relative_difference=float("nan"))) is None


@pytest.mark.parametrize("largest", [1e-6, 0.3, 1.0, 40.0])
def test_tail_plots_are_within_range(largest: float) -> None:
    curve = tuple((largest / rank, rank / 100) for rank in (1, 2, 5, 100))
    plot = tail_plot(replace(PASSED, tail=curve))
    assert plot is not None
    places = [tuple(map(float, point.split(","))) for point in plot.points.split()]
    assert all(0 <= x <= 100 and 0 <= y <= 100 for x, y in places)
    assert places[0][1] == 100
    assert places[-1][1] == 0
    assert 0 <= plot.change <= 100
    assert all(0 <= tick.x <= 100 for tick in plot.ticks)
    assert tail_plot(PASSED) is None


@pytest.mark.parametrize("ratio", [1e-3, 0.5, 0.97, 1.0, 1.3, 2.0, 40.0, 1e6])
def test_ratio_plots_are_within_range(ratio: float) -> None:
    plot = ratio_plot(replace(SLOW, ratio=ratio))
    assert plot is not None
    assert all(0 <= x <= 100 for x in (plot.point, plot.one, *(tick.x for tick in plot.ticks)))
    assert (plot.point > plot.one) == (ratio > 1)
    assert all(ratio_plot(replace(SLOW, ratio=bad)) is None for bad in (None, 0.0, -1.0, float("inf")))
