"""``packages/models``, the distribution of models for use without a clone: which it takes, and their cases."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from support import ROOT

from model_config.cases.config import read_cases
from toolkit.data_page import sources
from toolkit.model_copies import _shared
from toolkit.zoo import load_zoo

HERE = ROOT / "packages" / "models"
CONFIG, TABLE = "model_config/model.yaml", "docs/data.yaml"


@pytest.fixture(scope="module")
def building() -> ModuleType:
    """Return the module ``packages/models/setup.py``."""
    pytest.importorskip("setuptools")
    spec = importlib.util.spec_from_file_location("setup_of_models", HERE / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rows() -> list[dict[str, object]]:
    found: list[dict[str, object]] = yaml.safe_load((ROOT / TABLE).read_text(encoding="utf-8"))
    return found


def build_source(folder: Path, only: str = "example") -> Path:
    """Copy the files that the build reads, as an unpacked archive of the repository."""
    command = ["git", "ls-files", "-z", only, "packages/models", CONFIG, TABLE]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, listed):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    return folder


def test_version_and_licence_are_those_of_the_zoo() -> None:
    versions = [
        re.findall(r'^version = "(.+?)"', (folder / "pyproject.toml").read_text(), re.MULTILINE)
        for folder in (ROOT, HERE)
    ]
    assert versions[0] == versions[1]
    assert (HERE / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_models_are_small_and_data_may_be_redistributed(building: ModuleType, rows: list[dict[str, object]]) -> None:
    taken = building.selected(rows)
    assert {"example/classification/digits", "example/nlp/tiny_gpt", *building.LARGER} <= taken.keys()
    assert "example/segmentation/digit_unet" not in taken, "it has 6 MB"
    sizes = {folder: sum((ROOT / name).stat().st_size for name in names) for folder, names in taken.items()}
    assert max(size for folder, size in sizes.items() if folder not in building.LARGER) <= building.LARGEST
    assert sum(sizes.values()) < 40_000_000
    domains = {folder.split("/")[1] for folder in taken}
    assert domains >= {path.parent.parent.name for path in ROOT.glob("example/*/*/numerics.yaml")}
    for row in rows:
        if "example/classification/digits/data/**/*" in row.get("files", ()):  # type: ignore[operator]
            changed = [{**row, "use": "read from the package"}]
    assert "example/classification/digits" not in building.selected(changed)


def test_cases_and_rows_are_those_of_the_models(
    building: ModuleType, rows: list[dict[str, object]], tmp_path: Path
) -> None:
    folders = {"example/classification/digits", "example/classification/resnet", "example/classification/vgg16"}
    for folder in folders:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "*.onnx.data"))
    for name in (CONFIG, TABLE):
        (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / CONFIG).write_text(building.cases_of(folders), encoding="utf-8")
    (tmp_path / TABLE).write_text(yaml.safe_dump(building.rows_of(folders, rows)), encoding="utf-8")
    cases, problems = read_cases([tmp_path / CONFIG], tmp_path)
    wanted = [case for case in read_cases([ROOT / CONFIG])[0] if case.run_dir in folders]
    assert problems == []
    assert [(case.name, case.steps) for case in cases] == [(case.name, case.steps) for case in wanted]
    assert len(sources(tmp_path)) >= 2
    page = building.licences(building.rows_of(folders, rows))
    assert "UCI Machine Learning Repository" in page
    assert "sasrec" not in page


def test_every_taken_model_has_the_data_it_reads(building: ModuleType, rows: list[dict[str, object]]) -> None:
    taken = building.selected(rows)
    files = {name for names in taken.values() for name in names}
    for model in load_zoo(ROOT).models:
        if model.path in taken:
            for place in _shared(model):
                assert any(name == place or name.startswith(f"{place}/") for name in files), (model.path, place)


def test_outside_a_clone_the_build_ends_with_one_line(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    folder = tmp_path / "a" / "packages" / "models"
    shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    code = "import runpy; runpy.run_path('setup.py')['files_of_clone']()"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "is not a clone of the zoo" in done.stderr
