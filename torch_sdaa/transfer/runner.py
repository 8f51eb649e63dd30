"""Run a script with CUDA's names redirected, like ``python SCRIPT``, including the Python processes that it starts."""

from __future__ import annotations

import argparse
import functools
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from torch_sdaa.transfer import switch

SCHEMA_VERSION = 1  # version of the file of --report; raised when a field is removed or changes its meaning
_CHILDREN = Path(__file__).resolve().parent / "children"
_OURS = Path(__file__).resolve().parents[1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m torch_sdaa.run",
        description="Run a CUDA script on the simulated device sdaa without changes.",
        epilog="Under torchrun: torchrun --nproc_per_node=2 -m torch_sdaa.run SCRIPT ARGUMENTS",
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="write the counts of redirected names to FILE, as JSON"
    )
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module name, as for python -m")
    parser.add_argument("script", metavar="SCRIPT", help="the script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS", help="arguments of the script")
    asked = parser.parse_args(arguments)
    if not asked.module and not Path(asked.script).is_file():
        parser.error(f"{asked.script} is not a file")
    if asked.report is not None and not asked.report.resolve().parent.is_dir():
        parser.error(f"--report: {asked.report.resolve().parent} is not a folder")
    switch.start()
    reach_children()
    sys.argv = [asked.script, *asked.arguments]
    try:
        _run(asked.script, asked.module)
    finally:
        if asked.report is not None:
            counts = {"schema_version": SCHEMA_VERSION, **switch.report()}
            asked.report.write_text(json.dumps(counts, indent=2) + "\n", encoding="utf-8")


def _run(script: str, module: bool) -> None:
    try:
        if module:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(script, run_name="__main__", alter_sys=True)
            return
        run_as_main(script)
    except SyntaxError as error:
        if inner(error.__traceback__, script) is not None:
            _show(error, script)  # in an imported module
        place = script if error.lineno is None else f"{script}:{error.lineno}"
        _end(f"{place}: not valid Python {sys.version_info[0]}: {error.msg}")
    except Exception as error:  # noqa: BLE001 -- errors of the script are shown like by Python
        _show(error, script)


def run_as_main(script: str) -> None:
    """Run a script like Python, with its folder on the path; its errors are raised."""
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")


def reach_children() -> None:
    """Let the Python processes that the script starts load ``children/sitecustomize.py``.

    It redirects CUDA when they import torch: workers of ``torch.multiprocessing``, ``subprocess``, ranks of a launcher.
    """
    os.environ[switch.RUNNER] = sys.prefix
    os.environ[switch.VARIABLE] = "1"
    os.environ["PYTHONPATH"] = with_children(os.environ.get("PYTHONPATH", ""))
    keep_children()


def with_children(paths: str) -> str:
    """Return a value of ``PYTHONPATH`` with the folder for child processes, first if it was not there."""
    if str(_CHILDREN) in paths.split(os.pathsep):
        return paths
    return f"{_CHILDREN}{os.pathsep}{paths}" if paths else str(_CHILDREN)


def keep_children() -> None:
    """Keep the folder on the path of children when the script sets or removes ``PYTHONPATH``, or passes its own value.

    ``os.environ`` has the script's value; the process's environment, which children inherit, has both.
    """
    os.putenv = _putting(os.putenv)  # called by os.environ
    os.unsetenv = _removing(os.unsetenv)
    subprocess.Popen.__init__ = _starting(subprocess.Popen.__init__)  # type: ignore[method-assign]


def _putting(original: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    @functools.wraps(original)
    def putenv(name: Any, value: Any, /) -> None:
        if os.fsencode(name) == b"PYTHONPATH":
            value = os.fsencode(with_children(os.fsdecode(value)))
        original(name, value)

    return putenv


def _removing(original: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(original)
    def unsetenv(name: Any, /) -> None:
        if os.fsencode(name) == b"PYTHONPATH":
            os.putenv(name, b"")
        else:
            original(name)

    return unsetenv


def _starting(original: Callable[..., None]) -> Callable[..., None]:
    """Return the constructor of ``subprocess.Popen`` with the folder in an environment that has the runner's variables.

    An environment without them was made to be clean.
    """

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, env: Any = None, **kwargs: Any) -> None:  # noqa: N807
        if env is not None and switch.RUNNER in env:
            env = {**env, "PYTHONPATH": with_children(os.fsdecode(env.get("PYTHONPATH", "")))}
        original(self, *args, **({} if env is None else {"env": env}), **kwargs)

    return __init__


def _show(error: BaseException, script: str) -> NoReturn:
    """Show an error of the script: a refusal in one line, others like Python, without this package's frames."""
    first = trace = inner(error.__traceback__, script)
    place = ""
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).resolve() == Path(script).resolve():
            place = f"{script}:{trace.tb_lineno}: "
        trace = trace.tb_next
    reason = getattr(error, "inner_exception", error)  # torch.compile wraps errors of its backend
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
    """Return the traceback from the script on; ``None`` if there is none."""
    while trace is not None and Path(trace.tb_frame.f_code.co_filename).resolve() != Path(script).resolve():
        trace = trace.tb_next
    return trace


def _end(line: str) -> NoReturn:
    sys.stderr.write(f"{line}\n")
    sys.exit(2)
