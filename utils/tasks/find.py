"""Find tasks on the package's path, and by the entry points ``tecoinfer.tasks``."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import utils.tasks
from engine import ConfigError
from tecoinfer_modelzoo.text import did_you_mean, typed_reason
from utils.tasks.base import Task, task_class
from utils.tasks.legacy import LegacyTask, is_task

ENTRY_POINT_GROUP = "tecoinfer.tasks"
"""Group of entry points ``name = "package.module:TASK"``, by which other packages add tasks."""

_CONTRACT = ("base", "collating", "find", "legacy", "model", "options", "prepared")
"""Modules of this package without a task."""


def add_contrib(root: Path) -> None:
    """Append a clone's ``contrib/`` to the import path, also for loaded packages of ``utils``."""
    folder = str(root / "contrib")
    if not os.path.isdir(folder):
        return
    if folder not in sys.path:
        sys.path.append(folder)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "utils" and hasattr(module, "__path__"):
            module.__path__ = pkgutil.extend_path(module.__path__, name)
    importlib.invalidate_caches()


def tasks() -> dict[str, type[Task]]:
    """Return all tasks by name.
    Raises ConfigError if a file or an entry point cannot be loaded, or a name is invalid or duplicated."""
    found: dict[str, type[Task]] = {}
    for where, task in [*_on_the_path(), *_by_entry_point()]:
        for what, text in (("name", task.name), ("domain", task.domain)):
            if not re.fullmatch(r"[a-z][a-z0-9_]*", text):
                raise ConfigError(
                    f"{where}: the {what} {text!r} of a task must start with a lower-case letter and hold only "
                    "lower-case letters, digits and underscores"
                )
        if found.setdefault(task.name, task) is not task:
            raise ConfigError(f"{where}: there already is a task {task.name!r}; rename one of them")
    return found


def find_task(name: str) -> type[Task]:
    """Return the task of this name, or the default task of the domain of this name (:func:`default_of`).
    Raises ConfigError if the task is unknown, or the domain has several tasks without a default."""
    known = tasks()
    found = known.get(name) or default_of(name, known)
    if found is not None:
        return found
    of_domain = sorted(task.name for task in known.values() if task.domain == name)
    if of_domain:
        raise ConfigError(f"domain {name!r} has several tasks; name one: {', '.join(of_domain)}")
    names = sorted({*known, *(task.domain for task in known.values())})
    hint = did_you_mean(name, names)
    raise ConfigError(f"unknown task {name!r};{hint} tasks: {', '.join(sorted(known))}")


def default_of(domain: str, known: Mapping[str, type[Task]]) -> type[Task] | None:
    """Return a domain's only task, or the one with ``domain_default``; ``None``: there is none."""
    own = [task for task in known.values() if task.domain == domain]
    for found in (own, [task for task in own if task.domain_default]):
        if len(found) == 1:
            return found[0]
    return None


def _on_the_path() -> Iterator[tuple[str, type[Task]]]:
    """Yield the tasks in modules of ``utils.tasks``, each once."""
    seen: set[int] = set()
    # Any folder utils/tasks on the path joins the package; only those with an __init__.py are meant to.
    meant = [place for place in utils.tasks.__path__ if os.path.isfile(os.path.join(place, "__init__.py"))]
    for module in sorted(pkgutil.iter_modules(meant), key=lambda found: found.name):
        name = module.name
        if module.ispkg:
            name = f"{name}.task"
            if importlib.util.find_spec(f"utils.tasks.{name}") is None:
                continue
        elif name in _CONTRACT:
            continue
        where = f"utils/tasks/{name.replace('.', '/')}.py"
        try:
            loaded = importlib.import_module(f"utils.tasks.{name}")
        except (Exception, SystemExit) as error:
            raise ConfigError(f"{where} cannot be imported: {typed_reason(error)}; correct the file") from error
        for value in vars(loaded).values():
            if is_task(value) and _is_defined_in(value, loaded) and id(value) not in seen:
                seen.add(id(value))
                yield where, task_class(value)


def _is_defined_in(task: object, module: ModuleType) -> bool:
    """Return whether a module defines a class, or a task in the old form that is not a view of a class."""
    if isinstance(task, LegacyTask):
        return task.as_class() is not task.base
    return getattr(task, "__module__", "") == module.__name__


def _by_entry_point() -> Iterator[tuple[str, type[Task]]]:
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINT_GROUP):
        package = point.dist.name if point.dist else point.value
        try:
            loaded = point.load()
        except (Exception, SystemExit) as error:
            raise ConfigError(
                f"task {point.name!r} of {package} ({point.value}) cannot be loaded: {typed_reason(error)}"
            ) from error
        if not is_task(loaded):
            raise ConfigError(f"task {point.name!r} of {package} ({point.value}) is not a utils.tasks.Task")
        yield package, task_class(loaded)
