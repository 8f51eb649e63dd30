"""The gate: `teco check [CASE ...]`, the same as `python -m model_config.check`.

Checks structure, function, accuracy and speed of every case of the `model.yaml` files as a pull request would.
Exit codes: 0 all passed; 1 something failed; 2 unusable configuration or unknown case; 4 nothing failed, but a strict
gate is undecided; 130 interrupted.
"""

from __future__ import annotations

import argparse
import datetime
import math
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from engine import ConfigError, TecoInferError, add_version, usable_cores
from model_config.cases.config import CONFIGS, ROOT, Case, Problem, read_cases, select_cases
from model_config.remembered import Remembered
from model_config.results import CaseResult, CheckResult, Finding
from model_config.run.environment import check_names
from model_config.run.foreign import leave_contributed
from model_config.run.runner import Limits, default_memory
from model_config.run.watch import adopting
from model_config.written import settle
from tecoinfer_modelzoo import has_packages
from tecoinfer_modelzoo.flags import STDOUT, add_json_flag, hide_aliases, reserve_stdout, restoring_stdout
from tecoinfer_modelzoo.text import shortened
from utils.places import check_outputs

SHARED = ("utils", "contrib/utils")
"""Folders whose files must follow the rules of shared code."""

_GIB = 2**30


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Check the cases and return the exit code.

    Args:
        argv: arguments; ``None`` takes the process's own.
        root: the repository the cases belong to.
    """
    args = _arguments(argv)
    try:
        _check_packages(args)
        if args.structure and args.update:
            raise ConfigError("--structure runs no step, so that --update has nothing to write; leave one of them out")
        reserve_stdout(args.json)
        files = {f"--{name}": getattr(args, name) for name in ("json", "junit", "markdown", "html")}
        files["--json"] = None if args.json == STDOUT else args.json
        check_names(args.env)
        check_outputs(files, args.config or (), makes_folders=True)
        check = _checked(args, root)
        _report(check, args)
    except TecoInferError as error:
        print(error, file=sys.stderr)
        return 2
    return check.exit_code


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="teco check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_version(parser)
    add = parser.add_argument
    add("cases", nargs="*", metavar="CASE", help="case, model or folder to check (default: all)")
    add("--changed_since", metavar="REV", help="only cases affected by changes since this commit or branch")
    add("--config", type=Path, action="append", metavar="FILE", help=f"instead of {' and '.join(CONFIGS)}; repeatable")
    add_json_flag(parser, "the results")
    add("--junit", type=Path, metavar="FILE", help="also write them as JUnit XML")
    add("--markdown", type=Path, metavar="FILE", help="also write them as Markdown for a pull request")
    add("--html", type=Path, metavar="FILE", help="also write them as one self-contained page")
    add("--jobs", type=_count, metavar="N", help="number of parallel cases (default: one per core)")
    add("--timeout", type=_positive, default=600.0, metavar="SECONDS", help="time limit of each step (default: 600)")
    memory = "memory limit of each step (default: 8, or three quarters of a smaller machine)"
    add("--memory_limit", dest="memory", type=_positive, default=default_memory() / _GIB, metavar="GIB", help=memory)
    add("--work_dir", type=Path, metavar="DIR", help="folder for logs and copies (default: a new temporary one)")
    add(
        "--strict",
        action="store_true",
        help="also require a bound on other data within the tolerance (exit code 4)",
    )
    add("--structure", action="store_true", help="apply only the rules of structure, and run no step")
    add("--no_host_speed", action="store_true", help="do not judge times of this host (for a busy or shared host)")
    add(
        "--no_cache",
        action="store_true",
        help="also run cases that passed before and have not changed, and parse all files",
    )
    add(
        "--env",
        action="append",
        default=[],
        metavar="NAME",
        help="pass this environment variable to the steps; repeatable",
    )
    add("--update", action="store_true", help="write numerics.yaml and perf.yaml of each model that passes")
    add("--verbose", action="store_true", help="print the output of the steps")
    hide_aliases(parser, "--memory_limit", "--memory")
    for flag in ("--changed_since", "--work_dir", "--no_host_speed", "--no_cache"):
        hide_aliases(parser, flag, f"--{flag[2:].replace('_', '-')}")
    return parser.parse_args(argv)


def _positive(text: str) -> float:
    value = float(text)
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text} must be a positive number")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} must be at least 1")
    return value


def _check_packages(args: argparse.Namespace) -> None:
    """Report missing packages before anything runs."""
    from tecoinfer_modelzoo.extra import extra

    with extra("the check"):
        import packaging.requirements  # noqa: F401
        import rich.console  # noqa: F401
    if args.html is not None:
        with extra("the HTML page"):
            import jinja2  # noqa: F401


def _checked(args: argparse.Namespace, root: Path) -> CheckResult:
    start, date = time.perf_counter(), datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    files = args.config or [root / name for name in CONFIGS if (root / name).is_file()]
    cases, problems = read_cases(files, root)
    if not cases and problems:
        raise ConfigError(*_of_whole(problems))
    if not cases and args.config:
        given = ", ".join(str(file) for file in args.config)
        raise ConfigError(f"no case in {given}; begin a model: teco new DOMAIN MODEL, or name another file: --config")
    cases, why = _selected(cases, args, root)
    remembered = Remembered(stored=not args.no_cache)
    check = CheckResult(
        (),
        (*_of_whole(problems), *_of_shared(root, remembered)),
        commit=commit_of(root),
        date=date,
        logs=_work_dir(args.work_dir) / "logs",
        environment=_environment(),
    )
    if not cases:
        print(f"no model is affected by the changes since {args.changed_since}")
        return replace(check, seconds=time.perf_counter() - start)
    for name, reason in why.items():
        print(f"{name}: {reason}", file=sys.stderr)
    results, interrupted = _run(cases, problems, check, args, root, remembered)
    remembered.save()
    order = {case.name: place for place, case in enumerate(cases)}
    results.sort(key=lambda result: order[result.case])
    return replace(check, cases=tuple(results), interrupted=interrupted, seconds=time.perf_counter() - start)


def _selected(cases: list[Case], args: argparse.Namespace, root: Path) -> tuple[list[Case], dict[str, str]]:
    cases = select_cases(cases, args.cases, root)
    if args.changed_since is None:
        return cases, {}
    from model_config.cases.changed import changed_cases

    return changed_cases(cases, args.changed_since, root)


def _of_whole(problems: Sequence[Problem]) -> tuple[str, ...]:
    return tuple(str(problem.finding) for problem in problems if not problem.case)


def _of_shared(root: Path, remembered: Remembered) -> tuple[str, ...]:
    from model_config.structure import check_shared
    from model_config.structure.source import listed

    # A folder `utils` in a project that uses an installed zoo does not belong to the zoo.
    folders = [name for name in SHARED if (root / name).is_dir() and (name != "utils" or has_packages(root))]
    names = [name for folder in folders for name in listed(folder, root)]
    return tuple(str(finding) for finding in check_shared(names, root, remembered))


def _run(
    cases: Sequence[Case],
    problems: Sequence[Problem],
    check: CheckResult,
    args: argparse.Namespace,
    root: Path,
    remembered: Remembered,
) -> tuple[list[CaseResult], bool]:
    """Return the results of the cases, and whether Ctrl-C interrupted the run."""
    from model_config.cases.imports import Imports
    from model_config.run.key import Shared
    from model_config.run.one_case import Settings, check_case
    from model_config.run.schedule import run_all
    from model_config.run.snapshot import Snapshots

    found: dict[str, list[Finding]] = {}
    for problem in problems:
        found.setdefault(problem.case, []).append(problem.finding)
    jobs = min(args.jobs or usable_cores(), len(cases))
    limits = Limits(args.timeout, int(args.memory * _GIB))
    results: list[CaseResult] = []
    steps = 0 if args.structure else sum(len(case.steps) for case in cases)
    with closing(Snapshots(root, check.logs.parent)) as snapshots, _progress(steps) as step_done:
        settings = Settings(
            check.logs.parent,
            root,
            limits,
            cached=not args.no_cache,
            update=args.update,
            commit=check.commit,
            date=check.date,
            problems=found,
            on_output=_show_line if args.verbose else None,
            on_step=step_done,
            shared=Shared(root, Imports(root, remembered=remembered)),
            snapshots=snapshots,
            handed=tuple(sorted(set(args.env))),
            host_speed=not args.no_host_speed,
            strict=args.strict,
            only_structure=args.structure,
            draws=args.html is not None,
        )
        try:
            for result in run_all(cases, partial(check_case, settings=settings), parallel=jobs, root=root):
                results.append(result)
        except KeyboardInterrupt:
            return results, True
        finally:
            settle(check.logs, 2 * limits.output)  # a step may have written into the logs of another case
    return results, False


_PRINTING = threading.Lock()
_HEARD = 1000
"""Maximum characters shown of a line that a step prints."""


def _show_line(case: str, step: str, line: str) -> None:
    with _PRINTING:
        print(f"[{case} {step}] {shortened(line, _HEARD)}", file=sys.stderr, flush=True)


@contextmanager
def _progress(steps: int) -> Iterator[Callable[[str, str], None]]:
    """Show a progress bar on a terminal, and nothing otherwise."""
    from tqdm import tqdm

    with tqdm(total=steps, unit="step", disable=None, leave=False) as bar:

        def done(case: str, step: str) -> None:
            bar.set_postfix_str(f"{case} {step}", refresh=False)
            bar.update()

        yield done


def _work_dir(folder: Path | None) -> Path:
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="teco-check-"))
    try:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--work_dir {folder} cannot be used: {error.strerror}; choose another folder") from error
    return folder.resolve()


def commit_of(root: Path) -> str:
    """Return the short hash of the checkout, with ``-dirty`` where files differ; empty outside a repository."""
    found = []
    for words in (("rev-parse", "--short", "HEAD"), ("status", "--porcelain")):
        try:
            ran = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)  # noqa: S607
        except OSError:  # git is not installed
            return ""
        if ran.returncode != 0:
            return ""
        found.append(ran.stdout.strip())
    return found[0] + ("-dirty" if found[1] else "")


def _environment() -> dict[str, Any]:
    from model_config.judge.scorecard import PACKAGES, version
    from utils.pipeline.report.report import environment

    versions = {name: version(name) for name in PACKAGES}
    return {**environment()["environment"], **versions, "system": f"{platform.system()} {platform.release()}"}


def _report(check: CheckResult, args: argparse.Namespace) -> None:
    """Print the table and write the requested files, JSON first: a later failure must not lose the results."""
    from model_config.reports.terminal import print_table
    from model_config.reports.text import write_text

    try:
        print_table(check)
    finally:
        if args.json is not None:
            from utils.pipeline.report.report import write_json

            with suppress(OSError):  # write_json reports any problem with the folder
                args.json.absolute().parent.mkdir(parents=True, exist_ok=True)
            write_json(check.to_dict(), args.json)
    if args.junit is not None:
        from model_config.reports.junit import junit_xml

        write_text(junit_xml(check), args.junit)
    if args.markdown is not None:
        from model_config.reports.markdown import markdown

        write_text(markdown(check), args.markdown)
    if args.html is not None:
        from model_config.reports.page import html_page

        write_text(html_page(check), args.html)


def command(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Run :func:`main` as a separate process; SIGTERM acts like Ctrl-C, so an aborted CI job leaves no processes."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    leave_contributed(root)
    with adopting(), restoring_stdout():
        return main(argv, root)


if __name__ == "__main__":
    from utils.pipeline.cli import run

    run(command)
