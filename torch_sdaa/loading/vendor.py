"""The vendor's own package of this name, to which ours leaves the place; and PyTorch, without which there is no device.

Imported before anything else of ours, and importing nothing of it: what is loaded stays loaded in the vendor's place.
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
"""What every copy of our package has, another clone's too."""

_RANKS = ("RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
"""Environment variables with which launchers number the processes of one run."""


def first_process() -> bool:
    """Return whether this is the process to say what every process of a run would: no worker, no rank above 0."""
    processes = sys.modules.get("multiprocessing.process")
    # The name tells a spawned worker while it still imports the main module; only later it knows its parent.
    if processes is not None and processes.current_process().name != "MainProcess":
        return False
    return all((os.environ.get(name) or "0") == "0" for name in _RANKS)


def step_aside() -> bool:
    """Load the vendor's package in the place of ours where it is installed, and say so; else return ``False``.

    Raises:
        ImportError: both were installed into one folder, so that the vendor's is no longer whole. Besides that,
            whatever importing the vendor's raises.
    """
    _refuse_mixed()
    spec = next(_others(), None)
    if spec is None or spec.loader is None:
        return False
    if first_process():
        _say(f"using the vendor's package in {spec.origin}; the simulated card's in {OURS} steps aside")
    for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
        del sys.modules[name]
    module = sys.modules[NAME] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return True


def _others() -> Iterator[ModuleSpec]:
    """Yield the packages of this name that Python could import and that are not ours, in the order of the path."""
    for finder in sys.meta_path:
        if finder is PathFinder:
            specs = [PathFinder.find_spec(NAME, [entry]) for entry in dict.fromkeys(sys.path)]
        else:  # such as an editable install has
            specs = [finder.find_spec(NAME, None)]
        for spec in specs:
            if spec is not None and spec.origin is not None and spec.submodule_search_locations:
                folder = Path(spec.origin).resolve().parent
                if folder != OURS and not (folder / _MARK).is_file():
                    yield spec


def _refuse_mixed() -> None:
    """Refuse where our files were written over those of the vendor's package: pip does not keep two apart.

    Raises:
        ImportError: the line names the folder, and what to do.
    """
    found = [name for name in os.listdir(OURS.parent) if name.lower().startswith(f"{NAME}-")]
    found = [name for name in found if name.endswith((".dist-info", ".egg-info"))]
    if found:
        version = found[0].partition("-")[2].rpartition(".")[0]
        raise ImportError(
            f"tecoinfer-modelzoo was installed over the vendor's {NAME} {version} in {OURS.parent}; run: pip uninstall "
            f"tecoinfer-modelzoo, then pip install --force-reinstall {NAME}=={version}, and keep the two in different "
            "environments"
        )


def need_torch() -> None:
    """Refuse where PyTorch is not installed.

    Raises:
        ImportError: the line says the command that installs it.
    """
    if importlib.util.find_spec("torch") is None:
        from tecoinfer_modelzoo import install_command

        raise ImportError(f"torch_sdaa needs PyTorch, which is not installed; run: {install_command('train')}")


def _say(text: str) -> None:
    """Write a line to stderr, where there is one."""
    if sys.stderr is not None:
        sys.stderr.write(f"{NAME}: {text}\n")
