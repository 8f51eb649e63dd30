"""Running the cases: one process per step, in a copy of the model's folder.

The copy keeps the checkout as it is: the export writes its files there, and it goes when the case is done.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from model_config.config import ROOT, Case, Step

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|inf|nan)"
_METRIC = re.compile(rf"eval_metric ({_NUMBER})", re.IGNORECASE)
_SUMMARY = re.compile(
    rf"summary: avg_sps: {_NUMBER}, e2e_time: {_NUMBER}, avg_inference_time: {_NUMBER}, "
    rf"avg_preprocess_time: {_NUMBER}, avg_postprocess: {_NUMBER}(, .*)?",
    re.IGNORECASE,
)
_TAIL = 65536
"""Bytes at the end of a log that are searched for closing lines and reasons."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step did.

    Attributes:
        case, step: names of the case and of the step (a key of :data:`model_config.config.STEPS`).
        command: the argument list that was run.
        passed: the step did all that is asked of it.
        seconds: wall time.
        exit_code: the process's; negative for a signal, ``None`` where it did not end by itself or never started.
        reason: one line that says why it failed; empty where it passed.
        stdout, stderr: its log files.
        eval_metric: the metric a valid step printed, where it printed one.
    """

    case: str
    step: str
    command: tuple[str, ...]
    passed: bool
    seconds: float
    exit_code: int | None
    reason: str
    stdout: Path
    stderr: Path
    eval_metric: float | None = None


def run_cases(
    cases: Iterable[Case],
    work_dir: Path,
    *,
    timeout: float,
    root: Path = ROOT,
    on_start: Callable[[Case, Step], None] | None = None,
) -> Iterator[StepResult]:
    """Run every step of every case and yield its result; a failure stops nothing.

    Args:
        cases: what to run, as :func:`model_config.config.load_cases` gives it.
        work_dir: folder for ``logs/`` and, while a case runs, its copy of the model's folder.
        timeout: seconds a step may take; after that it is killed with the processes it started.
        root: the repository the cases belong to.
        on_start: called before each step.
    """
    for case in cases:
        logs = work_dir / "logs" / case.name
        logs.mkdir(parents=True, exist_ok=True)
        tree = Path(tempfile.mkdtemp(prefix=f"{case.name}-", dir=work_dir))
        try:
            trouble = _try_mirror(root, case, tree)
            for step in case.steps:
                if on_start is not None:
                    on_start(case, step)
                yield _run_step(case, step, tree, logs, timeout) if not trouble else _not_run(case, step, logs, trouble)
        finally:
            shutil.rmtree(tree, ignore_errors=True)


def mirror(root: Path, case: Case, tree: Path) -> None:
    """Build a tree that looks like the repository and in which only the model's folder is a real copy.

    Everything else is linked. The scripts find the repository by ``Path(__file__).resolve().parents[3]``, which follows
    links; so they are copied. Checkpoints that git ignores are left out: in a fresh clone only the export makes them.

    Raises:
        OSError: something cannot be read or written.
    """
    original, copy = root, tree
    for part in case.run_dir.split("/"):
        copy.mkdir(exist_ok=True)
        for entry in original.iterdir():
            if entry.name != part and not entry.name.startswith("."):
                (copy / entry.name).symlink_to(entry.absolute())
        original, copy = original / part, copy / part
    shutil.copytree(original, copy, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    _mend_links(original, copy)
    for ckpt in {str(step.params["ckpt"]) for step in case.steps if "ckpt" in step.params}:
        if _git_ignores(original, ckpt):
            (copy / ckpt).unlink(missing_ok=True)


def _try_mirror(root: Path, case: Case, tree: Path) -> str:
    try:
        mirror(root, case, tree)
    except OSError as error:
        return f"{case.run_dir} cannot be copied to {tree}: {' '.join(str(error).split())}"
    return ""


def _mend_links(original: Path, copy: Path) -> None:
    """Let links that lead out of the copied folder (to a data set, say) lead where they did before."""
    inside = original.resolve()
    for folder, folders, files in os.walk(copy):
        for link in (path for name in folders + files if (path := Path(folder, name)).is_symlink()):
            target = (original / link.relative_to(copy)).resolve()
            if not target.is_relative_to(inside):
                link.unlink()
                link.symlink_to(target)


def _git_ignores(folder: Path, name: str) -> bool:
    """Say whether git ignores a file inside a folder; without git, or outside a repository, it ignores nothing."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        return False
    try:
        ran = subprocess.run(["git", "check-ignore", "-q", "--", name], cwd=folder, capture_output=True, check=False)  # noqa: S607
    except OSError:  # git is not installed
        return False
    return ran.returncode == 0


def _run_step(case: Case, step: Step, tree: Path, logs: Path, timeout: float) -> StepResult:
    """Run one step in the copied tree and judge what it did."""
    result = _not_run(case, step, logs, "")
    environment = os.environ | {
        # `contrib/` has no engine of its own, so scripts there find it by the path.
        "PYTHONPATH": os.pathsep.join(filter(None, [str(tree), os.environ.get("PYTHONPATH")])),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",  # so that the log of a killed step holds all it printed
    }
    start = time.perf_counter()
    try:
        with result.stdout.open("wb") as out, result.stderr.open("wb") as err:
            code = _wait(result.command, tree / case.run_dir, environment, out.fileno(), err.fileno(), timeout)
    except OSError as error:
        return replace(result, passed=False, reason=f"could not be started: {error}")
    seconds = time.perf_counter() - start
    metric, trouble = _closing(result.stdout) if step.name == "valid" else (None, "")
    if code is None:
        trouble = f"timed out after {timeout:g} s and was killed with its child processes"
    elif code != 0:
        trouble = f"{_ending(code)}: {_last_line(result.stderr) or _last_line(result.stdout) or 'no output'}"
    return replace(result, passed=not trouble, seconds=seconds, exit_code=code, reason=trouble, eval_metric=metric)


def _not_run(case: Case, step: Step, logs: Path, reason: str) -> StepResult:
    command = (sys.executable, step.run_file, *step.arguments)
    files = logs / f"{step.name}.stdout", logs / f"{step.name}.stderr"
    return StepResult(case.name, step.name, command, False, 0.0, None, reason, *files)


def _wait(
    command: tuple[str, ...], folder: Path, environment: dict[str, str], out: int, err: int, timeout: float
) -> int | None:
    """Return the exit code, or ``None`` after a timeout; a step never outlives this call."""
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
    )
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # Not yet waited for means its group still exists: a timeout, or Ctrl-C here, which its own session cannot hear.
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _closing(stdout: Path) -> tuple[float | None, str]:
    """Return the metric of the two closing lines, and what is wrong with them."""
    lines = [line.strip() for line in _tail(stdout) if line.strip()][-2:]
    metric = _METRIC.fullmatch(lines[0]) if len(lines) == 2 else None
    if metric is None or not _SUMMARY.fullmatch(lines[1]):
        return None, "the output does not end with the lines 'eval_metric <number>' and 'summary: avg_sps: ...'"
    value = float(metric[1])
    return (value, "") if math.isfinite(value) else (None, f"eval_metric {value} is not a finite number")


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"killed by {name}"


def _last_line(log: Path) -> str:
    return next((line.strip() for line in reversed(_tail(log)) if line.strip()), "")


def _tail(log: Path) -> list[str]:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL))
        return file.read().decode("utf-8", errors="replace").splitlines()
