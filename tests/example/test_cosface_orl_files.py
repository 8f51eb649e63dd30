"""CosFace's folder: it holds nothing of the ORL faces, and a short training tells people apart."""

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

FOLDER = ROOT / "example" / "face" / "cosface_orl"


def test_neither_faces_nor_weights_are_in_the_repository() -> None:
    found = subprocess.run(["git", "ls-files", FOLDER], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S607
    if found.returncode:
        pytest.skip("this is no clone")
    files = found.stdout.split()
    assert files
    assert {Path(file).suffix for file in files} <= {".py", ".md", ".txt", ".yaml"}
    for name in ("faces/test/s31/01.png", "cosface_orl.pth", "cosface_orl_dyn.onnx", "centerface_dyn.onnx"):
        ignored = subprocess.run(["git", "check-ignore", "-q", FOLDER / name], cwd=ROOT, check=False)  # noqa: S607
        assert ignored.returncode == 0, name


def test_script_without_model_names_the_export_command(tmp_path: Path) -> None:
    folder = _copied(tmp_path)
    done = _run(folder, "example_valid.py")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: model file ")
    assert "make it: python " in line
    assert line.endswith("export_onnx.py")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.torch
def test_short_training_separates_unseen_people(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for name in ("centerface", "orl_faces"):
        try:
            fetched(name)
        except UnreachableError as error:
            pytest.skip(f"{name} cannot be fetched: {error}")
    folder = _copied(tmp_path)
    done = _run(folder, "export_onnx.py", "--steps", "150", "--forms", "dyn")
    assert done.returncode == 0, done.stderr
    assert len(list((folder / "faces" / "train").glob("*/*.png"))) == 300
    assert {path.name for path in (folder / "faces" / "test").iterdir()} == {f"s{n}" for n in range(31, 41)}
    done = _run(folder, "example_valid.py", "--target", "onnx", "--json", tmp_path / "r.json")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "r.json").read_text())["metric"] > 0.65


def _copied(root: Path) -> Path:
    """Return the folder's files as a clone has them, beside CenterFace's, with the packages linked."""
    for name in ("cosface_orl", "centerface"):
        target = root / "example" / "face" / name
        target.mkdir(parents=True)
        for file in (FOLDER.parent / name).glob("*.py"):
            shutil.copy(file, target)
    for package in ("engine", "utils", "tecoinfer_modelzoo"):
        (root / package).symlink_to(ROOT / package)
    return root / "example" / "face" / "cosface_orl"


def _run(folder: Path, script: str, *words: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(folder / script), *map(str, words)]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False, env=dict(os.environ))
