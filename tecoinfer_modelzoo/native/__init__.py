"""The optional C extension: image kernels that compute what Pillow and NumPy compute, bit by bit, in less time.

``setup.py`` builds it from ``_kernels.c`` when the zoo is installed where there is a C compiler, in editable mode into
this folder. Without it, and on processors other than x86-64, Pillow and NumPy do the work. The same file runs on every
x86-64 processor: loops for AVX2 and AVX-512 are selected at run time. ``python -m engine`` shows whether it is used.
"""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib import import_module
from types import ModuleType

VARIABLE = "TECO_NATIVE"
"""Environment variable: ``0`` disables the extension."""

LEVELS = ("plain C", "AVX2", "AVX-512")
"""Names of the extension's levels; a processor that has one has those before it."""

INTERFACE = 1
"""Number of the interface of ``_kernels.c`` that this code calls; a file built from other sources is not used."""

_X86_64 = ("x86_64", "AMD64")


def kernels() -> ModuleType | None:
    """Return the extension, whose functions ``_kernels.pyi`` describes; ``None`` if it is not used (:func:`status`)."""
    return _imported()[0] if _is_enabled() else None


def status() -> str:
    """Return in one line what computes: the extension, or Pillow and NumPy, and why."""
    found, reason = _imported()
    if not _is_enabled():
        reason = f"{VARIABLE}=0"
    elif found is not None:
        return f"C extension, {LEVELS[found.level()]}"
    return f"Pillow and NumPy ({reason})"


def _is_enabled() -> bool:
    return os.environ.get(VARIABLE, "").strip() != "0"


@cache
def _imported() -> tuple[ModuleType | None, str]:
    """Return the extension if it can be used on this machine, or else why not."""
    if platform.machine() not in _X86_64:
        return None, f"the C extension is for x86-64, not {platform.machine()}"
    try:
        found = import_module("tecoinfer_modelzoo.native._kernels")
    except ImportError:
        return None, "C extension not built: install a C compiler, then the zoo again"
    if found.interface() != INTERFACE:
        return None, "C extension built from other sources: install the zoo again"
    return found, ""
