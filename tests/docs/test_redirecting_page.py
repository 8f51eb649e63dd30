"""``docs/how-to/migrating.md``, redirection: its script, run in each way, and on two devices."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support import ROOT
from walkthrough import actions, bash, change

PAGE = (ROOT / "docs" / "how-to" / "migrating.md").read_text(encoding="utf-8")
SECTION = PAGE.split("\n## 14. ")[1].split("\n## ")[0]

pytestmark = pytest.mark.torch


@pytest.mark.slow
@pytest.mark.long
def test_each_way_trains_equally(tmp_path: Path) -> None:
    core = pytest.importorskip("torch_sdaa.loading.core")
    where = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    where["TECO_CACHE_DIR"] = str(Path(core.C.__file__).parents[1])  # the extension is there
    where["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), where["PATH"]])
    printed = []
    for action in actions(SECTION):
        if action.kind == "file":
            change(action, tmp_path)
        else:
            printed.append(bash(action.text, tmp_path, where).splitlines())
    ways, ranks = printed

    assert len(ways) == 3
    assert len(set(ways)) == 1
    assert ways == ranks + ways[:1]  # the ranks have the same data, so that their mean is one process's
    assert (tmp_path / "report.json").is_file()


def test_the_section_is_short() -> None:
    assert len(SECTION.splitlines()) <= 150
