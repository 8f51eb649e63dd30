"""``docs/how-to/training.md``, mixed precision: its script, run in each way."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from support import ROOT
from walkthrough import actions, bash, change

PAGE = (ROOT / "docs" / "how-to" / "training.md").read_text(encoding="utf-8")
SECTION = PAGE.split("\n## 9. Mixed precision\n")[1].split("\n## ")[0]

pytestmark = pytest.mark.torch


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_each_way_trains(tmp_path: Path) -> None:
    """In float32 and at O0 it is one training, with torch.amp and at O1 another."""
    where = {name: value for name, value in os.environ.items() if name != "TECO_CACHE_DIR"}  # the extension is there
    where |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    where["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), where["PATH"]])
    printed = ""
    for action in actions(SECTION):
        if action.kind == "file":
            change(action, tmp_path)
        elif action.kind == "bash":
            printed = bash(action.text, tmp_path, where)
    lines = [line.split() for line in printed.splitlines() if not line.startswith(("apex.amp", "Gradient overflow"))]
    losses = {how: float(loss) for how, loss in lines}

    assert losses["none"] == losses["O0"]
    assert losses["torch"] == losses["O1"]
    assert losses["O2"] == pytest.approx(losses["none"], rel=0.02)


def test_the_section_is_short() -> None:
    assert len(SECTION.splitlines()) <= 90
