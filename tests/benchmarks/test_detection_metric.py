"""The benchmark of detection's metric runs, and all who measure find the same figure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT


@pytest.mark.slow
def test_all_find_the_same_figure(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    command = [sys.executable, str(ROOT / "benchmarks/detection_metric.py"), "--quick", "--json", str(result)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    medians = json.loads(result.read_text())["medians"]
    for who, figures in medians.items():
        assert figures["mAP"] == pytest.approx(medians["ours"]["mAP"], abs=1e-9), who
    assert medians["ours"]["resample"] > 0
    assert "a resample " in done.stdout
