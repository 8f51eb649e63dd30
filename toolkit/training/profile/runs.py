"""Runs a training script under the profiler, in a process of its own, and reads what that wrote."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine import ConfigError, ModelError, TargetError
from tecoinfer_modelzoo import install_command
from tecoinfer_modelzoo.formatting import plural
from tecoinfer_modelzoo.progress import progress
from tecoinfer_modelzoo.text import shortened
from toolkit.training.profile.record import Profile, checked
from utils.pipeline.launch.exit_status import how_ended

_CHILD = "torch_sdaa.profiling.child"
_ROOT = Path(__file__).resolve().parents[3]
_INTERVAL = 0.05
_LAST_WORDS = 30.0
"""Seconds in which a script that took too long writes what was seen."""


def profile_script(
    script: Path, arguments: Sequence[str], steps: int, timeout: float, folder: Path
) -> tuple[Profile, dict[str, Any]]:
    """Run a script until so many optimizer steps are done; return its profile and its Chrome trace.

    What it prints goes to standard error.

    Args:
        script: a Python file. arguments: its own. steps: of its optimizers; 0: to its end.
        timeout: seconds after which it is ended. folder: for what it leaves behind; empty.

    Raises:
        ConfigError: there is no such file. TargetError: torch is not installed.
        ModelError: it failed before its first step, took too long, or launched nothing on the card.
    """
    if not script.is_file():
        raise ConfigError(f"{script} is no file; name the Python file of a training script")
    if importlib.util.find_spec("torch") is None:
        raise TargetError(f"teco train profile needs torch; run: {install_command('torch')}")
    code = _run(
        [sys.executable, "-m", _CHILD, str(folder), str(steps), str(script), *arguments], steps, timeout, folder
    )
    answer = folder / "record.json"
    if not answer.is_file():
        raise ModelError(_why_none(script.name, code, timeout, folder))
    found = checked(json.loads(answer.read_text(encoding="utf-8")), script.name)
    if not found.data["launches"]:
        raise ModelError(
            f"{script.name} launched nothing on the card; give it the arguments with which it trains on sdaa or cuda, "
            f"behind two hyphens: teco train profile {script} -- --device sdaa; processes that it starts are not seen: "
            "where they train, profile what one of them runs"
        )
    return found, json.loads((folder / "trace.json").read_text(encoding="utf-8"))


def _why_none(name: str, code: int | None, timeout: float, folder: Path) -> str:
    """Return why there is no profile."""
    failure = folder / "failure.txt"
    if code is None:
        return f"the script took longer than {timeout:g} s and was ended; see --timeout and --steps"
    if failure.is_file():
        return failed(name, _done(folder), failure.read_text(encoding="utf-8"))
    return f"{name} ended its process: {how_ended(code)}; what it said stands above"


def failed(name: str, steps: int, why: str) -> str:
    """Return what is said of a script that failed."""
    return f"{name} failed after {plural(steps, 'step')}: {shortened(why, 300)}"


def _run(command: Sequence[str], steps: int, timeout: float, folder: Path) -> int | None:
    """Return the exit code of the script's process; None: it took too long, and was ended."""
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH", ""))))
    process = None
    try:
        process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=2,
            start_new_session=True,
        )
        deadline = time.monotonic() + timeout
        for step in progress(range(steps), "step", "profiling"):
            while _done(folder) <= step and process.poll() is None and time.monotonic() < deadline:
                time.sleep(_INTERVAL)
        with suppress(subprocess.TimeoutExpired):
            return process.wait(max(0.0, deadline - time.monotonic()))
        process.terminate()  # it writes what it has seen
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LAST_WORDS)
        return None
    finally:
        if process is not None:
            with suppress(OSError):  # nothing of it is left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _done(folder: Path) -> int:
    """Return how many optimizer steps the script has done."""
    file = folder / "steps"
    return file.stat().st_size if file.is_file() else 0
