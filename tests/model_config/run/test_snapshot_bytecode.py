"""Tests of the bytecode in the snapshot that the steps of a check see."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from model_config.run.snapshot import COMPILED, Snapshots

SOURCES = {
    "engine/__init__.py": "",
    "engine/base.py": "VALUE = 1\n",
    "utils/broken.py": "x = (\n",
    "utils/deep.py": "x = " + "(" * 5000 + ")" * 5000 + "\n",
    "contrib/utils/mine.py": "x = 2\n",
    "example/x/m/script.py": "x = 3\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in SOURCES.items():
        path = tmp_path / "repo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "work").mkdir()
    return tmp_path / "repo"


def bytecode(folder: Path, name: str) -> Path:
    return Path(importlib.util.cache_from_source(str(folder / name)))


def test_packages_are_compiled_in_the_snapshot_only(root: Path, tmp_path: Path) -> None:
    with closing(Snapshots(root, tmp_path / "work")) as snapshots:
        made = snapshots.current()
        compiled = {name for name in SOURCES if bytecode(made.folder, name).is_file()}
        assert compiled == {"engine/__init__.py", "engine/base.py", "contrib/utils/mine.py"}
        assert made.changed() == []  # it belongs to the state that steps must not change
        code = "import engine.base; print(engine.base.__cached__, engine.base.VALUE)"
        environment = {**os.environ, "PYTHONPATH": str(made.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-v", "-c", code]
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        assert ran.stdout.split() == [str(bytecode(made.folder, "engine/base.py")), "1"]
        assert f"matches {made.folder / 'engine/base.py'}" in ran.stderr
    assert not any(root.rglob("__pycache__"))


def test_bytecode_of_another_state_is_not_taken_over(root: Path, tmp_path: Path) -> None:
    """A file of the checkout was changed in the second in which it was compiled, and kept its size."""
    source = root / "engine/base.py"
    times = source.stat()
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(root / "engine")], check=True)
    assert bytecode(root, "engine/base.py").is_file()
    source.write_text("VALUE = 2\n")
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    with closing(Snapshots(root, tmp_path / "work")) as snapshots:
        made = snapshots.current()
        environment = {**os.environ, "PYTHONPATH": str(made.folder)}
        command = [sys.executable, "-c", "import engine.base; print(engine.base.VALUE)"]
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        assert ran.stdout == "2\n"


def test_without_a_compiler_process_the_snapshot_is_complete(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model_config.run.snapshot.sys.executable", str(tmp_path / "no_python"))
    with closing(Snapshots(root, tmp_path / "work")) as snapshots:
        made = snapshots.current()
        assert {name for name in SOURCES if (made.folder / name).is_file()} == set(SOURCES)
        assert not any(made.folder.rglob("*.pyc"))


def test_compiled_packages_are_those_of_the_zoo() -> None:
    zoo = Path(__file__).resolve().parents[3]
    assert all((zoo / name / "__init__.py").is_file() for name in COMPILED)
