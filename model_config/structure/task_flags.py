"""Flags of a script that runs a task, ``cli.valid(TASK, ...)``; the task is determined from the source code."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from model_config.run.foreign import is_core
from model_config.structure.source import Folder, SourceFile
from model_config.structure.syntax import aliases, called, dotted, text_of
from utils.tasks.base import SCRIPTS, AnyTask
from utils.tasks.legacy import is_task

_CALLS = {f"utils.pipeline.cli.{script}": script for script in SCRIPTS}
_OPTIONS = "utils.pipeline.flags.options.options"

_DEEPEST = 20
"""Maximum depth of name resolution, which ends cyclic definitions."""


def runs_task(call: ast.Call, names: dict[str, str]) -> bool:
    """Return whether a call runs a task, which adds the flags of the task."""
    return called(call, names) in (*_CALLS, _OPTIONS)


def task_flags(call: ast.Call, source: SourceFile, modules: Sequence[SourceFile], folder: Folder) -> set[str] | None:
    """Return the flags that a call of :func:`runs_task` adds; ``None`` if task or script cannot be determined.

    A task of the zoo itself is imported. A task of ``contrib/utils`` is queried with ``folder.tasks``.

    Args:
        source: the module that contains the call.
        modules: the script and the modules of its folder that it imports.
    """
    script = _CALLS.get(called(call, aliases(source)))
    named = any(keyword.arg == "task" for keyword in call.keywords)
    alone = script is not None and len(call.args) == 1 and not named  # the older form had the docstring first
    place = _Reader(modules).task(_argument(call, 0 if alone else 1, "task"), source)
    if script is None:
        script = text_of(_argument(call, 2, "script"))
    if place is None or script not in SCRIPTS:
        return None
    module, name = place
    if not is_core(module):
        return folder.tasks.flags(module, name, script)
    task = _imported(module, name) if module.startswith("utils.tasks.") else None
    if task is None:
        return None
    from utils.pipeline.flags.options import script_flags

    return {flag.name for flag in script_flags(task, script)}


def _argument(call: ast.Call, place: int, name: str) -> ast.expr | None:
    """Return an argument by position or name."""
    if any(isinstance(arg, ast.Starred) for arg in call.args[: place + 1]):
        return None
    named = [keyword.value for keyword in call.keywords if keyword.arg == name]
    return next(iter([*call.args[place : place + 1], *named]), None)


class _Reader:
    """Resolver of the task that an expression refers to, over the modules of a model's folder; imports nothing."""

    def __init__(self, modules: Sequence[SourceFile]) -> None:
        self._modules = modules

    def task(self, node: ast.expr | None, source: SourceFile, depth: int = 0) -> tuple[str, str] | None:
        """Return module and name of a task of ``utils`` with the same flags as the task of an expression.

        ``None`` if it cannot be determined without running the script.
        """
        if node is None or depth > _DEEPEST:
            return None
        names = aliases(source)
        if isinstance(node, ast.Call):
            return self.task(_replaced(node, names), source, depth + 1)
        if isinstance(node, ast.Name) and (given := list(_bindings(node.id, source))):
            alone = len(given) == 1 and node.id not in names
            return self.task(given[0], source, depth + 1) if alone else None
        where, _, name = dotted(node, names).rpartition(".")
        local = self._module(where, source)
        if local is not None:
            return self.task(ast.Name(name), local, depth + 1)
        return (where, name) if where.startswith("utils.") else None

    def _module(self, name: str, source: SourceFile) -> SourceFile | None:
        """Return the module of this name in the folder of a script."""
        path = PurePosixPath(source.name).parent.joinpath(*name.split("."))
        return next((module for module in self._modules if name and module.name == f"{path.as_posix()}.py"), None)


def _replaced(call: ast.Call, names: dict[str, str]) -> ast.expr | None:
    """Return ``TASK`` of ``dataclasses.replace(TASK, decode=...)``, which has the same flags; else ``None``."""
    changed = {keyword.arg for keyword in call.keywords}
    same = called(call, names) == "dataclasses.replace" and len(call.args) == 1 and not changed & {None, "flags"}
    return call.args[0] if same else None


def _bindings(name: str, source: SourceFile) -> Iterator[ast.expr | None]:
    """Yield every value that is assigned to a name in a module; ``None`` for one that cannot be resolved."""
    values: dict[int, ast.expr | None] = {id(node.target): node.value for node in source.of(ast.AnnAssign)}
    values |= {id(target): node.value for node in source.of(ast.Assign) for target in node.targets}
    for node in source.nodes:
        if isinstance(node, ast.Name):
            if node.id == name and isinstance(node.ctx, ast.Store):
                yield values.get(id(node))
        elif isinstance(node, ast.ClassDef) and node.name == name:
            yield _base(node)
        elif name in _names(node):
            yield None


def _base(node: ast.ClassDef) -> ast.expr | None:
    """Return the base of a class with the same flags; ``None`` for several bases, or if the class defines flags."""
    stored = (one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))
    return node.bases[0] if len(node.bases) == 1 and "flags" not in stored else None


def _names(node: ast.AST) -> tuple[str | None, ...]:
    """Return the names that a function, class, exception handler or argument defines."""
    if isinstance(node, ast.arg):
        return (node.arg,)
    return () if isinstance(node, ast.alias) else (getattr(node, "name", None),)


def _imported(module: str, name: str) -> AnyTask | None:
    """Import a task of the zoo's ``utils``."""
    try:
        found = getattr(importlib.import_module(module), name, None)
    except (Exception, SystemExit):  # noqa: BLE001 -- a package is not installed: the step that needs it reports it
        return None
    return found if is_task(found) else None
