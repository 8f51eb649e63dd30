"""``docs/how-to/python.md`` and the READMEs: what they show of the Python calls runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import ROOT

from tecoinfer_modelzoo import FACE
from utils.pipeline.report.report import Report

PAGE, README = ((ROOT / name).read_text(encoding="utf-8") for name in ("docs/how-to/python.md", "README.md"))
SNIPPETS = [block for page in (README, PAGE) for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)]


def test_every_call_is_shown() -> None:
    assert [name for name in FACE if f"{name}(" not in "".join(SNIPPETS)] == []


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_runs(
    snippet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "example").symlink_to(ROOT / "example")
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet, "snippet", "exec"), {})  # noqa: S102
    printed, warned = capsys.readouterr()
    assert warned == ""
    for shown in re.findall(r"print\(.*\)  # (top1.*|\(.*\))$", snippet, re.MULTILINE):
        assert f"{shown}\n" in printed
    if ".save(" in snippet:
        assert list((tmp_path / "drawn").iterdir())


def test_the_table_lists_the_fields_of_a_report() -> None:
    section = PAGE.split("| of the report |")[1].split("\n\n")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    for name in re.findall(r"`(\w+)(?:\(\))?`", "".join(cells)):
        assert hasattr(Report, name) or name in Report.__dataclass_fields__
