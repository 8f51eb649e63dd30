"""``docs/how-to/migrating.md``: a CUDA script from nothing to trained, distributed and exported, as the page says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from support import ROOT
from walkthrough import actions, bash, change, shown
from zoo_copy import with_teco

TEXT = (ROOT / "docs" / "how-to" / "migrating.md").read_text(encoding="utf-8")
PAGE = TEXT.split("\n## 14. ")[0]
"""All but the details of two ways, which test_redirecting_page.py and test_transplant_page.py run."""

SECTIONS = dict(re.findall(r"^## (\d+)\. [^\n]+\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Follow the whole page; return what the commands of each section print."""
    for name in ("torch", "sklearn", "libcst", "onnxscript"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    folder = tmp_path_factory.mktemp("page") / "mine"
    folder.mkdir()
    environment = {**with_teco(ROOT, folder.parent / "bin"), "OMP_NUM_THREADS": "1"}
    environment.pop("TECO_CACHE_DIR", None)  # the compiled extension lies in the usual folder
    for action in actions(PAGE):
        if action.kind == "file":
            change(action, folder)
    return {
        number: "".join(bash(action.text, folder, environment) for action in actions(text) if action.kind == "bash")
        for number, text in SECTIONS.items()
    }


@pytest.mark.slow
@pytest.mark.long
def test_the_script_moves_in_every_way(printed: dict[str, str]) -> None:
    assert "sdaa has everything the training needs" in printed["3"]
    epochs = [line for line in printed["4"].splitlines() if line.startswith(("epoch ", "eval_metric "))]
    assert len(epochs) == 3
    assert [line for line in printed["5"].splitlines() if line in epochs] == [*epochs, *epochs]
    assert set(epochs) <= set(printed["6"].splitlines())
    said = printed["6"].splitlines()
    assert not [line for line in shown(SECTIONS["6"], "diff") if line != "..." and line not in said]


@pytest.mark.slow
@pytest.mark.long
def test_losses_are_the_same_in_every_way(printed: dict[str, str]) -> None:
    assert "the CPU has these losses too" in printed["7"]
    apart = re.findall(r"^(\S+) at most, over 44 steps$", printed["7"], re.MULTILINE)
    assert len(apart) == 2
    assert float(apart[0]) < 1e-3  # float32: rounding, grown over the steps
    assert float(apart[1]) < 0.1


@pytest.mark.slow
@pytest.mark.long
def test_checkpoints_gate_and_export(printed: dict[str, str]) -> None:
    assert "epoch 2" in printed["8"]
    assert shown(SECTIONS["10"], "text")[-1] in printed["10"].splitlines()
    metrics = [float(text) for text in re.findall(r"^eval_metric (\S+)$", printed["11"], re.MULTILINE)]
    assert len(metrics) == 3
    assert metrics[0] == metrics[1] == pytest.approx(metrics[2], abs=0.01)
    assert "no bad node" in printed["11"]


@pytest.mark.long
@pytest.mark.slow
def test_one_epoch_by_import_and_by_source(tmp_path: Path) -> None:
    for name in ("torch", "sklearn", "libcst"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    folder = tmp_path / "mine"
    folder.mkdir()
    environment = {**with_teco(ROOT, tmp_path / "bin"), "OMP_NUM_THREADS": "1"}
    for action in actions(PAGE):
        if action.kind == "file":
            change(action, folder)
    made = next(action.text for action in actions(SECTIONS["4"])).replace("python by_import.py", "")
    moved = "teco transplant -i train.py -o moved --html moved.html\n"
    assert moved in SECTIONS["6"]
    runs = "".join(
        f"python {script} --epochs 1 --batch-size 704 --losses {name}\n"
        for script, name in (("by_import.py", "one"), ("moved/mine_msft/train.py", "other"))
    )
    bash(made + moved + runs + "cmp one other", folder, environment)


def test_the_script_on_the_page_is_one() -> None:
    [script] = [action.text for action in actions(PAGE) if action.kind == "file" and action.where == "train.py"]
    compile(script, "train.py", "exec")
    assert 100 <= len(script.splitlines()) <= 150
    assert "sdaa" not in script


def test_the_page_can_be_read() -> None:
    assert list(SECTIONS) == [str(number) for number in range(1, 14)]
    assert not [line for line in TEXT.splitlines() if len(line) > 150 and not line.startswith("|")]
