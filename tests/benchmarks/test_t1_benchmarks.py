"""The scripts behind docs/explanation/t1_card.md run, and the committed card is the one they give."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

BENCHMARKS = ROOT / "benchmarks"


def run(name: str, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.long
@pytest.mark.slow
def test_the_fit_gives_the_committed_card_and_table(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    before = (ROOT / "engine/sdaa/t1.yaml").read_text(encoding="utf-8")
    done = run("fit_t1", "--check", "--json", str(tmp_path / "fit.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads((tmp_path / "fit.json").read_text(encoding="utf-8"))
    assert data["simulated"]
    assert data["errors"]["median_all"] <= 0.08
    assert data["errors"]["worst_all"] <= 0.20
    assert data["errors"]["median_all"] <= data["left_out"]["median_all"]
    assert (ROOT / "engine/sdaa/t1.yaml").read_text(encoding="utf-8") == before
    table = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(table) == 2 + 9 + 1 + 3
    document = (ROOT / "docs/explanation/t1_card.md").read_text(encoding="utf-8")
    assert all(line in document for line in table)


@pytest.mark.slow
def test_the_cost_of_splitting(tmp_path: Path) -> None:
    done = run("spa_split", "--quick", "--json", str(tmp_path / "split.json"))
    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "split.json").read_text(encoding="utf-8"))
    assert [(row["model"], row["spas"]) for row in data["rows"]] == [("digits", 4), ("digits", 3)]
    assert data["target"] == 0.03
    [half] = data["float16"]
    assert half["model"] == "digits"
    assert min(half["sdaa_ms"], half["onnx_ms"], half["ratio"]) > 0
