"""``contrib/utils`` is merged after the zoo's ``utils``, for every way of putting the zoo on the path."""

from __future__ import annotations

import shutil
import site
import subprocess
import sys
import venv
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

SCRIPT = """
import sys
from pathlib import Path
sys.path.append(str(Path(__file__).resolve().parent.parent.parent.parent))

import numpy as np
from engine.tecoinfer_pytorch import TecoInferEngine
from utils.datasets.image_classification_dataset import load_data
from utils.preprocess.pytorch import classification
from utils.preprocess.pytorch.xyz import preprocess

assert preprocess(np.ones(3)).sum() == 6
print(classification.__file__)
"""

XYZ = "def preprocess(x):\n    return 2 * x\n"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def contributed(tmp_path: Path) -> Path:
    """Return a script in a copy of ``contrib/`` that holds a module of its own and one that names itself like ours."""
    contrib = tmp_path / "contrib"
    shutil.copytree(ROOT / "contrib" / "utils", contrib / "utils", ignore=shutil.ignore_patterns("__pycache__"))
    pytorch = contrib / "utils" / "preprocess" / "pytorch"
    (pytorch / "xyz.py").write_text(XYZ, encoding="utf-8")
    (pytorch / "classification.py").write_text("raise RuntimeError('contrib shadows the zoo')\n", encoding="utf-8")
    script = contrib / "example" / "classification" / "xyz" / "example_valid.py"
    script.parent.mkdir(parents=True)
    script.write_text(SCRIPT, encoding="utf-8")
    return script


def check(done: subprocess.CompletedProcess[str], root: Path) -> None:
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()) == root / "utils" / "preprocess" / "pytorch" / "classification.py"


def test_with_pythonpath(contributed: Path, run_python: Run, tmp_path: Path) -> None:
    check(run_python(contributed, cwd=tmp_path, path=[ROOT]), ROOT)


def test_with_a_pth_file_as_an_editable_install_leaves_it(contributed: Path, run_python: Run, tmp_path: Path) -> None:
    """A real interpreter reads a real ``.pth`` file at its start; the second line lends it this one's packages."""
    venv.create(tmp_path / "venv", symlinks=True)
    (packages,) = (tmp_path / "venv").rglob("site-packages")
    lines = [str(ROOT), *site.getsitepackages()]
    (packages / "__editable__.tecoinfer_modelzoo.pth").write_text("\n".join(lines), encoding="utf-8")
    (python,) = {p for name in ("bin/python", "Scripts/python.exe") if (p := tmp_path / "venv" / name).exists()}
    done = subprocess.run(
        [python, contributed], capture_output=True, text=True, cwd=tmp_path, env={"PATH": ""}, check=False
    )
    check(done, ROOT)


def test_with_the_real_install(contributed: Path, tmp_path: Path) -> None:
    try:
        where = Path(str(distribution("tecoinfer-modelzoo").locate_file("")))
    except PackageNotFoundError:
        pytest.skip("the zoo is not installed in this environment")
    done = subprocess.run(
        [sys.executable, contributed], capture_output=True, text=True, cwd=tmp_path, env={"PATH": ""}, check=False
    )
    check(done, where if (where / "utils").is_dir() else ROOT)


def test_duplicate_packages_are_extended() -> None:
    """Only the zoo's own ``__init__.py`` is run, so that one decides whether contrib's half is found."""
    line = "__path__ = pkgutil.extend_path(__path__, __name__)"
    twice = [init for init in sorted((ROOT / "utils").rglob("__init__.py")) if _contributed(init).exists()]
    assert len(twice) > 5
    for init in twice:
        assert line in init.read_text(encoding="utf-8"), init
        assert line in _contributed(init).read_text(encoding="utf-8"), init


def _contributed(init: Path) -> Path:
    return ROOT / "contrib" / init.relative_to(ROOT)
