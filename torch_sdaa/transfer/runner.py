"""Runs a script with CUDA's names redirected, as ``python SCRIPT`` would run it; processes that it spawns too."""

from __future__ import annotations

import argparse
import json
import multiprocessing.spawn as spawning
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from torch_sdaa.transfer import switch

SCRIPT = "TORCH_SDAA_SCRIPT"
"""Environment variable that tells a spawned process which script is its main module."""

_CHILD = "torch_sdaa.transfer.child"
_OURS = Path(__file__).resolve().parents[1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m torch_sdaa.run",
        description="Run a script written for CUDA on the simulated device sdaa, without changing it.",
        epilog="Under torchrun: torchrun --nproc_per_node=2 -m torch_sdaa.run SCRIPT ARGUMENTS",
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write what was redirected to FILE, as JSON")
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name, as for python -m")
    parser.add_argument("script", metavar="SCRIPT", help="the script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS", help="the script's own")
    asked = parser.parse_args(arguments)
    if not asked.module and not Path(asked.script).is_file():
        parser.error(f"{asked.script} is no file")
    if asked.report is not None and not asked.report.resolve().parent.is_dir():
        parser.error(f"--report: {asked.report.resolve().parent} is no folder")
    switch.start()
    sys.argv = [asked.script, *asked.arguments]
    try:
        _run(asked.script, asked.module)
    finally:
        if asked.report is not None:
            asked.report.write_text(json.dumps(switch.report(), indent=2) + "\n", encoding="utf-8")


def _run(script: str, module: bool) -> None:
    try:
        if module:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(script, run_name="__main__", alter_sys=True)
            return
        run_as_main(script)
    except SyntaxError as error:
        if inner(error.__traceback__, script) is not None:
            _tell(error, script)  # of something that the script imports
        place = script if error.lineno is None else f"{script}:{error.lineno}"
        _end(f"{place}: this is no Python {sys.version_info[0]}: {error.msg}")
    except Exception as error:  # noqa: BLE001 -- whatever the script raised is shown as Python would
        _tell(error, script)


def run_as_main(script: str) -> None:
    """Run a script as Python would, its own folder on the path; what it raises is raised."""
    sys.path[0] = str(Path(script).resolve().parent)
    os.environ[SCRIPT] = os.path.abspath(script)
    spawning.get_preparation_data = _for_child(spawning.get_preparation_data)
    runpy.run_path(script, run_name="__main__")


def _for_child(original: Any) -> Any:
    """Let a spawned process import the script through a module that begins the redirection first."""

    def get_preparation_data(name: str) -> dict[str, Any]:
        data: dict[str, Any] = original(name)
        if data.pop("init_main_from_path", None) is not None:
            data["init_main_from_name"] = _CHILD
        return data

    return get_preparation_data


def _tell(error: BaseException, script: str) -> NoReturn:
    """Show an error of the script: a refusal of ours in one line, all else as Python would, without our frames."""
    first = trace = inner(error.__traceback__, script)
    place = ""
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).resolve() == Path(script).resolve():
            place = f"{script}:{trace.tb_lineno}: "
        trace = trace.tb_next
    reason = getattr(error, "inner_exception", error)  # of torch.compile, which wraps what its backend raises
    if first is not None and isinstance(reason, RuntimeError) and _OURS in _last(reason).parents:
        _end(f"{place}{reason}")
    sys.excepthook(type(error), error.with_traceback(first or error.__traceback__), first or error.__traceback__)
    sys.exit(1)


def _last(error: BaseException) -> Path:
    """Return the file in which an error was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return Path(trace.tb_frame.f_code.co_filename if trace is not None else "").resolve()


def inner(trace: TracebackType | None, script: str) -> TracebackType | None:
    """Return the part of a traceback that begins in the script; ``None`` where none does."""
    while trace is not None and Path(trace.tb_frame.f_code.co_filename).resolve() != Path(script).resolve():
        trace = trace.tb_next
    return trace


def _end(line: str) -> NoReturn:
    sys.stderr.write(f"{line}\n")
    sys.exit(2)
