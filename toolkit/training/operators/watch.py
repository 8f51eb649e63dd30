"""Child processes: one runs the training under the recorder, one makes single calls on the device."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import ConfigError, ModelError, TargetError
from tecoinfer_modelzoo import install_command
from toolkit.training.operators.table import DeviceTable, as_table
from utils.pipeline.launch.exit_status import how_ended

HERE = Path(__file__).resolve().parent
_GRACE = 30  # seconds that a training has to end by itself after its time limit
_DEVICE_LIMIT = 900  # seconds for the device to be compiled, if necessary, and to make each call once


@dataclass(frozen=True, slots=True)
class Watched:
    """A recorded training."""

    torch: str  # its version
    ended: str  # ``end``, ``steps`` or ``time``
    steps: int  # of optimizers
    operators: list[dict[str, Any]]  # in the format of ``recorder.py``


@dataclass(frozen=True, slots=True)
class Asked:
    """Results from this machine's device: how it serves every operator, and each form's result, in order."""

    table: DeviceTable
    tried: Mapping[str, list[dict[str, Any]]]


def watch(what: str, arguments: Sequence[str], steps: int, seconds: int) -> Watched:
    """Run a training on the CPU for a few steps; its output goes to standard error.

    Args:
        what: a script, or ``module:callable`` or ``file.py:callable`` that returns a model and a batch.
        arguments: of the script. steps: of its optimizers, after which it is stopped. seconds: time limit.

    Raises:
        ConfigError: the file does not exist, or a function was given arguments.
        TargetError: torch is not installed. ModelError: the training failed, or did not stop.
    """
    place, name = _parted(what, arguments)
    if importlib.util.find_spec("torch") is None:
        raise TargetError(f"--training needs torch; run: {install_command('torch')}")
    with tempfile.TemporaryDirectory(prefix="tecoinfer-") as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, str(HERE / "recorder.py"), str(answer), str(steps), str(seconds), place, name]
        # Compiled code would hide the operators; the CPU is required.
        environment = {**os.environ, "TORCHDYNAMO_DISABLE": "1", "CUDA_VISIBLE_DEVICES": ""}
        try:
            done = subprocess.run(
                [*command, *arguments], stdout=2, env=environment, timeout=seconds + _GRACE, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise ModelError(
                f"{what} did not stop within {seconds} s (--seconds) and was killed; nothing was recorded"
            ) from error
        if not answer.is_file():
            raise ModelError(f"{what} ended its process: {how_ended(done.returncode)}; see its output above")
        found = json.loads(answer.read_text(encoding="utf-8"))
    if found["ended"] == "refused":
        raise ModelError(found["why"])
    if found["ended"] == "failed":
        ran = f"{found['steps']} step{'s' * (found['steps'] != 1)}"
        raise ModelError(f"{what} failed after {ran}: {found['why']}")
    if not found["operators"]:
        why = (
            " in its main thread, the only one that is recorded" if found["steps"] else "; pass the script that trains"
        )
        raise ModelError(f"{what} ran no operator of torch{why}")
    if found["ended"] == "end" and not any(one["calls"].get("backward") for one in found["operators"]):
        raise ModelError(f"{what} ran to its end without a backward; pass the script that trains, with its arguments")
    return Watched(found["torch"], found["ended"], found["steps"], found["operators"])


def _parted(what: str, arguments: Sequence[str]) -> tuple[str, str]:
    """Return the file or module, and the name of the function; "" for a script."""
    if Path(what).is_file():
        if Path(what).suffix not in ("", ".py"):
            raise ConfigError(f"{what} is not a Python file; pass the script that trains, or MODULE:NAME of a function")
        return what, ""
    if _is_module(what):
        return what, ""
    place, colon, name = what.rpartition(":")
    if not colon or not name.isidentifier() or not place:
        raise ConfigError(
            f"script {what} does not exist; pass a Python file, or a module as python -m takes it, or MODULE:NAME or "
            "FILE.py:NAME of a function"
        )
    if place.endswith(".py") and not Path(place).is_file():
        raise ConfigError(f"{what}: file {place} does not exist")
    if arguments:
        raise ConfigError(f"{what} is a function, which takes no arguments: {' '.join(arguments)}")
    return place, name


def _is_module(what: str) -> bool:
    """Return whether ``python -m`` could run a module of this name here; nothing is imported."""
    parts = what.split(".")
    path = Path(*parts)
    here = path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
    return here and all(part.isidentifier() for part in parts)


def ask_device(operators: Sequence[Mapping[str, Any]]) -> Asked:
    """Make each recorded call once on the simulated card as a PyTorch device, compiled first if necessary.

    Raise TargetError if the device is not available.
    """
    calls = {one["name"]: [form["call"] for form in one["forms"]] for one in operators}
    with tempfile.TemporaryDirectory(prefix="tecoinfer-") as folder:
        question, answer = Path(folder) / "question.json", Path(folder) / "answer.json"
        question.write_text(json.dumps(calls), encoding="utf-8")
        command = [sys.executable, "-m", "toolkit.training.operators.device", str(question), str(answer)]
        try:
            done = subprocess.run(
                command, cwd=HERE.parents[2], capture_output=True, text=True, timeout=_DEVICE_LIMIT, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise TargetError(f"the device did not answer within {_DEVICE_LIMIT} s") from error
        if not answer.is_file():
            lines = done.stderr.strip().splitlines() or [f"its process ended with {done.returncode}"]
            raise TargetError(f"torch_sdaa cannot be used: {lines[-1]}")
        found = json.loads(answer.read_text(encoding="utf-8"))
    return Asked(as_table(found["table"], Path("the device")), found["tried"])
