"""Main module of a process spawned by a script under ``torch_sdaa.run``: the script, with CUDA redirected."""

from __future__ import annotations

import os
import runpy

from torch_sdaa.transfer.runner import SCRIPT
from torch_sdaa.transfer.switch import start

if __name__ == "__mp_main__":
    start()
    globals().update(runpy.run_path(os.environ[SCRIPT], run_name="__mp_main__"))
