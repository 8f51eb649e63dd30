"""``docs/how-to/migrating.md``, rewriting: its script is converted, and trained on one device and on two."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import ROOT
from walkthrough import actions, bash, change, shown
from zoo_copy import with_teco

torch = pytest.importorskip("torch")
pytest.importorskip("libcst")

PAGE = (ROOT / "docs" / "how-to" / "migrating.md").read_text(encoding="utf-8").split("\n## 15. ")[1]

pytestmark = pytest.mark.torch


@pytest.mark.slow
@pytest.mark.long
def test_the_page_works(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    found = {**with_teco(ROOT, tmp_path / "bin"), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    del found["TECO_CACHE_DIR"]  # the compiled extension lies in the usual folder
    printed = []
    for action in actions(PAGE):
        if action.kind == "bash":
            printed.append(bash(action.text, tmp_path, found))
        else:
            change(action, tmp_path)
    for line in shown(PAGE, "text"):
        assert any(said.startswith(line) for said in printed[0].splitlines()), line
    assert re.findall(r"^epoch (\d) loss", printed[1], re.MULTILINE) == ["0", "1", "2"]  # once, by one process
    files = [tmp_path / folder / "project_msft" / "model.pt" for folder in ("moved", "several")]
    saved = [torch.load(file, map_location="cpu") for file in files]
    assert [list(state) for state in saved] == [["0.weight", "0.bias", "2.weight", "2.bias"]] * 2
    assert printed[2].splitlines()[-1] == "1"


def test_the_section_is_short() -> None:
    assert len(PAGE.splitlines()) <= 130
