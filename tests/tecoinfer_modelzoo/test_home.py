"""Users without a usable home folder: ``HOME`` is unset, empty, missing or read-only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import DIGITS, ROOT

from tecoinfer_modelzoo import expanded, home_folder

NAMELESS = (
    *("setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups"),
    *("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"),
)
"""Command prefix for a user id without a name, with read access to all files and no write access."""

HOMES = {"unset": None, "empty": "", "missing": "/nonexistent", "read-only": "FOLDER"}


def nameless_works() -> bool:
    if not hasattr(os, "getuid") or os.getuid() != 0 or shutil.which(NAMELESS[0]) is None:
        return False
    code = "import pwd, os; pwd.getpwuid(os.getuid())"
    done = subprocess.run([*NAMELESS, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return "KeyError" in done.stderr


needs_nameless = pytest.mark.skipif(not nameless_works(), reason="only root may become a user without a name")


def run(kind: str, folder: Path, *words: object, user: tuple[str, ...] = NAMELESS) -> subprocess.CompletedProcess[str]:
    """Run Python with one of :data:`HOMES`, and without other variables that set folders."""
    dropped = ("HOME", "TECO_CACHE_DIR", "TECO_SMI_DIR", "TMPDIR", "USER", "LOGNAME", "PYTEST_ADDOPTS")
    env = {k: v for k, v in os.environ.items() if k not in dropped and not k.startswith("XDG_")}
    home = HOMES[kind]
    if home == "FOLDER":
        home = str(folder)
        folder.chmod(0o555)
    env |= {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **({} if home is None else {"HOME": home})}
    command = [*user, sys.executable, *map(str, words)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False, cwd=DIGITS)


@needs_nameless
@pytest.mark.parametrize("kind", ["unset", *(pytest.param(k, marks=pytest.mark.slow) for k in HOMES if k != "unset")])
def test_a_script_runs(kind: str, tmp_path: Path) -> None:
    done = run(kind, tmp_path, DIGITS / "example_valid.py", "--target", "onnx")
    assert (done.returncode, done.stderr) == (0, "")
    assert "eval_metric" in done.stdout


@needs_nameless
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("kind", HOMES)
@pytest.mark.parametrize(
    "words",
    [
        (DIGITS / "example_valid.py", "--target", "cpu"),
        (DIGITS / "example_multi_batch.py", "--target", "sdaa"),
        ("-m", "engine"),
        ("-m", "toolkit.cli", "info", "digits"),
        ("-m", "toolkit.cli", "overflow", DIGITS / "digits_dyn.onnx"),
        ("-m", "engine.sdaa.smi"),
    ],
)
def test_commands_run(kind: str, words: tuple[object, ...], tmp_path: Path) -> None:
    done = run(kind, tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@needs_nameless
@pytest.mark.parametrize("path", ["~/data", "~nobody_of_this_name/data"])
def test_an_undefined_home_is_reported_in_one_line(path: str, tmp_path: Path) -> None:
    done = run("unset", tmp_path, DIGITS / "example_valid.py", "--target", "onnx", "--data_path", path)
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if path in line] == done.stderr.splitlines()


@needs_nameless
def test_fonts_are_found(tmp_path: Path) -> None:
    done = run("unset", tmp_path, "-c", "from utils.fonts import _folders\nassert len(list(_folders())) >= 2")
    assert done.returncode == 0, done.stderr


@needs_nameless
@pytest.mark.parametrize("kind", HOMES)
def test_home_folder(kind: str, tmp_path: Path) -> None:
    code = "import sys, tecoinfer_modelzoo as zoo\nsys.stdout.write(str(zoo.home_folder()))"
    known = {"missing": "/nonexistent", "read-only": str(tmp_path)}
    assert run(kind, tmp_path, "-c", code).stdout == known.get(kind, "None")


def test_a_usual_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home_folder() == tmp_path
    assert expanded("~/a") == tmp_path / "a"
    assert expanded("a/~") == Path("a/~")
    assert expanded("~nobody_of_this_name/a") == Path("~nobody_of_this_name/a")
