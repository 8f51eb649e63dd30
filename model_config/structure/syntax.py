"""Syntax tree helpers: names, calls and imports."""

from __future__ import annotations

import ast

from model_config.structure.source import SourceFile


def aliases(source: SourceFile) -> dict[str, str]:
    """Return the full name of each imported name of a module, such as ``numpy`` for ``np``."""
    names: dict[str, str] = {}
    for node in source.nodes:
        if isinstance(node, ast.Import):
            names |= dict(map(_bound, node.names))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return names


def _bound(alias: ast.alias) -> tuple[str, str]:
    """Return the name that an ``import`` binds, and its full name."""
    top = alias.name.split(".")[0]
    return (alias.asname, alias.name) if alias.asname else (top, top)


def text_of(node: ast.AST | None) -> str | None:
    """Return the value of a string node; ``None`` for any other node."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def called(call: ast.Call, names: dict[str, str]) -> str:
    """Return the full dotted name of the called function, such as ``os.system``; empty if it has no name."""
    return dotted(call.func, names)


def dotted(node: ast.expr, names: dict[str, str]) -> str:
    """Return the full dotted name of a name or attribute node."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([names.get(node.id, node.id), *reversed(parts)])


def imported(node: ast.AST) -> list[str]:
    """Return the modules that a statement imports, without relative imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []


def at(node: ast.AST) -> int:
    """Return the line of a node; 0 if it has none."""
    return getattr(node, "lineno", 0)
