"""Pickle a task for another process: objects that a script defines are pickled by name, never as code; a lambda by the
name of the task that has it.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import pickle
import sys
from dataclasses import fields
from functools import reduce
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from engine import ConfigError
from tecoinfer_modelzoo.text import one_line
from utils.tasks.legacy import LegacyTask

SCRIPT = "teco_script"
"""Module name of the script in the workers; in the driver an alias of ``__main__``, so that objects of the script (a
metric) can be pickled back."""


class _Pickler(pickle.Pickler):
    """Pickles objects defined in ``__main__`` by the script's path."""

    def __init__(self, file: io.BytesIO, script: str) -> None:
        super().__init__(file)
        self._script = script

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, (FunctionType, type)):
            return NotImplemented
        of_script = obj.__module__ == "__main__" and bool(self._script)
        place = _in_a_task(obj) if "<" in obj.__qualname__ else None
        if place is not None and (of_script or obj.__module__ != "__main__"):
            return _from_task, (self._script if of_script else "", obj.__module__, *place)
        if not of_script:
            return NotImplemented
        if "<" in obj.__qualname__:  # <lambda>, <locals>
            raise pickle.PicklingError(f"{obj.__qualname__} has no importable name")
        return _from_script, (self._script, obj.__qualname__)


def packed(value: Any) -> bytes:
    """Return a task and its options as bytes for :func:`unpacked`, for processes of the same run only.

    Raises ConfigError if a function of the task is a lambda, or defined inside another one.
    """
    script = getattr(sys.modules["__main__"], "__file__", None)
    file = io.BytesIO()
    try:
        _Pickler(file, "" if script is None else str(Path(script).resolve())).dump(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        fix = "define its functions at the top level of the script or of a module"
        raise ConfigError(f"the task cannot be sent to a worker: {one_line(error)}; {fix}") from error
    return file.getvalue()


def unpacked(content: bytes) -> Any:
    """Return the objects packed by :func:`packed`, in a worker of the same run."""
    return ForkingPickler.loads(content)


def _in_a_task(function: Any) -> tuple[str, str] | None:
    """Return the name of a task in the function's module, and of its field with the function; ``None``: none."""
    module = sys.modules.get(function.__module__)
    tasks = {name: value for name, value in vars(module).items() if isinstance(value, LegacyTask)} if module else {}
    for name, task in tasks.items():
        for field in fields(task):
            if getattr(task, field.name) is function:
                return name, field.name
    return None


def _from_task(script: str, module: str, name: str, field: str) -> Any:
    found = load_script(Path(script)) if script else importlib.import_module(module)
    return getattr(getattr(found, name), field)


def _from_script(script: str, name: str) -> Any:
    return reduce(getattr, name.split("."), load_script(Path(script)))


def load_script(path: Path) -> ModuleType:
    """Import a script by its path, once, without running it as the main program.

    Raises ConfigError if the path is not a Python file, or the script exits when it is imported.
    """
    loaded = sys.modules.get(SCRIPT)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded
    spec = importlib.util.spec_from_file_location(SCRIPT, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigError(f"script {path} is not a Python file on this machine; put the zoo at the same path on all")
    module = importlib.util.module_from_spec(spec)
    sys.modules[SCRIPT] = module
    try:
        spec.loader.exec_module(module)
    except SystemExit as error:
        raise ConfigError(
            f'script {path} runs when it is imported; put the run under `if __name__ == "__main__":`'
        ) from error
    return module
