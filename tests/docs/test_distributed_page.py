"""``docs/how-to/training.md``, several devices: what it says is done."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from support import ROOT
from walkthrough import actions, bash, change
from zoo_copy import with_teco

PAGE = (ROOT / "docs" / "how-to" / "training.md").read_text(encoding="utf-8")
TEXT = PAGE.split("\n## 10. Several devices\n")[1].split("\n## ")[0]
SCRIPT, CHECKPOINT = "A script for several devices", "Save with four processes, continue with two"
SECTIONS = dict(re.findall(r"^### ([^\n]+)\n(.*?)(?=^### |\Z)", TEXT, re.MULTILINE | re.DOTALL))

pytestmark = pytest.mark.torch


def output(section: str, tmp_path: Path) -> str:
    """Return what the commands of a section print, in a folder of their own."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    folder = tmp_path / "mine"
    folder.mkdir()
    for action in actions(SECTIONS[section]):
        if action.kind == "file":
            change(action, folder)
    where = {**with_teco(ROOT, tmp_path / "bin"), "OMP_NUM_THREADS": "1"}
    del where["TECO_CACHE_DIR"]  # the compiled extension lies in the usual folder
    return "".join(bash(action.text, folder, where) for action in actions(SECTIONS[section]) if action.kind == "bash")


@pytest.mark.slow
@pytest.mark.long
def test_a_script_learns_on_two_and_on_four_devices(tmp_path: Path) -> None:
    printed = output(SCRIPT, tmp_path)
    assert re.findall(r"^(\d) devices: learned$", printed, re.MULTILINE) == ["2", "4"]
    assert "collectives (rings of copies between devices" in printed


@pytest.mark.slow
@pytest.mark.long
def test_a_checkpoint_of_four_ranks_is_resumed_on_two(tmp_path: Path) -> None:
    lines = output(CHECKPOINT, tmp_path).splitlines()
    first = [f"3 steps, 16 of 64 rows on sdaa:{rank}" for rank in range(4)]
    then = [f"6 steps, 32 of 64 rows on sdaa:{rank}" for rank in range(2)]
    assert sorted(line for line in lines if " steps, " in line) == first + then


def test_every_section_with_commands_is_run() -> None:
    assert [name for name, text in SECTIONS.items() if "```bash" in text] == [SCRIPT, CHECKPOINT]


def test_the_section_is_short() -> None:
    assert len(TEXT.splitlines()) <= 120
