"""The optional C extensions.

``_kernels.c``: image kernels that compute what Pillow and NumPy compute, bit by bit, in less time.
``_sums.c``: the sums by which a tensor is compared with its reference, in one pass over both.

``setup.py`` builds them when the zoo is installed where there is a C compiler, in editable mode into this folder.
Without them, and on processors other than x86-64, Pillow and NumPy do the work. The same files run on every x86-64
processor: loops for AVX2 and AVX-512 are selected at run time. ``python -m engine`` shows whether the kernels are used.
"""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib import import_module
from types import ModuleType

VARIABLE = "TECO_NATIVE"
"""Environment variable: ``0`` disables the extensions."""

LEVELS = ("plain C", "AVX2", "AVX-512")
"""Names of the extension's levels; a processor that has one has those before it."""

INTERFACE = 1
"""Number of the interface of ``_kernels.c`` that this code calls; a file built from other sources is not used."""

SUMS_INTERFACE = 1
"""Number of the interface of ``_sums.c``."""

_X86_64 = ("x86_64", "AMD64")


def kernels() -> ModuleType | None:
    """Return the extension, whose functions ``_kernels.pyi`` describes; ``None`` if it is not used (:func:`status`)."""
    return _imported()[0] if _is_enabled() else None


def sums() -> ModuleType | None:
    """Return the extension that ``_sums.pyi`` describes; ``None`` if it is not used."""
    return _imported("_sums", SUMS_INTERFACE)[0] if _is_enabled() else None


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
def _imported(name: str = "_kernels", interface: int = INTERFACE) -> tuple[ModuleType | None, str]:
    """Return an extension if it can be used on this machine, or else why not."""
    if platform.machine() not in _X86_64:
        return None, f"the C extension is for x86-64, not {platform.machine()}"
    try:
        found = import_module(f"tecoinfer_modelzoo.native.{name}")
    except ImportError:
        return None, "C extension not built: install a C compiler, then the zoo again"
    if found.interface() != interface:
        return None, "C extension built from other sources: install the zoo again"
    return found, ""
