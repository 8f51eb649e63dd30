"""One run of a training script: a process with limits, and the files it writes.

The contract of a script (example in docs/how-to/training.md). It is run as

    python SCRIPT [arguments] --device DEVICE --seed SEED --losses FILE

and writes JSON lines to FILE: first ``{"device": "sdaa:0", "seed": 0}``, the device of the weights and the seed;
then ``{"step": 0, "loss": 2.31}`` for every step, in order. The last line of standard output that begins with
``eval_metric`` has the final metric.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import DataError
from tecoinfer_modelzoo.text import shortened
from utils.pipeline.launch.exit_status import how_ended

LARGEST = 1 << 28  # maximum size in bytes of a file that a run writes: losses, standard output or standard error
_METRIC = re.compile(r"^eval_metric[ \t]+(\S+)[ \t]*$", re.MULTILINE)
_TAIL = 1 << 16
_INTERVAL = 0.05
_PAGE = "see docs/how-to/training.md for what a script must write"


@dataclass(frozen=True, slots=True)
class Run:
    """Results of a run: steps and losses (may be NaN or infinite) of equal length, final metric, wall seconds."""

    device: str
    seed: int
    steps: tuple[int, ...]
    losses: tuple[float, ...]
    metric: float
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """Name of the run in messages."""
        return f"{self.device}, seed {self.seed}"


def run_script(
    script: Path, arguments: Sequence[str], device: str, seed: int, folder: Path, timeout: float = 600.0
) -> Run:
    """Run a script once, in the current folder; return its results.

    Args:
        script: a Python file. arguments: those before the three of the contract.
        device: such as ``sdaa:1``. seed: from 0 up.
        folder: for its losses and logs, named by device and seed; created if missing.
        timeout: seconds after which it is killed, with all processes that it started.

    Raises:
        DataError: it failed, took too long, or did not write the required output; the text names the run.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"{device.replace(':', '_')}_{seed}"
    losses, out, err = (stem.with_suffix(end) for end in (".jsonl", ".stdout", ".stderr"))
    losses.unlink(missing_ok=True)
    own = ["--device", device, "--seed", str(seed), "--losses", str(losses)]
    name = f"{script.name} on {device}, seed {seed}"
    start = time.perf_counter()
    process = None
    try:
        with out.open("wb") as stdout, err.open("wb") as stderr, _signals_after():
            command = [sys.executable, str(script), *arguments, *own]
            process = subprocess.Popen(
                command,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        why = _wait(process, timeout, (losses, out, err))
    finally:
        if process is not None:
            with suppress(OSError):  # the process group has ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if why:
        raise DataError(f"{name}: {why}")
    if process.returncode:
        last = _last_line(err) or _last_line(out) or "it printed nothing"
        raise DataError(f"{name}: {how_ended(process.returncode)}: {last}")
    steps, values = read_losses(losses, device, seed, name)
    return Run(device, seed, steps, values, _metric(out, name), time.perf_counter() - start)


@contextmanager
def _signals_after() -> Iterator[None]:
    """Defer Ctrl-C and SIGTERM until the end of the block: a process that is being started could not be ended."""
    received: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()  # only this thread may set handlers
    kinds = (signal.SIGINT, signal.SIGTERM) if is_main else ()
    before = {kind: signal.signal(kind, lambda number, _: received.append(number)) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
    for number in received[:1]:
        signal.raise_signal(number)


def _environment() -> dict[str, str]:
    """Return a run's environment: by default the card draws the CPU's random numbers, or dropout alone would differ."""
    return {"TORCH_SDAA_RANDOM": "cpu", **os.environ}


def _wait(process: subprocess.Popen[bytes], timeout: float, files: Sequence[Path]) -> str:
    """Wait until a process ends; return why it must be killed, or "" if it ended by itself."""
    deadline = time.monotonic() + timeout
    while process.poll() is None:
        if time.monotonic() > deadline:
            return f"took longer than {timeout:g} s and was killed; make it faster, or raise --timeout"
        for file in files:
            if file.exists() and file.stat().st_size > LARGEST:
                return f"wrote more than {LARGEST >> 20} MiB to {file.name} and was killed; write one line a step"
        with suppress(subprocess.TimeoutExpired):
            process.wait(_INTERVAL)
    return ""


def read_losses(file: Path, device: str, seed: int, name: str) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return a run's steps and losses; raise DataError if the file is missing, invalid, or of another run."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{name}: its losses cannot be read: {error}; {_PAGE}") from error
    if not lines:
        raise DataError(f"{name}: wrote nothing to the file given by --losses; {_PAGE}")
    head = _record(lines[0], 1, name)
    _check_head(head, device, seed, name)
    steps: list[int] = []
    losses: list[float] = []
    for number, line in enumerate(lines[1:], start=2):
        record = _record(line, number, name)
        step, loss = record.get("step"), record.get("loss")
        if type(step) is not int or not isinstance(loss, (int, float)) or isinstance(loss, bool):
            raise DataError(
                f'{name}: line {number} of its losses is not of the form {{"step": 0, "loss": 2.31}}; {_PAGE}'
            )
        if steps and step <= steps[-1]:
            raise DataError(
                f"{name}: line {number} of its losses has step {step} after {steps[-1]}; write them in order"
            )
        steps.append(step)
        losses.append(_float(loss))
    if not steps:
        raise DataError(f"{name}: wrote no loss of any step; {_PAGE}")
    return tuple(steps), tuple(losses)


def _float(loss: int | float) -> float:
    try:
        return float(loss)
    except OverflowError:  # an integer beyond the range of float
        return math.inf


def _record(line: str, number: int, name: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name}: line {number} of its losses is not JSON; {_PAGE}") from error
    if not isinstance(found, dict):
        raise DataError(f"{name}: line {number} of its losses is not a JSON object; {_PAGE}")
    return found


def _check_head(head: dict[str, Any], device: str, seed: int, name: str) -> None:
    """Raise DataError if the run used another device or seed than requested."""
    if "device" not in head or "seed" not in head:
        raise DataError(
            f'{name}: the first line of its losses is not {{"device": "{device}", "seed": {seed}}}; {_PAGE}'
        )
    where, seeded = str(head["device"]), head["seed"]
    if where != device and (":" in device or where.partition(":")[0] != device):
        raise DataError(
            f"{name}: it ran on {shortened(where, 60)}, not on {device}; use the value of --device in the script"
        )
    if seeded != seed:
        raise DataError(
            f"{name}: its seed was {shortened(str(seeded), 60)}, not {seed}; use the value of --seed in the script"
        )


def _metric(out: Path, name: str) -> float:
    found = _METRIC.findall(_tail(out))
    try:
        return float(found[-1])
    except (IndexError, ValueError):
        why = (
            f"printed {shortened('eval_metric ' + found[-1], 60)!r}"
            if found
            else "did not print a line 'eval_metric 0.98'"
        )
        raise DataError(f"{name}: {why}; {_PAGE}") from None


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in _tail(log).splitlines() if line.strip()]
    return shortened(lines[-1], 300) if lines else ""


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL))
        return file.read().decode("utf-8", errors="replace")
