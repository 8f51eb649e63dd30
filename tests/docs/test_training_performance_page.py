"""``docs/how-to/training_performance.md``: its trainings profiled, mended and compared as it says."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest
from support import ROOT
from walkthrough import actions, bash, change, shown
from zoo_copy import with_teco

from tecoinfer_modelzoo.cache import cache_folder
from toolkit.training.profile import bottlenecks as rules

CACHE = cache_folder("torch_sdaa")
"""Asked before a test's own cache folder is set: what is compiled stays for all runs."""

PAGE = (ROOT / "docs" / "how-to" / "training_performance.md").read_text(encoding="utf-8").split("\n## 6. ")[0]

pytestmark = pytest.mark.torch


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_bottlenecks_are_reported_and_fixed(tmp_path: Path) -> None:
    where = {**with_teco(ROOT, tmp_path / "bin"), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    if CACHE is not None:
        where["TECO_CACHE_DIR"] = str(CACHE.parent)
    folder = tmp_path / "mine"
    folder.mkdir()
    printed = []
    for action in actions(PAGE):
        if action.kind == "file":
            change(action, folder)
        else:
            printed.append(bash(action.text, folder, where))
    profiled, compared, within = printed

    for line in shown(PAGE, "text"):
        parts = [re.escape(part) for part in line.split("...")]
        assert re.search(".*".join(parts), profiled + compared), line
    assert "none of the four classic bottlenecks" in compared
    found = json.loads((folder / "slow.json").read_text(encoding="utf-8"))
    kinds = [one["kind"] for one in found["bottlenecks"]]
    assert kinds == ["slow operator", "copies", "framework gaps", "recompilation"]

    for name, part, whole in re.findall(r"^(host|device) ([\d.]+) of ([\d.]+) s", within, re.MULTILINE):
        assert float(part) == pytest.approx(float(whole), rel=0.02), name
    assert within.count("'forward':") >= 2
    assert "a step:" in within


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    for said in (
        f"{rules.ALONE:.0%}".replace("%", " %") + f"; {rules.SLOW_SHARE:.0%}".replace("%", " %"),
        f"{rules.READS} a step, or {rules.NOTICED:.0%}".replace("%", " %"),
        f"{rules.CALLS} a step",
        f"{rules.UPLOAD_SHARE:.0%}".replace("%", " %")
        + f", or {rules.UPLOADS:.0%}".replace("%", " %")
        + f" with {rules.PARTS}",
        f"{rules.LOOP} a step, {rules.REPEATED} of one operator",
    ):
        assert said in PAGE, said


def test_the_page_is_short() -> None:
    assert len(PAGE.splitlines()) <= 230
