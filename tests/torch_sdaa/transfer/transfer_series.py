"""Run scripts of tests/training_scripts one after another in this process; print their outputs as JSON.

``python transfer_series.py import NAME ...`` with CUDA redirected by import, ``cpu`` without; ``thread`` is the CPU
with gradients computed in one thread of their own, as those of a device are.
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "training_scripts"


def _gradients_in_a_thread() -> None:
    import torch.autograd

    run, pool = torch.autograd.graph._engine_run_backward, ThreadPoolExecutor(1)
    for module in (torch.autograd, torch.autograd.graph):
        module._engine_run_backward = lambda *args, **kwargs: pool.submit(run, *args, **kwargs).result()


def main() -> None:
    how, *names = sys.argv[1:]
    import torch

    if how == "import":
        from torch_sdaa.contrib import transfer_to_sdaa
    if how == "thread":
        _gradients_in_a_thread()
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
