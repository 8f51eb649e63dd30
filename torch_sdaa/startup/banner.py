"""The table of versions shown by ``python -c "import torch, torch_sdaa"``, in the format of the vendor's.

Only shown for an import typed at a terminal: in ``python -c`` and in the interpreter, if stdout and stderr are
terminals. Written to stderr. Programs, scripts, workers and ranks above 0 never show it.
"""

from __future__ import annotations

import os
import sys

import torch

from torch_sdaa.loading.core import C
from torch_sdaa.loading.vendor import first_process

VARIABLE = "TORCH_SDAA_BANNER"
"""Environment variable: ``0`` hides the table. Set on import for child processes."""

_RULE = f"{'-' * 14}+{'-' * 48}"


def show() -> None:
    """Write the table to stderr if the import was typed."""
    shown = os.environ.get(VARIABLE) != "0" and _typed() and first_process()
    os.environ[VARIABLE] = "0"
    if shown:
        sys.stderr.write(table())
        sys.stderr.flush()


def _typed() -> bool:
    """Return whether the import was typed at a terminal: ``python -c ...``, or the interpreter."""
    if getattr(sys, "argv", ["?"])[:1] not in (["-c"], [""]):
        return False
    return all(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))


def table() -> str:
    """Return the table, ending in a newline: versions, and substitutes of the vendor's components."""
    from tecoinfer_modelzoo import version

    sections = (
        (("Host IP", "N/A"), ("PyTorch", torch.__version__), ("Torch-SDAA", f"{version()} (simulated card)")),
        (
            ("SDAA Driver", "simulated (N/A)"),
            ("SDAA Runtime", f"simulated ({C.__file__})"),
            ("SDPTI", "simulated (engine.sdaa)"),
            ("TecoDNN", "simulated (PyTorch's CPU kernels)"),
            ("TecoBLAS", "simulated (PyTorch's CPU kernels)"),
            ("CustomDNN", "simulated (PyTorch's CPU kernels)"),
            ("TecoRAND", "simulated (PyTorch's CPU generator)"),
            ("TCCL", "N/A"),
        ),
    )
    lines = [_RULE]
    for rows in sections:
        lines += [*(f" {name:<13}| {value}" for name, value in rows), _RULE]
    return "\n".join([*lines, ""])
