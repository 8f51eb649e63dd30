"""The measurement of frames per second runs, and prints and writes what it measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import RunPython

pytestmark = [pytest.mark.slow, pytest.mark.long]


def test_a_short_run(run_python: RunPython, tmp_path: Path) -> None:
    pytest.importorskip("av")
    out = tmp_path / "out.json"
    words = ["--targets", "onnx", "null", "--frames", "20", "--rounds", "1", "--json", out]
    done = run_python("benchmarks/tools/video_speed.py", *words)
    assert done.returncode == 0, done.stderr
    assert "| `onnx` | " in done.stdout
    result = json.loads(out.read_text())
    assert result["schema_version"] == 1
    assert all(
        figure > 0 for found in result["frames_per_second"].values() for some in found.values() for figure in some
    )
