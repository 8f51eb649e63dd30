"""The folders that recommend items: nothing of MovieLens in them, and a short training beats what is popular."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

from utils.fetch import UnreachableError, fetched

HOME = ROOT / "example" / "recommendation"
MODELS = {"sasrec": ["sasrec_dyn.onnx"], "two_tower": ["two_tower_query_dyn.onnx", "two_tower_item_dyn.onnx"]}
SHORT = {"sasrec": ("--steps", "200", "--history", "30"), "two_tower": ("--steps", "250")}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_neither_ratings_nor_weights_are_in_the_repository(name: str) -> None:
    found = subprocess.run(["git", "ls-files", HOME / name], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S607
    if found.returncode:
        pytest.skip("this is no clone")
    files = found.stdout.split()
    assert files
    assert {Path(file).suffix for file in files} <= {".py", ".md", ".txt", ".yaml"}
    for file in (f"{name}.pth", f"{name}_temporal.pth", *MODELS[name]):
        ignored = subprocess.run(["git", "check-ignore", "-q", HOME / name / file], cwd=ROOT, check=False)  # noqa: S607
        assert ignored.returncode == 0, file


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.torch
@pytest.mark.long
@pytest.mark.parametrize("name", ["sasrec", "two_tower"])
def test_a_short_training_beats_the_popular_films(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    try:
        fetched("ml_100k")
    except UnreachableError as error:
        pytest.skip(f"ml_100k cannot be fetched: {error}")
    folder = _copied(tmp_path, name)
    words = (*SHORT[name], "--forms", "dyn", "--exporter", "torchscript")
    done = _run(folder, "export_onnx.py", *words)
    assert done.returncode == 0, done.stderr
    done = _run(folder, "example_valid.py", "--target", "onnx", "--json", tmp_path / "r.json")
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["samples"] == 943
    assert found["metric"] > 1.1 * found["secondary"]["popular_ndcg10"]
    done = _run(folder, "example_valid.py", "--target", "onnx", "--split", "temporal")
    assert done.returncode == 2
    assert "was trained with the split leave_one_out" in done.stderr
    done = _run(folder, "example_single_batch.py", "--target", "onnx", "--history", "50", "181", "--topk", "2")
    assert done.returncode == 0
    assert "after Star Wars (1977); Return of the Jedi (1983)" in done.stdout


def _copied(root: Path, name: str) -> Path:
    """Return a folder's files as a clone has them, with the packages linked."""
    target = root / "example" / "recommendation" / name
    target.mkdir(parents=True)
    for file in (HOME / name).glob("*.py"):
        shutil.copy(file, target)
    for package in ("engine", "utils", "tecoinfer_modelzoo"):
        (root / package).symlink_to(ROOT / package)
    return target


def _run(folder: Path, script: str, *words: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(folder / script), *map(str, words)]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False, env=dict(os.environ))
