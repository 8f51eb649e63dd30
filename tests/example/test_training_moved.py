"""example/training/{imagenet,bert,ddp}: made by the tool and untouched since, and they train as the CUDA scripts do."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import ROOT, RunPython

pytest.importorskip("torch")
pytest.importorskip("torchvision")
pytest.importorskip("sklearn")
pytest.importorskip("libcst")
import torch_sdaa  # noqa: F401 -- here, before a test gets a cache folder of its own, where it would be compiled anew

pytestmark = [pytest.mark.torch, pytest.mark.slow]

FOLDER = ROOT / "example" / "training"
MADE = {
    "imagenet": (["-i", "cuda"], "cuda_msft", ["main.py"]),
    "bert": (["-i", "cuda"], "cuda_msft", ["model.py", "train.py"]),
    "ddp": (["-i", "cuda", "distributed", "-m", "cuda/train.py", "-t", "model"], "cuda_msft", ["train.py"]),
}
"""Of each example: the tool's arguments, the folder that it writes, and which of its files are kept."""


@pytest.mark.parametrize("name", list(MADE))
def test_what_the_tool_makes_is_what_is_here(name: str, tmp_path: Path, run_python: RunPython) -> None:
    given, folder, files = MADE[name]
    where = given.index("distributed") if "distributed" in given else len(given)
    arguments = [*given[:where], "-o", str(tmp_path), *given[where:]]
    done = run_python("-m", "toolkit.cli", "transplant", *arguments, cwd=FOLDER / name, path=[ROOT])
    assert done.returncode == 0, done.stdout + done.stderr
    for file in files:
        assert (tmp_path / folder / file).read_bytes() == (FOLDER / name / file).read_bytes(), file
