"""Raw outputs, which a check of random weights compares: a row per image, whatever the sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import ROOT, RunPython

FOLDER = ROOT / "example/restoration/espcn_x2"


@pytest.mark.slow
def test_images_of_several_sizes(run_python: RunPython, tmp_path: Path) -> None:
    result = tmp_path / "raw.json"
    flags = ["--target", "onnx", "--skip_postprocess", "true", "--json", str(result)]
    done = run_python(str(FOLDER / "example_multi_batch.py"), *flags)
    assert done.returncode == 0, done.stderr
    found = json.loads(result.read_text(encoding="utf-8"))["answers"]
    names = sorted(path.name for path in (FOLDER / "data/samples").iterdir() if path.suffix == ".jpg")
    assert sorted(Path(answer["name"]).name for answer in found) == names
    assert len(names) >= 2
