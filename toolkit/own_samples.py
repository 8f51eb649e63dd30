"""The samples of a case of the zoo: its task with its flags, and its data set, as the case's valid script uses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import ConfigError
from model_config.cases.config import ROOT, Case
from tecoinfer_modelzoo.text import typed_reason
from toolkit.fix.task_request import TaskRequest
from toolkit.zoo import Model, find_model, load_zoo
from utils.fetch import is_fetched_path
from utils.pipeline.cli import call_of
from utils.tasks.base import Flag, task_class

OF_INPUTS = ("dim", "input_shapes", "input_name")
"""Common flags of the scripts that decide the inputs of the model, and are kept; the others configure a run."""

_PATHS = ("FILE", "PATH", "DIR")
"""Metavars of flags that name files."""


@dataclass(frozen=True)
class OwnSamples:
    """Samples of a case.

    Attributes:
        case: its name. request: its task with the values of its flags. data: data paths, each ``PATH`` or
            ``NAME=PATH``; empty for the default of the script or of the task.
    """

    case: str
    request: TaskRequest
    data: tuple[str, ...]


def own_samples(model: Model, case: Case, flags: Sequence[str] = ()) -> OwnSamples:
    """Return the samples of a case.

    Args:
        model: the model. case: one of its cases. flags: words of the task's flags, which override those of the case.

    Raises:
        ConfigError: the valid script cannot be imported, or does not call ``cli.valid``.
    """
    script = model.folder / model.scripts.get("valid", "")
    if "valid" not in model.scripts:
        raise ConfigError(f"{model.path} has no valid script; pass --data, and --task for samples of a task")
    try:
        call = call_of(script)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{script} cannot be imported: {typed_reason(error)}; correct it, or pass --data") from error
    task = task_class(call.task)
    known = {flag.key: flag for flag in task.flags}
    params = next((step.params for step in case.steps if step.name == "valid"), {})
    given = {key: _from_folder(known.get(key), value, model.folder) for key, value in params.items()}
    data = _data_words(params.get("data_path"), model.folder)
    wanted = {*known, *OF_INPUTS, *(() if data else ("data_path",))}
    defaults = {key: value for key, value in call.defaults.items() if key in wanted}
    words = [word for key, value in given.items() if key in {*known, *OF_INPUTS} for word in _words(key, value)]
    names = list(task.models)
    request = TaskRequest(task, (*words, *flags), names[0] if len(names) == 1 else "", {}, defaults)
    return OwnSamples(case.name, request, data)


def own_case(name: str, root: Path = ROOT) -> tuple[Model, Case] | None:
    """Return the model and the case that a word of the command line names: the first case of a model.

    ``None`` for a path of a file and for a model without cases. Raise ConfigError if there is no such model.
    """
    path = Path(name)
    if is_fetched_path(name) or path.suffix == ".onnx" or path.is_file():
        return None
    model, case = find_model(name, load_zoo(root).models)
    case = case or next(iter(model.cases), None)
    return None if case is None else (model, case)


def _data_words(value: Any, folder: Path) -> tuple[str, ...]:
    """Return the data paths of a case, those relative to the model's folder joined to it."""
    if value is None:
        return ()
    if isinstance(value, Mapping):
        return tuple(f"{name}={_joined(path, folder)}" for name, path in value.items())
    return (_joined(str(value), folder),)


def _joined(path: str, folder: Path) -> str:
    return path if is_fetched_path(path) else str(folder / path)


def _from_folder(flag: Flag | None, value: Any, folder: Path) -> Any:
    """Return a parameter of a case; a file that it names relative to the model's folder is joined to the folder."""
    names_files = flag is not None and (flag.type is Path or flag.metavar in _PATHS)
    if names_files and isinstance(value, str) and (folder / value).exists():
        return str(folder / value)
    return value


def _words(key: str, value: Any) -> list[str]:
    """Return a parameter as words of a command line."""
    if isinstance(value, Mapping):
        return [f"--{key}", *(f"{name}={one}" for name, one in value.items())]
    return [f"--{key}", *map(str, value if isinstance(value, list) else [value])]
