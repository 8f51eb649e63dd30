"""docs/how-to/adapting.md: its commands run, and its tables have every stage and every source."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support import ROOT
from walkthrough import follow
from zoo_copy import copy_zoo, with_teco

from toolkit.adapt.sources import SOURCES
from toolkit.adapt.table import STAGES

PAGE = (ROOT / "docs/how-to/adapting.md").read_text(encoding="utf-8")


def test_the_tables_are_complete() -> None:
    head = PAGE.partition("## MODEL")[0]
    assert re.findall(r"^\| `(\w+)` \|", head, re.MULTILINE) == [stage.name for stage in STAGES]
    listed = PAGE.partition("## MODEL")[2].partition("##")[0]
    assert all(source.form in listed or source.form.startswith("FOLDER") for source in SOURCES)


@pytest.mark.slow
@pytest.mark.long
def test_the_commands_run(tmp_path: Path) -> None:
    zoo = copy_zoo(tmp_path / "zoo")
    printed = follow(PAGE, zoo, with_teco(zoo, tmp_path / "bin"))
    assert "PASS: teco check given_digits" in printed
    assert printed.count("(kept)") >= len(STAGES) - 1
    found = json.loads((zoo / "adapt_given_digits/adapt.json").read_text(encoding="utf-8"))["stages"]
    assert found["check"]["facts"]["verdict"] == "PASS"
    assert found["onnx"]["facts"]["metric"] > 0.99
    assert (zoo / "contrib/example/classification/given_digits/README.md").is_file()
