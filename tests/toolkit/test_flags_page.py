"""docs/reference/flags.md equals the parsers, and former names of flags are accepted but not listed."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from support import ROOT, RunPython

from tecoinfer_modelzoo.flags import hide_aliases
from toolkit.cli import execute
from toolkit.command_table import COMMANDS
from toolkit.flags_page import KINDS, PAGE, PROGRAMS, page, parser_of, write_flags


def test_page_is_up_to_date(run_python: RunPython) -> None:
    done = run_python("-c", "import sys, toolkit.flags_page as f; sys.stdout.buffer.write(f.page().encode())")
    written = (ROOT / PAGE).read_text(encoding="utf-8")
    assert done.stdout == written, "run: teco site --write_docs"


def test_page_lists_every_command_and_no_absolute_path(tmp_path: Path) -> None:
    text = write_flags(tmp_path).read_text(encoding="utf-8")
    assert text == page()
    assert str(ROOT) not in text
    headings = {f"## teco {name} {kind}".rstrip() for name in COMMANDS for kind in KINDS.get(name, ("",))}
    headings |= {f"## {name}" for name in PROGRAMS}
    assert headings <= set(text.splitlines())
    for known in ("`--scenario {", "`--watch [SECONDS]`", "`--against FILE`"):
        assert known in text, known


@pytest.mark.parametrize(
    ("words", "flag", "former"),
    [
        (("check",), "--changed_since", "--changed-since"),
        (("check",), "--memory_limit", "--memory"),
        (("check",), "--work_dir", "--work-dir"),
        (("check",), "--no_cache", "--no-cache"),
        (("check",), "--no_host_speed", "--no-host-speed"),
        (("ops", "--training"), "--timeout", "--seconds"),
        (("table",), "--batch_size", "--batches"),
        (("train-gate",), "--work_dir", "--keep"),
        (("transplant",), "--out", "--output"),
        (("transplant",), "--specify_device", "--specify-device"),
    ],
)
def test_former_flags_are_hidden_aliases(words: tuple[str, ...], flag: str, former: str) -> None:
    parser = parser_of(*words)
    assert parser._option_string_actions[former] is parser._option_string_actions[flag]
    assert flag in parser.format_help()
    assert f"{former} " not in parser.format_help()


def test_help_lists_one_short_line_per_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 90 for line in lines)
    assert len(lines) == len(COMMANDS) + 5


def test_alias_is_parsed_as_its_flag() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--new_name", type=int)
    hide_aliases(parser, "--new_name", "--old-name")
    assert parser.parse_args(["--old-name=3"]).new_name == parser.parse_args(["--new_name", "3"]).new_name == 3
