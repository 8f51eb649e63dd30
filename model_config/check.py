"""The functional check: ``python -m model_config.check [CASE ...]``.

Runs export, valid, single and multi of every case of the ``model.yaml`` files as a pull request would.
Exit codes: 0 all passed; 1 a step failed; 2 unusable configuration or unknown case; 130 interrupted.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.base import ConfigError, TecoInferError
from model_config.config import ROOT, Case, Step, load_cases, select_cases
from model_config.runner import StepResult, run_cases

SCHEMA_VERSION = 1
"""Version of the JSON layout; it rises when a field changes its meaning or goes."""

CONFIGS = ("model_config/model.yaml", "contrib/model_config/model.yaml")
"""The files that are read where no ``--config`` is given, relative to the repository's root."""

_REASON_WIDTH = 120
"""Characters of a reason the table shows; the JSON and the logs have all of it."""


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Check the cases and return the exit code.

    Args:
        argv: arguments; ``None`` takes the process's own.
        root: the repository the cases belong to.
    """
    args = _arguments(argv)
    try:
        files = args.config or [root / name for name in CONFIGS if (root / name).is_file()]
        cases = select_cases(load_cases(files, root), args.cases)
        if args.json is not None and not args.json.absolute().parent.is_dir():
            raise ConfigError(f"--json {args.json}: folder {args.json.parent} does not exist; create it")
        work_dir = _work_dir(args.work_dir)
        results, interrupted = _run(cases, work_dir, args.timeout, root)
        print(table(results))
        print(f"logs: {work_dir / 'logs'}")
        if args.json is not None:
            _write(args.json, results, work_dir, interrupted)
    except TecoInferError as error:
        print(error, file=sys.stderr)
        return 2
    if interrupted:
        print("interrupted", file=sys.stderr)
        return 130
    return 0 if all(result.passed for result in results) else 1


def table(results: Sequence[StepResult]) -> str:
    """Return the results as an aligned table, one line per step."""
    rows = [("case", "step", "result", "seconds", "eval_metric", "reason")]
    for result in results:
        metric = "" if result.eval_metric is None else f"{result.eval_metric:g}"
        word = "passed" if result.passed else "FAILED"
        reason = result.reason if len(result.reason) <= _REASON_WIDTH else result.reason[: _REASON_WIDTH - 3] + "..."
        rows.append((result.case, result.step, word, f"{result.seconds:.1f}", metric, reason))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m model_config.check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("cases", nargs="*", metavar="CASE", help="case_name of a case to run (default: all)")
    add("--config", type=Path, action="append", metavar="FILE", help=f"instead of {' and '.join(CONFIGS)}; repeatable")
    add("--json", type=Path, metavar="FILE", help="also write the results as JSON")
    add("--timeout", type=_seconds, default=600.0, metavar="SECONDS", help="limit of each step (default: 600)")
    add("--work-dir", type=Path, metavar="DIR", help="folder for logs and copies (default: a new temporary one)")
    return parser.parse_args(argv)


def _seconds(text: str) -> float:
    value = float(text)
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text} must be a positive number of seconds")
    return value


def _work_dir(folder: Path | None) -> Path:
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="model_config_check-"))
    try:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--work-dir {folder} cannot be used: {error.strerror}; choose another folder") from error
    return folder.resolve()


def _run(cases: Sequence[Case], work_dir: Path, timeout: float, root: Path) -> tuple[list[StepResult], bool]:
    """Return the results, and whether Ctrl-C ended the run before its end; on a terminal, show what is running."""
    live = sys.stderr.isatty()

    def announce(case: Case, step: Step) -> None:
        if live:
            print(f"{case.name} {step.name} ... ", end="", file=sys.stderr, flush=True)

    results: list[StepResult] = []
    try:
        for result in run_cases(cases, work_dir, timeout=timeout, root=root, on_start=announce):
            results.append(result)
            if live:
                print(f"{'passed' if result.passed else 'FAILED'} ({result.seconds:.1f} s)", file=sys.stderr)
    except KeyboardInterrupt:
        return results, True
    return results, False


def _write(path: Path, results: Sequence[StepResult], work_dir: Path, interrupted: bool) -> None:
    from utils.pipeline.report import environment, write_json

    steps: list[dict[str, Any]] = [
        {**asdict(result), "stdout": str(result.stdout), "stderr": str(result.stderr)} for result in results
    ]
    passed = not interrupted and all(result.passed for result in results)
    data = {"schema_version": SCHEMA_VERSION, "kind": "model_config_check", "passed": passed}
    data |= {"interrupted": interrupted, "logs": str(work_dir / "logs"), "steps": steps}
    write_json({**data, **environment()}, path)


def interrupt_on_termination() -> None:
    """Treat SIGTERM like Ctrl-C: a check that CI gives up must not leave a step running in its own session."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


if __name__ == "__main__":
    interrupt_on_termination()
    sys.exit(main())
