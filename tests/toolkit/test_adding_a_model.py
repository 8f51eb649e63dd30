"""docs/how-to/adding_a_model.md, contributions: its commands and files are run in a copy of the zoo."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from support import ROOT
from walkthrough import actions, bash, change
from zoo_copy import copy_zoo, with_teco

from model_config.cases.config import read_cases
from model_config.structure import check_structure

PAGE = (ROOT / "docs" / "how-to" / "adding_a_model.md").read_text(encoding="utf-8")
CHAPTERS = re.split(r"^(?=## \d\. [A-Z])", PAGE, flags=re.MULTILINE)
SEEN = ("my_mobilenet", "digits_mlp")


def chapter(model: str) -> str:
    (found,) = (text for text in CHAPTERS if f"teco new classification {model}" in text)
    return found


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("model", [pytest.param(name, marks=pytest.mark.long) for name in SEEN])
def test_walkthrough_ends_with_passed_check(model: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    zoo = copy_zoo(tmp_path / "zoo")
    environment = with_teco(zoo, tmp_path / "bin")
    last = ""
    for action in actions(chapter(model)):
        if action.kind != "bash":
            change(action, zoo)
            continue
        last = bash(action.text, zoo, environment)
    assert f"{model}" in last
    cases, problems = read_cases([zoo / "contrib/model_config/model.yaml"], zoo)
    assert not problems
    (case,) = (case for case in cases if case.name == model)
    assert check_structure(case, zoo) == []
    metrics = [float(text) for text in re.findall(r"eval_metric ([\d.]+)", _valid(model, zoo, environment))]
    if model == "digits_mlp":  # another build of torch may train slightly other weights
        shown = re.search(r"top-1 ([\d.]+) on 360", PAGE)
        assert shown is not None
        assert metrics == [pytest.approx(float(shown[1]), abs=0.01)]


def _valid(model: str, zoo: Path, environment: dict[str, str]) -> str:
    command = ["teco", "run", model, "valid"]
    return subprocess.run(command, cwd=zoo, env=environment, capture_output=True, text=True, check=True).stdout


def test_page_lists_steps_in_order() -> None:
    for model in SEEN:
        kinds = [action.kind for action in actions(chapter(model))]
        assert kinds[0] == kinds[-1] == "bash"
        assert {"file", "section"} <= set(kinds)
    assert [action.text for action in actions(PAGE)][-1].startswith("teco list")
