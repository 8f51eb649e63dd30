"""Regenerate the migrated examples from their CUDA scripts: ``python -m tests.moved_examples``."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "example" / "training"
MADE = {
    "imagenet": (["-i", "cuda"], ["main.py"]),
    "bert": (["-i", "cuda"], ["model.py", "train.py"]),
    "ddp": (
        ["-i", "cuda", "distributed", "-m", "cuda/train.py", "-t", "model"],
        ["train.py", "run_distributed_sdaa.sh"],
    ),
}
"""The tool's arguments, and the committed files of its output, by example."""


def moved(name: str, out: Path) -> Path:
    """Move the CUDA script of an example; return the folder that the tool wrote."""
    given, _ = MADE[name]
    where = given.index("distributed") if "distributed" in given else len(given)
    command = [sys.executable, "-m", "toolkit.cli", "transplant", *given[:where], "-o", str(out), *given[where:]]
    environment = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=FOLDER / name, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out / "cuda_msft"


def main() -> None:
    """Replace the committed files by the tool's current output."""
    for name, (_, files) in MADE.items():
        with tempfile.TemporaryDirectory() as folder:
            made = moved(name, Path(folder))
            for file in files:
                shutil.copyfile(made / file, FOLDER / name / file)


if __name__ == "__main__":
    main()
