"""Runs scripts of tests/training_scripts one after the other in this process; prints what each printed, as JSON.

``python transfer_series.py import FOLDER NAME ...`` with CUDA redirected by import, ``cpu`` without.
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys
import warnings
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "training_scripts"


def main() -> None:
    how, *names = sys.argv[1:]
    import torch

    if how == "import":
        from torch_sdaa.contrib import transfer_to_sdaa
    printed = {}
    for name in names:
        script, *arguments = name.split()
        sys.argv = [str(FOLDER / script), *arguments]
        out = io.StringIO()
        with warnings.catch_warnings(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            runpy.run_path(sys.argv[0], run_name="__main__")
        torch.set_default_device(None)
        printed[name] = out.getvalue()
    if how == "import":
        sys.stderr.write(json.dumps(transfer_to_sdaa.report()))
    sys.stdout.write(json.dumps(printed))


if __name__ == "__main__":
    main()
