"""Python functions of the zoo: ``from tecoinfer_modelzoo import evaluate, predict, open_engine, models``.

They do not print, exit or read the command line, and can be called repeatedly in one process or a notebook.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import ConfigError, Timeline, open_engine
from model_config.cases.config import ROOT
from tecoinfer_modelzoo.text import reason_of
from toolkit.zoo import Model, find_model, load_zoo
from utils.datasets.base import Dataset, ListDataset
from utils.datasets.sharding import rank_and_size
from utils.pipeline.cli import Call, call_of
from utils.pipeline.flags.options import COMMON, Options, options
from utils.pipeline.report.console import about
from utils.pipeline.run.loops import predict_pipeline
from utils.pipeline.run.pipeline import Failure, Pipeline
from utils.pipeline.session import load_data, open_engines
from utils.pipeline.valid import evaluate_task
from utils.tasks.base import AnyTask, Rendering, Task, task_class
from utils.tasks.find import add_contrib
from utils.tasks.legacy import is_task

if TYPE_CHECKING:
    from utils.pipeline.report.report import Report

OF_SCRIPTS = (
    *("json", "save", "save_frames", "show", "save_predictions", "verbose", "launcher", "num_workers", "max_drop"),
    "skip_postprocess",
)
"""Flags of the scripts' outputs and processes; the functions return their results."""

__all__ = ["Prediction", "Predictions", "evaluate", "models", "open_engine", "predict"]


def models(root: Path = ROOT) -> list[Model]:
    """Return the models of the zoo: name, domain, folder, cases; those of other zoos after the clone's or project's.

    Raises:
        ConfigError: no models were found.
    """
    return list(load_zoo(root).models)


def evaluate(
    model: str | AnyTask,
    *,
    target: str = "onnx",
    limit: int | None = None,
    ckpt: Any = None,
    data: Any = None,
    **flags: Any,
) -> Report:
    """Evaluate a model on a data set: metric, secondary metrics, timing and warnings.

    Args:
        model: the name of a model of the zoo (``"digits"``), whose data set and settings are the defaults; or a task.
        target: the engine: ``onnx``, ``sdaa``, ``cpu``, ``cuda``, ``null`` or a registered one.
        limit: number of samples to take from the beginning; ``None``: all.
        ckpt: the ONNX file, or files by name; ``None``: the model's default.
        data: the data path, or paths by name; ``None``: the model's default.
        flags: values of the flags of ``example_valid.py``, by name without dashes.

    Returns:
        The report, with ``metric``, ``secondary``, ``warnings``, ``to_json()``.

    Raises:
        ConfigError: a name or a value is invalid. TecoInferError: the run failed.
    """
    if rank_and_size()[1] > 1:
        raise ConfigError("evaluate() runs in one process; start the model's example_valid.py with mpirun instead")
    task, opt = _options(model, "valid", target, ckpt, data, flags)
    report = evaluate_task(task, opt, limit=limit)
    lines = list(task(opt).format_warnings(report.warning_counts, report.samples))
    if opt.faster:
        lines.append(f"{' and '.join(opt.faster)}: not compared with an exact run; evaluate again without it")
    return replace(report, data_warnings=lines, about=about(opt) | {"data": opt.data_text})


@dataclass(frozen=True)
class Prediction:
    """The model's answer to one sample.

    Attributes:
        name: of the sample. answer: as plain data. text: as a short text.
        nan_input, nan_output: the sample's input or output holds NaN; with NaN in the output ``answer`` is ``None``.
    """

    name: str
    answer: Any
    text: str
    nan_input: bool = False
    nan_output: bool = False
    _rendering: Rendering | None = field(default=None, repr=False)

    def save(self, folder: str | Path) -> Path:
        """Write the sample with its answer as a file for people, and return the file.

        Raises:
            ConfigError: the task does not support this for the sample.
        """
        write = None if self._rendering is None else self._rendering.save
        if write is None:
            raise ConfigError(f"{self.name}: nothing can be rendered for this sample; use its answer")
        Path(folder).mkdir(parents=True, exist_ok=True)
        return write(Path(folder))


class Predictions(list[Prediction]):
    """The answers in the order of the samples; ``failures``: the samples that could not be run, with reasons."""

    failures: tuple[Failure, ...] = ()


def predict(
    model: str | AnyTask, samples: Any = None, *, target: str = "onnx", ckpt: Any = None, **flags: Any
) -> Predictions:
    """Answer samples.

    Args:
        model, target, ckpt: as for :func:`evaluate`.
        samples: a file or folder; a list of files, arrays or other samples of the task's ``prepare``; ``None``: samples
            of a flag (``text=[...]``), or the model's default.
        flags: values of the flags of ``example_multi_batch.py``, by name without dashes.

    Raises:
        ConfigError: a name or a value is invalid. TecoInferError: the run failed.
    """
    listed = isinstance(samples, Sequence) and not isinstance(samples, (str, bytes))
    cls, opt = _options(model, "multi", target, ckpt, None if listed else samples, flags)
    task, found, failures = cls(opt), Predictions(), list[Failure]()
    with open_engines(task) as engines:
        dataset: Dataset = _listed(samples) if listed else load_data(task)
        pipeline = Pipeline(task, engines, dataset)
        answers = predict_pipeline(
            pipeline, dataset.batches(opt.batch_size), failures=failures, workers=opt.workers, timeline=Timeline()
        )
        for one in answers:
            rendering = None if one.nan_output else task.show(one.sample, one.answer)
            answer, text = (None, "") if rendering is None else (rendering.answer, rendering.text)
            found.append(Prediction(one.name, answer, text, one.nan_input, one.nan_output, rendering))
    found.failures = tuple(failures)
    return found


def _listed(samples: Sequence[Any]) -> Dataset:
    given = [Path(one) if isinstance(one, str) and Path(one).exists() else one for one in samples]
    names = [str(one) if isinstance(one, (str, Path)) else str(place) for place, one in enumerate(given)]
    return ListDataset(given, names=names)


def _options(
    model: str | AnyTask, script: str, target: str, ckpt: Any, data: Any, flags: Mapping[str, Any]
) -> tuple[type[Task], Options]:
    """Return the task and the options of a run."""
    call = _call(model, script) if isinstance(model, str) or not is_task(model) else Call(model, {})
    task = task_class(call.task)
    given = {"target": target, "ckpt": ckpt, "data_path": data, **flags}
    values = {key: value for key, value in given.items() if value is not None}
    known = {flag.key: flag for flag in (*COMMON, *task.flags)}
    for key, value in values.items():
        if key in OF_SCRIPTS:
            raise ConfigError(f"{key}={value!r} is for the scripts; leave it out, and use what the call returns")
        flag = known.get(key)
        if flag is None:
            continue  # a path, or an unknown name, which options() reports
        if flag.choices is not None and value not in flag.choices:
            raise ConfigError(f"{key}={value!r} must be one of: {', '.join(map(str, flag.choices))}")
        if flag.type is not None and isinstance(value, str):
            try:
                values[key] = flag.type(value)
            except (argparse.ArgumentTypeError, ValueError) as error:
                raise ConfigError(f"{key}={value!r} cannot be used: {reason_of(error)}") from error
    return task, options(None, task, script, [], **{**call.defaults, **values})


def _call(name: Any, script: str) -> Call:
    """Return the call of a model's script: its task and its defaults."""
    if not isinstance(name, str):
        raise ConfigError(f"{name!r} is neither the name of a model nor a task; models() lists those of the zoo")
    add_contrib(ROOT)
    model, _ = find_model(name, load_zoo().models)
    if script not in model.scripts:
        raise ConfigError(f"{model.path} has no script {script!r}; it has: {', '.join(model.scripts)}")
    return call_of(model.folder / model.scripts[script])
