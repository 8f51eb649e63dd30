"""Run a training script under the profiler in a child process, and read the profile."""

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
_LAST_WORDS = 30.0  # seconds in which a script that exceeded its time writes the profile of its finished steps


def profile_script(
    script: Path, arguments: Sequence[str], steps: int, timeout: float, folder: Path
) -> tuple[Profile, dict[str, Any]]:
    """Run a script until the given number of optimizer steps; return its profile and its Chrome trace.

    Its output goes to standard error.

    Args:
        script: a Python file. arguments: its arguments. steps: of its optimizers; 0: to its end.
        timeout: seconds after which it is ended. folder: for the files it writes; empty.

    Raises:
        ConfigError: the file does not exist. TargetError: torch is not installed.
        ModelError: it failed before its first step, took too long, or launched nothing on the card.
    """
    if not script.is_file():
        raise ConfigError(f"{script} is not a file; pass the Python file of a training script")
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
            f"{script.name} launched nothing on the card; pass the arguments with which it trains on sdaa or cuda "
            f"after two hyphens: teco train profile {script} -- --device sdaa; child processes are not profiled: if "
            "they train, profile the script that one of them runs"
        )
    return found, json.loads((folder / "trace.json").read_text(encoding="utf-8"))


def _why_none(name: str, code: int | None, timeout: float, folder: Path) -> str:
    """Return why the profile is missing."""
    failure = folder / "failure.txt"
    if code is None:
        return f"the script took longer than {timeout:g} s and was ended; see --timeout and --steps"
    if failure.is_file():
        return failed(name, _done(folder), failure.read_text(encoding="utf-8"))
    return f"{name} ended its process: {how_ended(code)}; see its output above"


def failed(name: str, steps: int, why: str) -> str:
    """Return the message for a script that failed."""
    return f"{name} failed after {plural(steps, 'step')}: {shortened(why, 300)}"


def _run(command: Sequence[str], steps: int, timeout: float, folder: Path) -> int | None:
    """Return the exit code of the script's process; ``None`` if it took too long and was ended."""
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH", ""))))
    process = None
    try:
        process = subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True
        )
        deadline = time.monotonic() + timeout
        for step in progress(range(steps), "step", "profiling"):
            while _done(folder) <= step and process.poll() is None and time.monotonic() < deadline:
                time.sleep(_INTERVAL)
        with suppress(subprocess.TimeoutExpired):
            return process.wait(max(0.0, deadline - time.monotonic()))
        process.terminate()  # it writes the profile of its finished steps
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LAST_WORDS)
        return None
    finally:
        if process is not None:
            with suppress(OSError):  # the process group has ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _done(folder: Path) -> int:
    """Return the number of finished optimizer steps."""
    file = folder / "steps"
    return file.stat().st_size if file.is_file() else 0
