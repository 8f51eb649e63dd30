"""The benchmark of large runs runs, and its results are those of one process; figures are not asserted."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import ROOT


def run(tmp_path: Path, *flags: str) -> tuple[dict[str, Any], str]:
    result = tmp_path / "result.json"
    command = [sys.executable, str(ROOT / "benchmarks/scale/at_scale.py"), "--quick", "--json", str(result), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    return json.loads(result.read_text(encoding="utf-8")), done.stdout


@pytest.mark.slow
def test_a_list_and_many_parts(tmp_path: Path) -> None:
    data, out = run(tmp_path, "--only", "list", "parts")
    found = data["list"]
    assert (found["files"], found["samples"]) == (2000, 2 * 2 * 64)
    for row in found["processes"]:
        # Every file of the share of 1000: once for the list, twice for the journal; opened images, six folders.
        assert 3000 <= row["calls"]["stat"] < 3000 + 128 + 100
        assert row["calls"]["open"] == 128
        assert not {"os.listdir", "os.scandir"} & set(row["calls"])
    assert found["whole"]["calls"]["stat"] == 2000
    assert [(row["kind"], row["parts"]) for row in data["parts"]] == [
        *((kind, size) for kind in ("csv", "npz", "states") for size in (1, 200))
    ]
    assert "looked for" in out


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason='Ray is not installed (".[ray]")')
def test_workers_of_one_core(tmp_path: Path) -> None:
    data, out = run(tmp_path, "--only", "ray")
    assert [(row["target"], row["workers"]) for row in data["ray"]["rows"]] == [("sdaa", 1), ("sdaa", 2)]
    assert len({row["metric"] for row in data["ray"]["rows"]}) == 1
    assert [row["machines"] for row in data["ray"]["curve"]] == [1, 2, 4, 8, 16, 32, 64]
    assert all(row["running"] <= 1.01 * row["limit"] for row in data["ray"]["rows"])
    assert "predicted, 64 machines" in out
