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

from engine import ConfigError, ModelError, TargetError, shortened
from tecoinfer_modelzoo import install_command
from toolkit.train_profile.record import Profile, checked
from utils.pipeline.launch.ends import how_ended
from utils.progress import progress

_CHILD = "torch_sdaa.profiling.child"
_ROOT = Path(__file__).resolve().parents[2]
_INTERVAL = 0.05


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
        ModelError: it failed, took too long, or launched nothing on the card.
    """
    if not script.is_file():
        raise ConfigError(f"{script} is no file; name the Python file of a training script")
    if importlib.util.find_spec("torch") is None:
        raise TargetError(f"teco profile-train needs torch; run: {install_command('torch')}")
    code = _run(
        [sys.executable, "-m", _CHILD, str(folder), str(steps), str(script), *arguments], steps, timeout, folder
    )
    failure, answer = folder / "failure.txt", folder / "record.json"
    if failure.is_file():
        why = shortened(failure.read_text(encoding="utf-8"), 300)
        raise ModelError(f"{script.name} failed after {_done(folder)} steps: {why}")
    if code or not answer.is_file():
        raise ModelError(f"{script.name} ended its process: {how_ended(code)}; what it said stands above")
    found = checked(json.loads(answer.read_text(encoding="utf-8")), script.name)
    if not found.data["launches"]:
        raise ModelError(
            f"{script.name} launched nothing on the card; give it the arguments with which it trains on sdaa or cuda, "
            f"behind two hyphens: teco profile-train {script} -- --device sdaa"
        )
    return found, json.loads((folder / "trace.json").read_text(encoding="utf-8"))


def _run(command: Sequence[str], steps: int, timeout: float, folder: Path) -> int:
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
        return process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise ModelError(
            f"the script took longer than {timeout:g} s and was ended; see --timeout and --steps"
        ) from None
    finally:
        if process is not None:
            with suppress(OSError):  # nothing of it is left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _done(folder: Path) -> int:
    """Return how many optimizer steps the script has done."""
    file = folder / "steps"
    return file.stat().st_size if file.is_file() else 0
