"""The scripts of tests/training_scripts, converted: each runs, and trains as with the import."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

pytest.importorskip("torch")
pytest.importorskip("libcst")
pytest.importorskip("sklearn")

from toolkit.commands.transplant import main

pytestmark = pytest.mark.torch

SCRIPTS = ROOT / "tests" / "training_scripts"
REFUSED = {"graph_capture", "data_parallel"}
"""Scripts that the card cannot run: the tool and the run report it."""

SEVERAL = {"ddp_nccl": ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"], "ddp_spawn": []}
IMPORT = "from torch_sdaa.contrib import transfer_to_sdaa\n"
"""The line that redirects a script by import."""

NAMES = sorted(path.stem for path in SCRIPTS.glob("*.py"))


def trained(script: Path, folder: Path) -> list[str]:
    """Return the lines with losses that a script prints."""
    folder.mkdir(exist_ok=True)
    found = {**os.environ, "PYTHONPATH": str(ROOT), "TORCH_SDAA_RANDOM": "cpu", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *SEVERAL.get(script.stem, []), str(script)]
    done = subprocess.run(command, cwd=folder, env=found, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return sorted(line for line in done.stdout.splitlines() if "loss" in line)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_a_script_trains_as_by_import(name: str, tmp_path: Path) -> None:
    main(["-i", str(SCRIPTS / f"{name}.py"), "-o", str(tmp_path)])
    by_source = trained(tmp_path / "training_scripts_msft" / f"{name}.py", tmp_path / "source")
    (tmp_path / "import").mkdir()
    redirected = tmp_path / "import" / f"{name}.py"
    text = (SCRIPTS / f"{name}.py").read_text(encoding="utf-8")
    future = max((found.end() for found in re.finditer(r"^from __future__ .*\n", text, re.MULTILINE)), default=0)
    redirected.write_text(text[:future] + IMPORT + text[future:], encoding="utf-8")
    by_import = trained(redirected, tmp_path / "import")
    assert by_source == by_import
    assert len(by_source) > 1


@pytest.mark.long
@pytest.mark.slow
def test_unsupported_code_is_left_for_manual_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-i", str(SCRIPTS), "-o", str(tmp_path)]) == 1
    log = (tmp_path / "training_scripts_msft" / "msFmkTranspltlog.txt").read_text(encoding="utf-8").splitlines()
    reported = {line.split()[1].partition(".py:")[0] for line in log if line.startswith("WARNING")}
    assert reported >= REFUSED
    assert not [line for line in log if line.startswith("ERROR")]
    capsys.readouterr()
