""".ci/release: the section of the changelog, refused tags, and all files of a release, built and tried."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest
from support import ROOT

CHANGELOG = """\
# Changelog

## [Unreleased]

### Added

- Something new.

## [0.2.0] - 2026-01-31

### Fixed

- A [link](docs/x.md).

## [0.1.9]

- No date.

## [0.1.0] - 2025-12-01

[0.2.0]: https://example.org/compare
"""

OTHER = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "other-zoo"
version = "0.1.0"

[tool.setuptools]
py-modules = ["other_zoo"]
"""


@pytest.fixture(scope="module")
def release() -> ModuleType:
    loader = SourceFileLoader("ci_release", str(ROOT / ".ci" / "release"))
    spec = importlib.util.spec_from_loader("ci_release", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_notes_are_the_section_of_the_version(release: ModuleType) -> None:
    assert release.notes(CHANGELOG, "0.2.0") == "### Fixed\n\n- A [link](docs/x.md).\n"
    assert release.notes(CHANGELOG, "Unreleased") == "### Added\n\n- Something new.\n"
    assert len(release.notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), "Unreleased")) > 1000


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("0.3.0", "has no section of this version; add it: ## [0.3.0] - YYYY-MM-DD"),
        ("0.1.9", "the heading of 0.1.9 has no date"),
        ("0.1.0", "the section [0.1.0] is empty"),
    ],
)
def test_notes_that_are_missing_are_reported(release: ModuleType, version: str, reason: str) -> None:
    with pytest.raises(release.ReleaseError, match=re.escape(reason)):
        release.notes(CHANGELOG, version)


def test_a_tag_of_another_version_is_refused(
    release: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text('version = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    assert release.main(["--root", str(tmp_path), "--tag", "v0.1.0"]) == 2
    assert "use v0.2.0, or change the version" in capsys.readouterr().err
    pytest.importorskip("build")
    pytest.importorskip("cyclonedx_py")
    assert release.main(["--root", str(tmp_path), "--tag", "v0.2.0", "--out", str(tmp_path)]) == 2
    assert "the folder is not empty" in capsys.readouterr().err


LEFT_OUT = ("tests/", "example/", "benchmarks/", "docs/images/", "packages/models/")
"""What the packages do not contain, and the wheel of models, which contains the examples; it has its own tests."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository of the files that belong to the packages, as they are here, with a dated section."""
    folder = tmp_path_factory.mktemp("release") / "checkout"
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("the tree is not a git repository")
    listed = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.split("\0"):
        if name and not name.startswith(LEFT_OUT) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    other = folder / "packages" / "other"
    other.mkdir(parents=True)
    (other / "pyproject.toml").write_text(OTHER)
    (other / "other_zoo.py").touch()
    file = folder / "CHANGELOG.md"
    file.write_text(file.read_text(encoding="utf-8").replace("## [Unreleased]", "## [0.1.0] - 2026-12-24", 1), "utf-8")
    author = {**os.environ, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a"}
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([git, *words], cwd=folder, env={**author, "GIT_COMMITTER_EMAIL": "a@b"}, check=True)
    return folder


@pytest.mark.slow
@pytest.mark.long
def test_all_files_of_a_release_are_written(checkout: Path, tmp_path: Path) -> None:
    pytest.importorskip("build")
    pytest.importorskip("cyclonedx_py")
    out = tmp_path / "dist"
    words = [sys.executable, str(ROOT / ".ci/release"), "--root", str(checkout), "--tag", "v0.1.0", "--out", str(out)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    (wheel,), (sdist,) = out.glob("tecoinfer_modelzoo-*.whl"), out.glob("*.tar.gz")
    assert wheel.name.startswith("tecoinfer_modelzoo-0.1.0-")
    with tarfile.open(sdist) as file:
        assert {"tecoinfer_modelzoo-0.1.0/setup.py", "tecoinfer_modelzoo-0.1.0/LICENSE"} <= set(file.getnames())
    with zipfile.ZipFile(wheel) as file:
        assert "utils/pages/templates" in "".join(file.namelist())
    assert (out / "notes.md").read_text(encoding="utf-8").startswith("### Added")
    bill = json.loads((out / "tecoinfer-modelzoo-0.1.0.cdx.json").read_text(encoding="utf-8"))
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "tecoinfer-modelzoo"
    pins = dict(line.lower().split("==") for line in (ROOT / "constraints.txt").read_text().split())
    packages = {one["name"].lower().replace("_", "-"): one["version"] for one in bill["components"]}
    assert {"numpy", "onnx", "onnxruntime", "pillow", "other-zoo"} <= set(packages)
    assert not {"pip", "torch", "pytest"} & set(packages)
    plain = {name.replace("_", "-"): version for name, version in pins.items()}
    own = {"tecoinfer-modelzoo", "other-zoo"}
    assert [name for name, found in packages.items() if name not in own and plain.get(name) != found] == []
    sums = dict(reversed(line.split("  ")) for line in (out / "SHA256SUMS").read_text().splitlines())
    assert set(sums) == {file.name for file in out.iterdir()} - {"SHA256SUMS"}
    assert sums[wheel.name] == hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert all(name in done.stdout for name in sums)
