"""``docs/redirecting_cuda.md``: its script, run in each way, and on two devices."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from support import ROOT
from walkthrough import actions, bash, change

PAGE = (ROOT / "docs" / "redirecting_cuda.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.torch


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_each_way_trains_alike(tmp_path: Path) -> None:
    where = {name: value for name, value in os.environ.items() if name != "TECO_CACHE_DIR"}  # the extension is there
    where |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    where["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), where["PATH"]])
    printed = []
    for action in actions(PAGE):
        if action.kind == "file":
            change(action, tmp_path)
        else:
            printed.append(bash(action.text, tmp_path, where).splitlines())
    ways, ranks = printed

    assert len(ways) == 3
    assert len(set(ways)) == 1
    assert ways == ranks + ways[:1]  # the ranks have the same data, so that their mean is one process's
    assert (tmp_path / "report.json").is_file()


def test_the_page_is_short() -> None:
    assert len(PAGE.splitlines()) <= 150
