"""``contrib/engine`` and ``contrib/utils`` find the core of their clone, or raise an error without one."""

from __future__ import annotations

import shutil
import site
from pathlib import Path

import pytest
from support import ROOT, RunPython

PACKAGES = [Path(place) for place in site.getsitepackages()]
IMPORTS = ["import engine, utils", "import utils, engine", "import utils.tasks, engine", "import engine.base, utils"]


@pytest.mark.parametrize("imports", IMPORTS)
def test_the_core_is_found_whichever_comes_first(imports: str, run_python: RunPython, tmp_path: Path) -> None:
    code = f"import sys; sys.path.append({str(ROOT / 'contrib')!r})\n{imports}\nprint(engine.__file__, utils.__file__)"
    done = run_python("-S", "-W", "error", "-c", code, cwd=tmp_path, path=PACKAGES)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [str(ROOT / name / "__init__.py") for name in ("engine", "utils")]


def test_contrib_without_core_raises(run_python: RunPython, tmp_path: Path) -> None:
    for name in ("engine", "utils"):
        shutil.copytree(ROOT / "contrib" / name, tmp_path / "contrib" / name)
    done = run_python("-S", "-c", "import engine", cwd=tmp_path, path=[tmp_path / "contrib", *PACKAGES])
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: {tmp_path / 'contrib'} is not part of a clone: {tmp_path} has no engine; install the core, or "
        "use the clone"
    )
    done = run_python("-S", "-c", "import utils; print(*utils.__path__)", cwd=tmp_path, path=[tmp_path / "contrib"])
    assert done.stdout.strip() == str(tmp_path / "contrib" / "utils")
