"""A copy of the zoo that a test may change, and the ``teco`` command of that copy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from support import ROOT

FOLDERS = (
    *("contrib", "docs", "engine", "example", "model_config", "tecoinfer_modelzoo", "toolkit", "torch_sdaa", "utils"),
)


def copy_zoo(folder: Path, folders: Sequence[str] = FOLDERS) -> Path:
    """Copy the files of a clone, or some folders of it, into a git repository, all added."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in folders:
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in (".gitignore", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    _git(folder, "init", "-q")
    objects = ROOT / _git(ROOT, "rev-parse", "--git-path", "objects", check=False)
    if objects.name == "objects":  # what is there already need be neither compressed nor written again
        (folder / ".git/objects/info/alternates").write_text(f"{objects}\n", encoding="utf-8")
    _git(folder, "add", "-A")
    return folder


def _git(folder: Path, *words: str, check: bool = True) -> str:
    command = ["git", *words]
    return subprocess.run(command, cwd=folder, check=check, capture_output=True, text=True).stdout.strip()


def with_teco(zoo: Path, binaries: Path) -> dict[str, str]:
    """Return an environment in which ``teco`` and ``python`` are those of a user who installed this copy."""
    binaries.mkdir(exist_ok=True)
    (binaries / "teco").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m toolkit.cli "$@"\n', encoding="utf-8")
    (binaries / "teco").chmod(0o755)
    path = os.pathsep.join([str(binaries), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": str(zoo), "PYTHONDONTWRITEBYTECODE": "1"}
