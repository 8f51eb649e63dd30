"""The vendor's ``torch_sdaa`` takes precedence if installed, with a message; no other package is mistaken for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

import pytest
from support import ROOT, RunPython

from torch_sdaa.loading import vendor

VENDOR = """
import torch_sdaa.devices
WHOSE = "the vendor's"
"""
ASK = """
import sys
import torch_sdaa
from torch_sdaa import devices
import torch_sdaa.devices
print(torch_sdaa.WHOSE, devices.COUNT, torch_sdaa.__file__, sys.modules["torch_sdaa"] is torch_sdaa)
print(*sorted(name for name in sys.modules if name.split(".")[0] in ("torch", "torch_sdaa", "engine")))
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """Return a folder with an installation of the vendor's package."""
    folder = tmp_path / "site-packages"
    (folder / "torch_sdaa").mkdir(parents=True)
    (folder / "torch_sdaa" / "__init__.py").write_text(VENDOR)
    (folder / "torch_sdaa" / "devices.py").write_text("COUNT = 8\n")
    return folder


def test_the_vendors_package_replaces_this_one_and_is_reported(packages: Path, run_python: RunPython) -> None:
    done = run_python("-c", ASK, path=(ROOT, packages))
    theirs = packages / "torch_sdaa" / "__init__.py"
    assert done.stdout == f"the vendor's 8 {theirs} True\ntorch_sdaa torch_sdaa.devices\n"
    assert done.stderr == (
        f"torch_sdaa: using the vendor's package {theirs} instead of the simulated card's in {vendor.OURS}\n"
    )
    assert run_python("-c", ASK, path=(ROOT, packages), RANK="0").stderr == done.stderr
    quiet = run_python("-c", ASK, path=(ROOT, packages), RANK="1")
    assert (quiet.stdout, quiet.stderr) == (done.stdout, "")


def test_an_editable_install_of_the_vendors_package_is_found(packages: Path, run_python: RunPython) -> None:
    finder = f"""
import sys
from importlib.machinery import PathFinder
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, [{str(packages)!r}]) if name == "torch_sdaa" else None
sys.meta_path.append(Finder)
"""
    done = run_python("-c", finder + ASK)
    assert done.stdout.startswith("the vendor's 8 ")
    assert "using the vendor's package" in done.stderr


def test_errors_of_the_vendors_package_are_raised_unchanged(packages: Path, run_python: RunPython) -> None:
    (packages / "torch_sdaa" / "devices.py").write_text("raise OSError('libsdaart.so: not found')\n")
    done = run_python("-c", ASK, path=(ROOT, packages))
    assert done.returncode == 1
    assert done.stderr.endswith("OSError: libsdaart.so: not found\n")


def others(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[ModuleSpec]:
    """Return the detected vendor's package with a folder on the path."""
    monkeypatch.setattr(sys, "meta_path", [PathFinder])
    monkeypatch.setattr(sys, "path", [str(ROOT), str(path), str(ROOT / "torch_sdaa" / "..")])
    return list(vendor._others())


def test_other_folders_are_not_the_vendors_package(
    tmp_path: Path, packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(others(packages, monkeypatch)) == 1
    for name in ("clone", "folder", "file"):
        (tmp_path / name).mkdir()
    shutil.copytree(vendor.OURS, tmp_path / "clone" / "torch_sdaa")
    (tmp_path / "folder" / "torch_sdaa").mkdir()
    (tmp_path / "file" / "torch_sdaa.py").touch()
    for name in ("clone", "folder", "file"):
        assert others(tmp_path / name, monkeypatch) == []


def test_two_packages_in_one_folder_are_an_error(tmp_path: Path, run_python: RunPython) -> None:
    shutil.copytree(vendor.OURS, tmp_path / "torch_sdaa")
    (tmp_path / "torch_sdaa-1.6.0b0.dist-info").mkdir()
    done = run_python("-c", "import torch_sdaa", cwd=tmp_path, path=(tmp_path, ROOT))
    line = done.stderr.splitlines()[-1]
    assert f"ImportError: tecoinfer-modelzoo was installed over the vendor's torch_sdaa 1.6.0b0 in {tmp_path};" in line
    assert "pip install --force-reinstall torch_sdaa==1.6.0b0" in line


def test_a_worker_is_not_the_first_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in vendor._RANKS:
        monkeypatch.delenv(name, raising=False)
    assert vendor.first_process()
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    assert not vendor.first_process()


def test_without_torch_the_error_has_the_install_command(run_python: RunPython) -> None:
    done = run_python("-c", "import sys; sys.modules['torch'] = None; import torch_sdaa")
    said = 'torch_sdaa needs PyTorch, which is not installed; run: pip install -c constraints.txt -e ".[train]"'
    assert done.stderr.splitlines()[-1] == f"ImportError: {said}"


def test_torch_does_not_autoload_this_package() -> None:
    """An entry point of torch would load ours into every program that imports torch, also for the vendor's users."""
    assert "torch.backends" not in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_spawned_worker_has_no_output(packages: Path, tmp_path: Path) -> None:
    script = tmp_path / "spawn.py"
    script.write_text(
        "import multiprocessing\nimport torch_sdaa\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(2) as pool:\n"
        "        print(pool.map(abs, [-1, -2]))\n"
    )
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{packages}"}
    done = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr.count("using the vendor's")) == ("[1, 2]\n", 1)
