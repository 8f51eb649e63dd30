"""Runs of the adapted model: its task, its flags, and evaluations on a target."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import ConfigError, TecoInferError
from tecoinfer_modelzoo.text import one_line
from toolkit.adapt.guesses import GENERIC
from toolkit.adapt.work import Work
from toolkit.api import evaluate
from toolkit.fix.task_request import TaskRequest
from utils.pipeline.flags.options import Options, options
from utils.pipeline.session import load_data
from utils.tasks.base import Task
from utils.tasks.find import find_task

if TYPE_CHECKING:
    from utils.datasets.base import Dataset
    from utils.pipeline.report.report import Report

FORMS_FOLDER, DATA_FOLDER = "forms", "data"
"""Folders of the working folder: the exported files, and the copy of the data."""


def task_of(work: Work) -> type[Task]:
    """Return the task of the case."""
    return find_task(str(work.facts("task").get("task", GENERIC)))


def task_place(task: type[Task]) -> tuple[str, str]:
    """Return module and name of a task's class, for an import. Raises ConfigError if it has none."""
    module, name = task.__module__, task.__qualname__
    if getattr(importlib.import_module(module), name, None) is not task:
        raise ConfigError(f"task {task.name!r} is not a class of a module, so that scripts cannot import it")
    return module, name


def model_file(work: Work) -> Path:
    """Return the file that the case runs: the dynamic form, or the static one."""
    return work.folder / FORMS_FOLDER / str(work.facts("export")["ckpt"])


def data_of(work: Work) -> Path | str | None:
    """Return the data path of the evaluations; ``None`` for random samples."""
    place = str(work.facts("data").get("place", ""))
    if not place:
        return None
    return place if place.startswith("fetch:") else Path(place) if Path(place).is_absolute() else work.folder / place


def flags_of(work: Work) -> dict[str, Any]:
    """Return the values of flags that the scripts get as defaults, by key."""
    return {**work.facts("data").get("flags", {}), **work.facts("onnx").get("flags", {})}


def evaluated(
    work: Work,
    target: str,
    dtype: str | None = None,
    *,
    pass_path: Path | None = None,
    limit: int | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Report:
    """Evaluate the model on the data, or on random samples. Raises TecoInferError if the run fails."""
    values = flags_of(work) if flags is None else dict(flags)
    if dtype is not None:
        values["dtype"] = dtype
    values["pass_path"] = "none" if pass_path is None else str(pass_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the lines of the report hold what matters
        return evaluate(
            task_of(work),
            target=target,
            limit=limit,
            ckpt=model_file(work),
            data=data_of(work),
            batch_size=work.request.batch,
            **values,
        )


def loaded(task: type[Task], ckpt: Path, data: Any, flags: Mapping[str, Any], script: str = "valid") -> Dataset:
    """Return the data set of a task. Raises ConfigError or DataError if it cannot be loaded."""
    own = {flag.key for flag in task.flags if script in flag.scripts}
    common = {"dim", "input_shapes", "input_name", "batch_size"}
    values = {key: value for key, value in flags.items() if key in own or key in common}
    values |= {} if data is None else {"data_path": data}
    opt: Options = options(None, task, script, [], ckpt=ckpt, **values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_data(task(opt))


def why_unfit(error: TecoInferError) -> str:
    """Return the first line of an error."""
    return one_line(str(error).splitlines()[0] if str(error) else error)


def task_request(work: Work) -> tuple[TaskRequest, dict[str, Sequence[int]]]:
    """Return the task with its flags, and the sizes of dynamic dimensions, as ``teco fix`` takes them."""
    flags = flags_of(work)
    words: list[str] = []
    for key, value in flags.items():
        if key == "dim":
            continue
        values = value if isinstance(value, (list, tuple)) else [value]
        words += [f"--{key}", *(str(one).lower() if isinstance(one, bool) else str(one) for one in values)]
    return TaskRequest(task_of(work), words), dims_of(flags)


def dims_of(flags: Mapping[str, Any]) -> dict[str, Sequence[int]]:
    """Return the sizes of ``--dim`` by symbol."""
    from utils.shapes import parse_dims

    return dict(parse_dims(flags.get("dim", [])))


def data_words(work: Work) -> list[str]:
    """Return the data path as ``teco fix`` takes it; empty for random samples."""
    found = data_of(work)
    return [] if found is None else [str(found)]
