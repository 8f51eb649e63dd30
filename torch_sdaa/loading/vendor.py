"""The vendor's package of this name, which takes precedence, and the check for PyTorch.

Imported first, without other modules of this package: the vendor's package replaces them.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

NAME = "torch_sdaa"
OURS = Path(__file__).resolve().parents[1]

_MARK = Path("csrc", "sdaa.cpp")
"""A file that every copy of this package has."""

_RANKS = ("RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
"""Environment variables with the rank of a process."""


def first_process() -> bool:
    """Return whether this process reports for all processes of a run: neither a worker nor a rank above 0."""
    processes = sys.modules.get("multiprocessing.process")
    # A spawned worker is recognized by its name while it imports the main module; its parent is set later.
    if processes is not None and processes.current_process().name != "MainProcess":
        return False
    return all((os.environ.get(name) or "0") == "0" for name in _RANKS)


def step_aside() -> bool:
    """Load the vendor's package instead of this one if it is installed, and report it; else return ``False``.

    Raises:
        ImportError: both were installed into one folder, which damages the vendor's. Errors of the vendor's package are
            raised unchanged.
    """
    _check_not_mixed()
    spec = next(_others(), None)
    if spec is None or spec.loader is None:
        return False
    if first_process():
        _say(f"using the vendor's package {spec.origin} instead of the simulated card's in {OURS}")
    for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
        del sys.modules[name]
    module = sys.modules[NAME] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return True


def _others() -> Iterator[ModuleSpec]:
    """Yield other importable packages of this name, in the order of the path."""
    for finder in sys.meta_path:
        if finder is PathFinder:
            specs = [PathFinder.find_spec(NAME, [entry]) for entry in dict.fromkeys(sys.path)]
        else:  # such as that of an editable install
            specs = [finder.find_spec(NAME, None)]
        for spec in specs:
            if spec is not None and spec.origin is not None and spec.submodule_search_locations:
                folder = Path(spec.origin).resolve().parent
                if folder != OURS and not (folder / _MARK).is_file():
                    yield spec


def _check_not_mixed() -> None:
    """Check that this package was not installed over the vendor's: pip does not separate them.

    Raises:
        ImportError: it was; the message has the folder and the fix.
    """
    found = [name for name in os.listdir(OURS.parent) if name.lower().startswith(f"{NAME}-")]
    found = [name for name in found if name.endswith((".dist-info", ".egg-info"))]
    if found:
        version = found[0].partition("-")[2].rpartition(".")[0]
        raise ImportError(
            f"tecoinfer-modelzoo was installed over the vendor's {NAME} {version} in {OURS.parent}; run: pip uninstall "
            f"tecoinfer-modelzoo, then pip install --force-reinstall {NAME}=={version}, and install both in different "
            "environments"
        )


def need_torch() -> None:
    """Check that PyTorch is installed; raise ImportError if it is not; the message has the installation command."""
    if importlib.util.find_spec("torch") is None:
        from tecoinfer_modelzoo import install_command

        raise ImportError(f"torch_sdaa needs PyTorch, which is not installed; run: {install_command('train')}")


def _say(text: str) -> None:
    """Write a line to stderr if it exists."""
    if sys.stderr is not None:
        sys.stderr.write(f"{NAME}: {text}\n")
