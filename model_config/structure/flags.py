"""Flags of a script, extracted from its source code."""

from __future__ import annotations

import ast
import os
from collections.abc import Collection, Sequence

from model_config.structure.source import Folder, SourceFile
from model_config.structure.syntax import aliases, called, text_of
from model_config.structure.task_flags import runs_task, task_flags
from tecoinfer_modelzoo.text import nearest

FREE_PARSERS = ("click", "fire", "typer", "absl", "hydra", "tyro", "docopt", "simple_parsing")
"""Packages whose flags cannot be extracted from the source code."""


_DEEPEST = 20
"""Maximum number of parts of a module name that are resolved."""

_MOST_TASKS = 20
"""Calls that run a task; a script has one of them."""


def known_flags(source: SourceFile, folder: Folder) -> frozenset[str] | None:
    """Return the flags of a script and of the folder's modules it imports; ``None`` if they cannot be determined."""
    if source.name not in folder.flags:
        folder.flags[source.name] = _known(source, folder)
    return folder.flags[source.name]


def _known(source: SourceFile, folder: Folder) -> frozenset[str] | None:
    flags: set[str] = set()
    modules = with_imports(source, folder)
    own = {function.name for module in modules for function in module.of(ast.FunctionDef)}
    for module in modules:
        added = _flags_of(module, modules, own, folder)
        if added is None:
            return None
        flags |= added
    return frozenset(flags) or None


def _flags_of(
    module: SourceFile, modules: Sequence[SourceFile], own: Collection[str], folder: Folder
) -> set[str] | None:
    """Return the flags that a module adds; ``None`` if only running it can tell. ``own``: functions of the modules."""
    flags: set[str] = set()
    names, parsers = aliases(module), {_parser(node) for node in module.nodes}
    if _hides(module, names) or sum(runs_task(call, names) for call in module.of(ast.Call)) > _MOST_TASKS:
        return None
    for call in module.of(ast.Call):
        given = {arg.id for arg in call.args if isinstance(arg, ast.Name)} & parsers
        elsewhere = given and called(call, names).split(".")[-1] not in own  # a parser passed to other code
        added = None if elsewhere else _added(call, names, module, modules, folder)
        if added is None:
            return None
        flags |= added
    return flags


def _hides(module: SourceFile, names: dict[str, str]) -> bool:
    """Return whether a module defines its flags in a way that static analysis cannot follow."""
    packages = {name.split(".")[0] for name in names.values()}
    direct = {id(call.func) for call in module.of(ast.Call)}
    # `add = parser.add_argument` hides the calls that follow.
    handed = {node.attr for node in module.of(ast.Attribute) if id(node) not in direct} & {"add_argument"}
    used = {node.attr for node in module.of(ast.Attribute)} & {"parse_known_args", "argv"}
    return bool(packages & set(FREE_PARSERS) or used or handed)


def _parser(node: ast.AST) -> str:
    """Return the name of the parser whose ``add_argument`` is called; empty for any other node."""
    if isinstance(node, ast.Attribute) and node.attr == "add_argument" and isinstance(node.value, ast.Name):
        return node.value.id
    return ""


def _added(
    call: ast.Call, names: dict[str, str], module: SourceFile, modules: Sequence[SourceFile], folder: Folder
) -> set[str] | None:
    """Return the flags that a call adds; ``None`` if only running it can tell."""
    if runs_task(call, names):
        return task_flags(call, module, modules, folder)
    if any(keyword.arg == "parents" for keyword in call.keywords):
        return None
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return _spelt(call) if name == "add_argument" else set()


def _spelt(call: ast.Call) -> set[str] | None:
    """Return the flags among the arguments of a call; ``None`` if one of them is not a string literal."""
    texts = [text for text in map(text_of, call.args) if text is not None]
    return {text for text in texts if text.startswith("-")} if len(texts) == len(call.args) else None


def has_flag(flag: str, flags: frozenset[str]) -> bool:
    """Return whether a script has a flag, or one with this prefix."""
    return any(known.startswith(flag) for known in flags | {"--help"})


def instead(flag: str, flags: frozenset[str]) -> str:
    """Return the fix for a flag that a script does not have."""
    near = nearest(flag, flags)
    return f"did you mean {near}?" if near else "remove it, or add it to the script"


def with_imports(source: SourceFile, folder: Folder) -> Sequence[SourceFile]:
    """Return the script and the modules of its folder that it imports, directly or indirectly."""
    found = [source]
    for module in found:
        for name in sorted(set(aliases(module).values())):
            parts = name.split(".")[:_DEEPEST]
            for end in range(len(parts), 0, -1):
                path = os.path.join(os.path.dirname(module.name), *parts[:end]) + ".py"
                local = folder.find(os.path.relpath(path, folder.run_dir))
                if local is not None and local not in found:
                    found.append(local)
    return found
