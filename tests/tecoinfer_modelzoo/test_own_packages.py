"""Folders ``utils``, ``engine`` and ``toolkit`` of a user's project next to the zoo's packages."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import ROOT, RunPython

from tecoinfer_modelzoo import check

COMMAND = "import sys; from tecoinfer_modelzoo.commands import teco; sys.argv = ['teco', 'list']; sys.exit(teco())"


def own(folder: Path, name: str, text: str = "") -> Path:
    """Write a user's package, or a module if the name ends in .py."""
    place = folder / name
    if place.suffix != ".py":
        place.mkdir()
        (place / "__init__.py").write_text(text)
    else:
        place.write_text(text)
    return place


def line(name: str, theirs: Path) -> str:
    return (
        f"error: {name!r} is your own {theirs} here, not the zoo's {ROOT / name}; rename yours, or keep it in a folder "
        "that is neither the script's nor on PYTHONPATH\n"
    )


def test_the_zoos_packages_pass() -> None:
    check()


@pytest.mark.parametrize("file", ["utils", "utils.py", "engine", "engine.py", "toolkit"])
def test_a_command_names_both_folders(file: str, tmp_path: Path, run_python: RunPython) -> None:
    theirs = own(tmp_path, file)
    done = run_python("-c", COMMAND, path=[tmp_path, ROOT], cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line(theirs.stem, theirs))


@pytest.mark.parametrize("file", ["utils", "utils.py", "engine", "engine.py"])
@pytest.mark.parametrize("module", ["toolkit.cli", "model_config.check", "tecoexec"])
def test_a_module_names_both_folders(module: str, file: str, tmp_path: Path, run_python: RunPython) -> None:
    theirs = own(tmp_path, file)
    done = run_python("-m", module, "--help", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", line(theirs.stem, theirs))


def test_a_script_that_needs_only_the_engines_keeps_its_own_utils(tmp_path: Path, run_python: RunPython) -> None:
    own(tmp_path, "utils", "def helper():\n    return 'mine'\n")
    script = own(tmp_path, "script.py", "from engine import EngineSpec\nfrom utils import helper\nprint(helper())\n")
    done = run_python(script)
    assert (done.stdout, done.stderr) == ("mine\n", "")


def test_a_script_that_also_needs_the_zoos_utils_gets_an_error(tmp_path: Path, run_python: RunPython) -> None:
    theirs = own(tmp_path, "utils")
    script = own(tmp_path, "script.py", "from engine import EngineSpec\nfrom utils.pipeline import cli\n")
    done = run_python(script)
    assert (done.returncode, done.stderr) == (1, line("utils", theirs))
    script.write_text("from utils import missing\n")  # an error of the script, reported by Python
    assert "cannot import name 'missing' from 'utils'" in run_python(script).stderr


def test_a_foreign_engine_is_reported_when_utils_is_imported(tmp_path: Path, run_python: RunPython) -> None:
    theirs = own(tmp_path, "engine")
    script = own(tmp_path, "script.py", "from utils.pipeline import cli\n")
    assert run_python(script).stderr == line("engine", theirs)


def test_a_script_can_check_first(tmp_path: Path, run_python: RunPython) -> None:
    theirs = own(tmp_path, "utils.py")
    script = own(
        tmp_path, "script.py", "import tecoinfer_modelzoo\n\ntecoinfer_modelzoo.check()\nimport utils.shapes\n"
    )
    assert run_python(script).stderr == line("utils", theirs)


@pytest.mark.parametrize(("name", "wanted"), [("utils", "helper"), ("engine", "Motor")])
def test_a_hidden_foreign_package_is_reported(name: str, wanted: str, tmp_path: Path, run_python: RunPython) -> None:
    theirs = own(tmp_path, name, f"{wanted} = 1\n")
    (theirs / "mine.py").write_text("VALUE = 7\n")
    script = own(tmp_path, "script.py", f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n")
    script.write_text(script.read_text() + f"import {name}\nassert not hasattr({name}, {wanted!r})\n")
    before = script.read_text()
    if name == "utils":  # a merged package: their modules are found after the zoo's
        script.write_text(before + "import utils.mine, utils.shapes\nfrom utils import mine\nprint(mine.VALUE)\n")
        assert run_python(script).stdout == "7\n"
    script.write_text(before + f"from {name} import {wanted}\n")
    assert run_python(script).stderr == (
        f"error: {name!r} is the zoo's {ROOT / name} here and has no {wanted!r}; your own {theirs} is hidden behind "
        "it; rename yours\n"
    )


def test_a_folder_without_an_init_hides_nothing(tmp_path: Path, run_python: RunPython) -> None:
    (tmp_path / "utils").mkdir()
    done = run_python("-c", "import utils.shapes, tecoinfer_modelzoo; tecoinfer_modelzoo.check()", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_error_is_an_import_error(tmp_path: Path, run_python: RunPython) -> None:
    own(tmp_path, "utils")
    caught = "try:\n    import utils.shapes\nexcept ImportError as error:\n    print(type(error).__name__)\n"
    code = f"import engine\n{caught}1 / 0"
    done = run_python("-c", code, cwd=tmp_path)
    assert done.stdout == "ForeignPackageError\n"
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")  # the hook passes other errors on


def test_a_missing_package_passes() -> None:
    check("no_such_package_anywhere")


def test_pytest_in_a_folder_with_utils(tmp_path: Path, run_python: RunPython) -> None:
    """``python -m pytest`` puts the folder first on the path, so its tests keep their ``utils``."""
    theirs = own(tmp_path, "utils", "X = 1\n")
    own(tmp_path, "test_mine.py", "def test_mine():\n    import engine\n    from utils import X\n    assert X == 1\n")
    assert run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=tmp_path).returncode == 0
    own(tmp_path, "test_zoo.py", "def test_zoo():\n    import toolkit.cli\n")
    done = run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_zoo.py", cwd=tmp_path)
    assert f"'utils' is your own {theirs} here" in done.stdout
