"""docs/reference/arrays.md: its commands run, its Python code prints a metric, and its table of metrics is complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT
from zoo_copy import copy_zoo, with_teco

from utils.tasks.arrays.measures import KINDS

PAGE = (ROOT / "docs/reference/arrays.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_table_has_every_metric() -> None:
    section = PAGE.partition("## Metrics")[2].partition("##")[0]
    listed = {
        word for row in re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE) for word in re.findall(r"`(\w+)`", row)
    }
    assert listed - {"top5"} == set(KINDS)


@pytest.mark.slow
@pytest.mark.long
def test_the_commands_run(tmp_path: Path) -> None:
    zoo = copy_zoo(tmp_path / "zoo")
    environment = with_teco(zoo, tmp_path / "bin")
    script, calls = blocks("python")
    (zoo / "stereo.py").write_text(script, encoding="utf-8")
    (commands,) = blocks("bash")
    for line in commands.splitlines():
        words = ["bash", "-euo", "pipefail", "-c", line]
        done = subprocess.run(words, cwd=zoo, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (line, done.stdout[-2000:], done.stderr[-2000:])
    assert "PASS" in done.stdout
    assert len(list((zoo / "drawn").glob("*.png"))) == 12
    done = subprocess.run(
        [sys.executable, "-c", calls], cwd=zoo, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    name, value = done.stdout.split()[:2]
    assert name == "mae"
    assert 0 < float(value) < 1
