"""The flags of a script, read off its source."""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence

from engine import nearest
from model_config.structure.source import Folder, SourceFile
from model_config.structure.syntax import aliases, called
from model_config.structure.task_flags import runs_task, task_flags

FREE_PARSERS = ("click", "fire", "typer", "absl", "hydra", "tyro", "docopt", "simple_parsing")
"""Packages whose flags cannot be read off the source."""


def known_flags(source: SourceFile, folder: Folder) -> frozenset[str] | None:
    """Return the flags of a script and of the folder's modules it imports; ``None`` where they cannot be told."""
    flags: set[str] = set()
    modules = with_imports(source, folder)
    own = {node.name for module in modules for node in module.nodes if isinstance(node, ast.FunctionDef)}
    for module in modules:
        names, parsers = aliases(module), {_parser(node) for node in module.nodes}
        if _hides(module, names):
            return None
        for call in (node for node in module.nodes if isinstance(node, ast.Call)):
            given = {arg.id for arg in call.args if isinstance(arg, ast.Name)} & parsers
            elsewhere = given and called(call, names).split(".")[-1] not in own  # a parser handed to foreign code
            added = None if elsewhere else _added(call, names, module, modules)
            if added is None:
                return None
            flags |= added
    return frozenset(flags) or None


def _hides(module: SourceFile, names: dict[str, str]) -> bool:
    """Say whether a module reads its flags in a way that only a run can follow."""
    if {name.split(".")[0] for name in names.values()} & set(FREE_PARSERS):
        return True
    direct = {id(node.func) for node in module.nodes if isinstance(node, ast.Call)}
    attributes = [node for node in module.nodes if isinstance(node, ast.Attribute)]
    if any(node.attr in ("parse_known_args", "argv") for node in attributes):
        return True
    # `add = parser.add_argument` hides the calls that follow.
    return any(node.attr == "add_argument" and id(node) not in direct for node in attributes)


def _parser(node: ast.AST) -> str:
    """Return the name of the parser that ``add_argument`` is called of; nothing for any other node."""
    if isinstance(node, ast.Attribute) and node.attr == "add_argument" and isinstance(node.value, ast.Name):
        return node.value.id
    return ""


def _added(call: ast.Call, names: dict[str, str], module: SourceFile, modules: Sequence[SourceFile]) -> set[str] | None:
    """Return the flags that a call adds; ``None`` where only a run can tell."""
    if runs_task(call, names):
        return task_flags(call, module, modules)
    if any(keyword.arg == "parents" for keyword in call.keywords):
        return None
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name != "add_argument":
        return set()
    texts = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    return {text for text in texts if text.startswith("-")} if len(texts) == len(call.args) else None


def unknown(flag: str, flags: frozenset[str]) -> str:
    """Return what to do about a flag that a script lacks; nothing where it has the flag, or one that begins so."""
    if any(known.startswith(flag) for known in flags | {"--help"}):
        return ""
    near = nearest(flag, flags)
    return f"did you mean {near}?" if near else "remove it, or add it to the script"


def with_imports(source: SourceFile, folder: Folder) -> Sequence[SourceFile]:
    """Return the script and the modules of its own folder that it imports, directly or through one another."""
    found = [source]
    for module in found:
        for name in sorted(set(aliases(module).values())):
            parts = name.split(".")
            for end in range(len(parts), 0, -1):
                path = os.path.join(os.path.dirname(module.name), *parts[:end]) + ".py"
                local = folder.find(os.path.relpath(path, folder.run_dir))
                if local is not None and local not in found:
                    found.append(local)
    return found
