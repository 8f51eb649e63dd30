"""Running the tests as users do: without flags or our settings, and with the long profile."""

from __future__ import annotations

from pathlib import Path
from subprocess import CompletedProcess

import pytest
from support import ROOT, RunPython

MARKED = """\
import pytest

def test_usual():
    pass

@pytest.mark.slow
def test_slow():
    pass
"""

PROPERTIES = """\
import time

from hypothesis import given, settings
from hypothesis import strategies as st

tried = {"named": 0, "usual": 0, "inner": 0}

@settings(max_examples=10)
@given(st.integers())
def test_named(number):
    tried["named"] += 1
    if tried["named"] == 5:
        time.sleep(0.3)  # longer than the deadline that hypothesis itself would set

@given(st.integers())
def test_usual(number):
    tried["usual"] += 1

def test_inner():
    base = settings(max_examples=3, database=None)

    @settings(base)
    @given(st.integers())
    def one(number):
        tried["inner"] += 1

    one()

def test_count():
    print(sorted(tried.values()))
"""


def run_tests(run_python: RunPython, folder: Path, text: str, *words: str, **env: str) -> CompletedProcess[str]:
    """Run pytest on a separate file with the zoo's configuration and conftest.py."""
    (folder / "test_given.py").write_text(text, encoding="utf-8")
    command = ["-m", "pytest", "-p", "no:cacheprovider", "-p", "conftest", "-c", ROOT / "pyproject.toml"]
    command += ["--rootdir", folder, folder / "test_given.py", *words]
    return run_python(*command, cwd=folder, path=(ROOT / "tests", ROOT / "tests" / "helpers", ROOT), **env)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "ran"), [([], ["usual"]), (["-m", "slow"], ["slow"]), (["-m", ""], ["usual", "slow"])]
)
def test_slow_tests_run_on_request(words: list[str], ran: list[str], run_python: RunPython, tmp_path: Path) -> None:
    done = run_tests(run_python, tmp_path, MARKED, "-v", *words)
    assert done.returncode == 0, done.stdout
    assert [name for name in ("usual", "slow") if f"::test_{name} PASSED" in done.stdout] == ran


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("profile", "counts"), [("", [3, 10, 100]), ("long", [60, 200, 2000])])
def test_the_long_profile_tries_more(profile: str, counts: list[int], run_python: RunPython, tmp_path: Path) -> None:
    """Also for tests with an explicit number of examples; none has a deadline."""
    done = run_tests(run_python, tmp_path, PROPERTIES, "-s", HYPOTHESIS_PROFILE=profile)
    assert done.returncode == 0, done.stdout
    assert str(counts) in done.stdout


def test_unknown_profile_is_reported(run_python: RunPython, tmp_path: Path) -> None:
    done = run_tests(run_python, tmp_path, MARKED, HYPOTHESIS_PROFILE="longer")
    assert done.returncode != 0
    assert done.stderr.strip() == "ERROR: HYPOTHESIS_PROFILE=longer is not known; use default or long"


@pytest.mark.slow
def test_tests_that_list_folders_do_not_need_python_to_cache_nothing(run_python: RunPython) -> None:
    """Users do not set PYTHONDONTWRITEBYTECODE."""
    file = ROOT / "tests" / "toolkit" / "fix" / "test_fix_pass_path.py"
    names = [
        "test_float16_model_is_compared_with_float32_form",
        "test_integer_cast_in_float16_model",
    ]
    words = ["-p", "no:cacheprovider", *(f"{file}::{name}" for name in names)]
    done = run_python("-m", "pytest", "-q", *words, PYTHONDONTWRITEBYTECODE="", PYTHONUNBUFFERED="")
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
