"""The valid scripts' way from flags to exit code, in one process or many."""

from __future__ import annotations

import inspect
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.base import usable_cores
from utils.datasets.sharding import rank_and_size
from utils.pipeline.cli import Evaluation, Options, finish, options, warn, write_result
from utils.pipeline.interrupt import ending_soon

if TYPE_CHECKING:
    from utils.pipeline.report import Report

DROPPED = 3
"""Exit code of a run whose faster mode costs more of the metric than ``--max_drop`` allows."""


def main(description: str | None, evaluation: Evaluation, **defaults: Any) -> int:
    """Run a valid script: parse the flags, open the engine, evaluate in as many processes as there are; report.

    Args:
        description: the script's docstring.
        evaluation: the script's ``run(opt, engine)``, a function of its module.
        defaults: of the flags, as :func:`options` takes them.

    Returns:
        The exit code.
    """
    opt = options(description, **defaults)
    alone = threading.current_thread() is threading.main_thread() and opt.launcher == "none"
    with ending_soon() if alone else nullcontext():
        return _run(evaluation, opt)


def _run(evaluation: Evaluation, opt: Options) -> int:
    report = _evaluated(evaluation, opt)
    if report is None:  # a process beside rank 0, which says it all
        return 0 if opt.exact else _beside(evaluation, opt)
    if opt.json is not None and report.processes > 1:
        from utils.pipeline.launch.part_records import merge_records
        from utils.pipeline.records import records_path

        merge_records(records_path(opt.json), report.processes)
    code = finish(report, opt)
    return code if opt.exact else _compare(evaluation, opt, report) or code


def _beside(evaluation: Evaluation, opt: Options) -> int:
    """Do this process's part of the exact run that rank 0 compares with."""
    _evaluated(evaluation, _exact(opt))
    return 0


def _evaluated(evaluation: Evaluation, opt: Options) -> Report | None:
    if opt.launcher == "ray":
        from utils.datasets import load_dataset
        from utils.pipeline.launch.ray_launcher import launch

        script = Path(inspect.getfile(evaluation)).resolve()
        samples = len(load_dataset(opt.data_path))
        return launch(part, (script, evaluation.__name__, opt), opt.num_workers, print, samples=samples)
    if rank_and_size()[1] > 1:
        from utils.pipeline.launch.mpi import gather

        return gather(lambda: _opened(evaluation, opt), print, resume=opt.resume)
    return _opened(evaluation, opt)


def _opened(evaluation: Evaluation, opt: Options) -> Report:
    with opt.open(streams=usable_cores()) as engine:
        return evaluation(opt, engine)


def part(script: Path, name: str, opt: Options) -> Report:
    """Evaluate one part in a Ray worker."""
    from utils.pipeline.launch.ray_launcher import load_script

    return _opened(getattr(load_script(script), name), opt)


def _exact(opt: Options) -> Options:
    """Return the flags of the same run, as exact as its target can be, which leaves no files."""
    dtype = "float32" if opt.dtype in ("int8", "bfloat16") else opt.dtype
    return Options(**{**vars(opt), "decode": "exact", "dtype": dtype, "json": None, "resume": None})


def _compare(evaluation: Evaluation, opt: Options, report: Report) -> int:
    """Run again as exactly as the target can, say what speed was bought with which accuracy, and judge it."""
    exact = _exact(opt)
    reference = _evaluated(evaluation, exact)
    if reference is None:
        return 0
    modes = {f"--dtype {opt.dtype}": exact.dtype != opt.dtype, f"--decode {opt.decode}": opt.decode != exact.decode}
    what = " and ".join(mode for mode, used in modes.items() if used)
    found = _comparison(report, reference, what, opt.max_drop)
    write_result(report, opt, comparison=found)
    speed = f"{found['speed_ratio']:.2f} times the samples/s" if found["speed_ratio"] else "speeds not comparable"
    print(
        f"{what} against exact: {report.metric_name} {report.metric:.6f} against {reference.metric:.6f} "
        f"({found['relative_change']:+.4%} relative), {speed}"
    )
    if found["accepted"]:
        return 0
    warn(f"error: the metric drops by more than {opt.max_drop:.2%}; use less of {what}, or allow it by --max_drop")
    return DROPPED


def _comparison(report: Report, exact: Report, mode: str, max_drop: float) -> dict[str, Any]:
    """Return what the JSON holds of it; the ratio is ``None`` where every step came from a journal, so took no time."""
    change = (report.metric - exact.metric) / exact.metric if exact.metric else 0.0
    return {
        "mode": mode,
        "metric": report.metric,
        "exact_metric": exact.metric,
        "relative_change": change,
        "speed_ratio": report.avg_sps / exact.avg_sps if report.avg_sps and exact.avg_sps else None,
        "max_drop": max_drop,
        "accepted": change >= -max_drop,
    }
