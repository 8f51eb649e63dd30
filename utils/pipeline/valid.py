"""The valid scripts from flags to exit code, in one process or several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine import ConfigError, Engine, usable_cores
from tecoinfer_modelzoo.flags import STDOUT, reserve_stdout
from utils.advice import SHORT
from utils.datasets.sharding import rank_and_size, shard, shares_only
from utils.pipeline.flags.options import Options, limits, options
from utils.pipeline.launch.supervised import supervise_foreign
from utils.pipeline.report.console import finish, int8_figures, list_nan, print_engines, warn, write_result
from utils.pipeline.resume.run_files import noting, open_run_files
from utils.pipeline.run.interrupt import ending_soon
from utils.pipeline.run.loops import evaluate_pipeline
from utils.pipeline.run.pipeline import Pipeline, measure
from utils.pipeline.session import load_data, open_engines
from utils.tasks.base import AnyTask, Task, form_of, task_class

if TYPE_CHECKING:
    from utils.metrics.change import Change
    from utils.pipeline.report.report import Report
    from utils.pipeline.resume.records import Kept
    from utils.pipeline.resume.run_inputs import RunInputs

Opened = Callable[[Task, Mapping[str, Engine]], None]

DROPPED = 3
"""Exit code of a run whose faster mode worsens the metric by more than ``--max_drop``."""


def main(description: str | None, given: AnyTask, **defaults: Any) -> int:
    """Run a valid script: parse the flags, open the engines, evaluate in all processes of the run, report; return the
    exit code.

    Args:
        description: the script's docstring. given: the task, a class or in the old form.
        defaults: default values of flags, by name; see :func:`utils.pipeline.flags.options.options`.
    """
    task = task_class(given)
    opt = options(description, task, "valid", **defaults)
    reserve_stdout(opt.json)
    if opt.launcher == "none" and rank_and_size()[1] == 1:  # mpirun and Ray watch their processes themselves
        supervise_foreign(opt.target, opt.models.values())
    with ending_soon() if opt.launcher == "none" else nullcontext():
        if opt.show:
            from utils.pipeline.answers import answered

            return answered(task(opt))
        return _run(task, opt)


def _run(task: type[Task], opt: Options) -> int:
    report = _evaluated(task, opt)
    if report is None:  # a process other than rank 0, which reports
        if opt.faster:
            _evaluated(task, _exactly(opt))  # this process's part of the exact run that rank 0 compares with
        return 0
    try:
        lines = list(task(opt).format_warnings(report.warning_counts, report.samples))
        report = replace(report, data_warnings=lines)
        report = _with_records(report, opt)
        code = finish(report, opt)
    finally:
        if report.records is not None:
            report.records.discard()  # no effect on records that are already in place
    if report.unwritten:
        raise ConfigError(*report.unwritten)
    return (_compare(task, opt, report) or code) if opt.faster else code


def _with_records(report: Report, opt: Options) -> Report:
    """Return a report with the records of all processes, merged."""
    if opt.json is None or not report.parts or report.state is None:
        return report
    from utils.pipeline.resume.records import records_path
    from utils.pipeline.resume.records.merging import merged

    return replace(report, records=merged(records_path(opt.json, report.state), report.parts))


def _evaluated(task: type[Task], opt: Options) -> Report | None:
    if opt.launcher == "ray":
        _check_saving(opt)
        from utils.pipeline.launch.ray_launcher import launch
        from utils.pipeline.launch.serialization import packed

        with shares_only():
            samples = load_data(task(opt)).most_samples()
        return launch(part, (packed((form_of(task), opt)),), opt.num_workers, print, samples=samples)
    if rank_and_size()[1] > 1:
        from utils.pipeline.launch.mpi import gather

        return gather(lambda: evaluate_task(task, opt, opened=_announce), print, resume=opt.resume)
    return evaluate_task(task, opt, opened=_announce)


def evaluate_task(task: type[Task], opt: Options, *, limit: int | None = None, opened: Opened | None = None) -> Report:
    """Evaluate this process's part of the data set.

    Args:
        limit: number of samples to take from the beginning; ``None``: all.
        opened: called with the task and its engines when they are open.
    """
    _check_saving(opt)
    kept: list[Kept] = []
    try:
        return _evaluate(task(opt), kept, limit, opened)
    except BaseException:
        for records in kept:
            records.discard()
        raise


def _evaluate(task: Task, kept: list[Kept], limit: int | None, opened: Opened | None) -> Report:
    opt = task.options
    with _inputs(task) as inputs, open_engines(task, streams=usable_cores()) as engines:
        if opened is not None:
            opened(task, engines)
        dataset = load_data(task)
        dataset = shard(dataset if limit is None else dataset.select(range(min(limit, len(dataset)))), *rank_and_size())
        pipeline = Pipeline(task, engines, dataset)
        metric = measure(task.metric(dataset), task.source("metric"), task.name)
        batches = dataset.batches(opt.batch_size)
        unwritten = list[str]()
        with open_run_files(task, engines, dataset, metric, unwritten, kept, inputs) as keep:
            report = evaluate_pipeline(pipeline, batches, metric, **keep, **limits(opt))
        if pipeline.writer is not None:
            with noting(unwritten):
                pipeline.writer.close()
        records = kept[0] if kept else None
        return replace(report, int8=int8_figures(engines), unwritten=tuple(unwritten), records=records)


def _inputs(task: Task) -> AbstractContextManager[RunInputs | None]:
    """Record the files that a run with a journal reads, before any of them is opened."""
    if task.options.resume is None:
        return nullcontext()
    from utils.pipeline.resume.run_inputs import RunInputs

    return RunInputs(task)


def _check_saving(opt: Options) -> None:
    """Raise ConfigError for ``--save_predictions`` in a run where this process has only a part of the answers."""
    shared = opt.resume is not None or opt.launcher != "none" or rank_and_size()[1] > 1
    if opt.save_predictions is not None and shared:
        raise ConfigError(
            f"--save_predictions {opt.save_predictions} needs all answers in one run of one process; leave out "
            "--resume, mpirun and --launcher ray"
        )


def _announce(task: Task, engines: Mapping[str, Engine]) -> None:
    """Print the engines; warn if samples depend on their batch, as several processes form other batches."""
    print_engines(task, engines)
    if rank_and_size()[1] == 1:
        return
    for name, engine in engines.items():
        engine.batching.learn()
        if engine.independent is False:
            why = f"samples of model {name} depend on one another ({engine.batching.why_dependent})"
            warn(f"warning: {why}, and each process forms other batches: the metric may differ")


def part(content: bytes) -> Report:
    """Evaluate one part in a Ray worker."""
    from utils.pipeline.launch.serialization import unpacked

    task, opt = unpacked(content)
    return evaluate_task(task_class(task), opt, opened=_announce)


def _compare(task: type[Task], opt: Options, report: Report) -> int:
    """Run again at the target's full exactness, print the differences of speed and metric, and judge the latter."""
    from utils.metrics.change import Change

    exact = _exactly(opt)
    with _without_records(exact):
        reference = _evaluated(task, exact)
        if reference is None:
            return 0
        risk = _at_risk(report, _with_records(reference, exact))
    what = " and ".join(opt.faster)
    change = Change.of(report.metric, reference.metric, report.higher_is_better)
    ratio = report.avg_sps / reference.avg_sps if report.avg_sps and reference.avg_sps else None
    found = _comparison(report, reference, what, change, ratio, opt.max_drop) | {"at_risk": risk}
    if reference.nan_outputs:
        warn("the exact run cannot be compared with:")
        list_nan((), reference.nan_outputs, reference.samples, reference.engine)
    write_result(report, opt, comparison=found)
    print(
        f"{what} against exact: {report.metric_name} {report.metric:.6f} against {reference.metric:.6f} "
        f"({change.text}), {_speed(ratio, found['slower'])}{_risk_text(risk, report.samples)}"
    )
    if found["slower"]:
        print(f"{what} made this run slower: leave it out here")
    if found["accepted"]:
        return 0 if reference.sound else 1
    worse = "drops" if report.higher_is_better else "rises"
    by = f"the metric {worse} by more than {opt.max_drop:.2%}"
    if change.word == "incomparable":
        by = f"the metric is {report.metric:.6g} with {what} and {reference.metric:.6g} without, which cannot be judged"
    warn(f"error: {by}; use less of {what}, or allow it by --max_drop")
    return DROPPED


def _exactly(opt: Options) -> Options:
    """Return the options of the exact run, whose records are written next to the result, in every process."""
    exact = opt.exactly()
    if opt.json is None or opt.json == STDOUT:
        return exact
    return Options(**{**vars(exact), "json": opt.json.with_name(f".{opt.json.name}.exact")})


@contextmanager
def _without_records(exact: Options) -> Iterator[None]:
    """Remove the records of the exact run at the end, also those of single processes."""
    try:
        yield
    finally:
        name = "" if exact.json is None else exact.json.name
        for file in [] if exact.json is None else list(exact.json.parent.iterdir()):
            if file.name.startswith((f"{name}.", f".{name}.")):
                with suppress(OSError):
                    file.unlink()


def _at_risk(report: Report, reference: Report) -> dict[str, Any] | None:
    """Return the samples whose margins are within the deviation of both runs; ``None`` without records of both."""
    if report.records is None or reference.records is None:
        return None
    from utils.pipeline.report.risk import at_risk

    reference.records.place()
    return at_risk(report.records.path, reference.records.path, report.state)


def _risk_text(risk: Mapping[str, Any] | None, samples: int) -> str:
    if risk is None or not risk["deviation"]:
        return ""
    return f"; {len(risk['samples'])} of {samples} samples at risk (margin within {risk['deviation']:.2g})"


def _speed(ratio: float | None, slower: bool | None) -> str:
    if ratio is None:
        return "speeds not comparable"
    short = f" (runs under {SHORT:g} s, which say little of speed)" if slower is None else ""
    return f"{ratio:.2f} times the samples/s{short}"


def _comparison(
    report: Report, exact: Report, mode: str, change: Change, ratio: float | None, max_drop: float
) -> dict[str, Any]:
    """Return the comparison for the JSON; ``slower`` is ``None`` if a run was too short, or all steps were stored."""
    return {
        "mode": mode,
        "metric": report.metric,
        "exact_metric": exact.metric,
        "relative_change": change.relative,
        "higher_is_better": report.higher_is_better,
        "speed_ratio": ratio,
        "slower": None if ratio is None or min(report.e2e_time, exact.e2e_time) < SHORT else ratio < 1,
        "max_drop": max_drop,
        "exact_nan_outputs": exact.nan_outputs,
        "accepted": change.drop <= max_drop,
    }
