"""What the first command of a user imports: modules that only other commands need cost its start-up time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tecoinfer_modelzoo.distribution import HOME

DIGITS = Path(HOME, "example/classification/digits")
UNNEEDED = {"_hashlib", "asyncio", "email", "http", "multiprocessing", "onnx", "socket", "sqlite3", "ssl", "subprocess",
            "tempfile", "torch", "urllib.request", "xml", "yaml", "zipfile"}  # fmt: skip
SHOWN = """
import atexit, runpy, sys

def show():
    names = sorted(sys.modules)
    import json
    print(json.dumps(names))

atexit.register(show)
sys.argv[0] = "example_single_batch.py"
sys.path.insert(0, ".")
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_sample_on_onnx_runtime_imports_nothing_of_other_commands() -> None:
    command = [sys.executable, "-c", SHOWN, "--target", "onnx", "--data_path", "data/val/7/0081.png"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HOME), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=DIGITS, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    modules = set(json.loads(done.stdout.splitlines()[-1]))
    assert {"onnxruntime", "PIL.Image", "engine"} <= modules
    assert modules & UNNEEDED == set()
