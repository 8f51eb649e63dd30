"""``docs/how-to/training.md``: what it says is done, each section by itself."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest
from support import ROOT
from walkthrough import actions, bash, change, follow, shown
from zoo_copy import copy_zoo, with_teco

PAGE = (ROOT / "docs" / "how-to" / "training.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\d+)\. [^\n]+\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
RUN = ("2", "3", "4", "6", "7")
ELSEWHERE = ("9", "10")
"""Sections with commands that test_mixed_precision_page.py and test_distributed_page.py run."""

pytestmark = pytest.mark.torch


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder with the files that the page says to write; each section runs by itself."""
    for name in ("torch", "sklearn"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    folder = tmp_path / "mine"
    folder.mkdir()
    for action in actions(PAGE):
        if action.kind == "file":
            change(action, folder)
    return folder


def environment(zoo: Path, tmp_path: Path) -> dict[str, str]:
    found = {**with_teco(zoo, tmp_path / "bin"), "OMP_NUM_THREADS": "1"}
    del found["TECO_CACHE_DIR"]  # the compiled extension lies in the usual folder
    return found


def output(folder: Path, section: str, tmp_path: Path) -> list[str]:
    """Return what each block of commands of a section prints."""
    where = environment(ROOT, tmp_path)
    return [bash(action.text, folder, where) for action in actions(SECTIONS[section]) if action.kind == "bash"]


@pytest.mark.slow
@pytest.mark.long
def test_a_script_prints_the_same_on_both_devices(folder: Path, tmp_path: Path) -> None:
    [printed] = output(folder, "2", tmp_path)
    lines = printed.splitlines()
    assert len(lines) == 8
    assert lines[:4] == lines[4:]
    assert float(lines[3].removeprefix("eval_metric ")) > 0.8


@pytest.mark.slow
@pytest.mark.long
def test_devices_memory_and_time(folder: Path, tmp_path: Path) -> None:
    [printed] = output(folder, "3", tmp_path)
    lines = printed.splitlines()
    said = [line for line in shown(SECTIONS["3"], "text") if line != "..."]
    assert [line for line in lines if line in said] == said
    [simulated] = re.findall(r"^([\d.]+) ms simulated$", printed, re.MULTILINE)
    assert float(simulated) > 0
    assert re.search(r"% of the simulated compute and copy time rests on assumed figures", printed)


@pytest.mark.slow
@pytest.mark.long
def test_which_operators_the_script_needs(folder: Path, tmp_path: Path) -> None:
    [printed] = output(folder, "4", tmp_path)
    assert "sdaa has everything the training needs" in printed
    rows = (folder / "operators.csv").read_text(encoding="utf-8").splitlines()
    assert any(row.startswith("aten::addmm,") for row in rows)


@pytest.mark.slow
@pytest.mark.long
def test_digits_are_trained_and_brought_back(folder: Path, tmp_path: Path) -> None:
    zoo = copy_zoo(tmp_path / "zoo")
    printed = follow(SECTIONS["6"], zoo, environment(zoo, tmp_path))
    metrics = [float(text) for text in re.findall(r"^eval_metric (\S+)$", printed, re.MULTILINE)]
    assert metrics[0] == metrics[2]  # all of it on the card, and half of it on the CPU
    [reference] = re.findall(r"^    reference: (\S+)$", SECTIONS["6"], re.MULTILINE)
    assert metrics[0] == pytest.approx(float(reference), abs=0.01)  # another build of torch may train slightly others
    simulated = r"^  simulated: .+ ms on sdaa:0; .+% of its compute and copies rests on assumed figures$"
    assert len(re.findall(simulated, printed, re.MULTILINE)) == 4 + 2
    assert "the same weights" in printed
    last = printed.splitlines()[-1]
    assert last.startswith("PASS: "), last


@pytest.mark.slow
@pytest.mark.long
def test_the_gate_passes_and_writes_its_page(folder: Path, tmp_path: Path) -> None:
    [printed] = output(folder, "7", tmp_path)
    assert shown(SECTIONS["7"], "text")[-1] in printed.splitlines()
    found = json.loads((folder / "gate.json").read_text(encoding="utf-8"))
    assert found["verdict"] == "PASS"
    assert {curve["device"] for curve in found["curves"]} == {"cpu", "sdaa"}
    assert (folder / "gate.html").read_text(encoding="utf-8").count("<polyline") == 4


def test_every_section_with_commands_is_run() -> None:
    assert list(SECTIONS) == [str(number) for number in range(1, 13)]
    assert tuple(name for name, text in SECTIONS.items() if "```bash" in text) == RUN + ELSEWHERE


def test_the_page_can_be_read() -> None:
    assert not [line for line in PAGE.splitlines() if len(line) > 150 and not line.startswith(("|", "SDAA out of"))]
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", PAGE)
    assert not [link for link in links if not (ROOT / "docs/how-to" / link).exists()]
