"""docs/how-to/tools.md works: its commands print the shown lines."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT
from walkthrough import follow, shown
from zoo_copy import with_teco

from engine.passes import RULES

PAGE = (ROOT / "docs" / "how-to" / "tools.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the folder in which the page was followed, and all that its commands printed."""
    folder = tmp_path_factory.mktemp("tools")
    return folder, follow(PAGE, folder, with_teco(ROOT, folder / "bin"))


@pytest.mark.slow
@pytest.mark.long
def test_the_page_matches_the_output_of_the_commands(followed: tuple[Path, str]) -> None:
    lines = shown(PAGE)
    assert len(lines) == 3
    printed = {_rough(line) for line in followed[1].splitlines()}
    assert [line for line in lines if _rough(line) not in printed] == []


def _rough(line: str) -> str:
    """Return a line without digits that depend on the processor."""
    return re.sub(r"diff2 0\.\d+ at \S+", "diff2", line)


@pytest.mark.slow
@pytest.mark.long
def test_files_of_page_are_written(followed: tuple[Path, str]) -> None:
    folder, _ = followed
    names = [
        "compare.html",
        "host.h5",
        "card.h5",
        "last.h5",
        "some",
        "conv_case",
        "before.json",
        "trace.json",
        "operators.csv",
    ]
    assert [name for name in names if not (folder / name).exists()] == []
    assert json.loads((folder / "trace.json").read_text(encoding="utf-8"))["traceEvents"]


def test_functions_of_page_exist_and_python_runs() -> None:
    for name in set(re.findall(r"`(toolkit(?:\.\w+)+)`", PAGE)):
        module, _, function = name.rpartition(".")
        assert callable(getattr(importlib.import_module(module), function)), name
    code = re.search(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert code is not None
    done = subprocess.run(
        [sys.executable, "-c", f"{code[1]}\nprint(len(values))"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 10


def test_every_rule_is_in_its_table() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \| (\d+) \|$", PAGE, re.MULTILINE)
    assert rows == [(name, rule.matches, rule.becomes, str(rule.min_opset)) for name, rule in RULES.items()]
