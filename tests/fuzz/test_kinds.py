"""A few cases of every kind of fuzzing in each test run; .ci/long runs thirty minutes of each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support import ROOT

from tests.fuzz.kinds import KINDS

HANGS = 300
"""Timeout in seconds, for busy machines."""


def _attack(tmp_path: Path, cases: int, *kinds: str) -> None:
    out = tmp_path / "counts.json"
    words = [sys.executable, "-m", "tests.fuzz", *kinds, "--cases", str(cases), "--limit", str(HANGS)]
    words += ["--keep", str(tmp_path / "found"), "--json", str(out)]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    counts = json.loads(out.read_text())
    assert {name: kind["cases"] for name, kind in counts["kinds"].items()} == dict.fromkeys(kinds, cases)


@pytest.mark.slow
@pytest.mark.long
def test_two_cases_of_each_kind(tmp_path: Path) -> None:
    _attack(tmp_path, 2, *KINDS)


def test_every_kind_has_half_an_hour_in_the_suites() -> None:
    suites = yaml.safe_load((ROOT / ".ci" / "suites.yaml").read_text(encoding="utf-8"))
    commands = {name: command for name, command in suites.items() if name.startswith("fuzz-")}
    assert commands == {f"fuzz-{kind}": f"python -m tests.fuzz {kind} --minutes 30 --seed today" for kind in KINDS}


@pytest.mark.slow
@pytest.mark.long
def test_more_cases_of_each_kind(tmp_path: Path) -> None:
    _attack(tmp_path, 4, *KINDS)
