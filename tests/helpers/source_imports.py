"""Imports in source files, without running them: also in functions, for types, and in strings."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from support import ROOT


class Import(NamedTuple):
    """One name that one line of a file imports; ``name`` is empty in ``import a.b``."""

    line: int
    module: str
    name: str = ""


def python_files(*tops: str) -> list[str]:
    """Return the files in these folders that git does not ignore; all files without git."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py"],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    names = (
        listed.stdout.split("\0") if listed.returncode == 0 else [str(p.relative_to(ROOT)) for p in ROOT.rglob("*.py")]
    )
    return sorted(name for name in names if name.split("/")[0] in tops and (ROOT / name).is_file())


@cache
def tree(name: str) -> ast.Module:
    """Return a parsed file; collections of garbage while parsing would take most of the time."""
    gc.disable()
    try:
        return ast.parse((ROOT / name).read_text(encoding="utf-8"), name)
    finally:
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def forget_trees() -> Iterator[None]:
    """Release the parsed files when a test file that imports this has ended.

    With them a full collection of garbage takes five seconds, so there is none meanwhile, and none in later tests.
    """
    before = gc.get_threshold()
    gc.set_threshold(before[0], before[1], 1_000_000)
    yield
    tree.cache_clear()
    gc.set_threshold(*before)


def module_of(name: str) -> str:
    """Return the module that a file is."""
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


USERS_FACE = ("tecoinfer_modelzoo/__init__.py", "toolkit.api")
"""The only upward import: the users' functions are exported at the bottom and imported lazily."""


@cache
def imports(name: str) -> tuple[Import, ...]:
    """Return every import of a file except the allowed upward one (:data:`USERS_FACE`)."""
    nodes = ast.walk(tree(name)) if _calls_imports(name) else _statements(tree(name))
    found = _imports(nodes, name.split("/")[:-1])
    return tuple(one for one in found if (name, one.module) != USERS_FACE)


def _statements(where: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements in a node, which are a tenth of what :func:`ast.walk` yields."""
    todo = [where]
    while todo:
        node = todo.pop()
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            todo.extend(getattr(node, field, ()))


@cache
def _calls_imports(name: str) -> bool:
    return any(word in (ROOT / name).read_text(encoding="utf-8") for word in ("import_module", "__import__"))


def _imports(nodes: Iterable[ast.AST], package: list[str]) -> Iterator[Import]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (Import(node.lineno, module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and _takes_text(node.func):
            first = node.args[0]
            if isinstance(first, ast.Constant):
                yield Import(node.lineno, str(first.value))


def _takes_text(called: ast.expr) -> bool:
    if isinstance(called, ast.Attribute):
        return called.attr == "import_module" and isinstance(called.value, ast.Name) and called.value.id == "importlib"
    return isinstance(called, ast.Name) and called.id in ("import_module", "__import__")


def written_imports(name: str) -> Iterator[Import]:
    """Yield the imports in texts of a file: in programs that it writes or runs, and in examples."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for found in _WRITTEN.finditer(node.value):
                for imported in (found["names"] or "").split(","):
                    yield Import(node.lineno, found["module"], imported.strip().split(" ")[0])


_WRITTEN = re.compile(
    r"^ *(?:\{\w+\})?(?:from|import) (?P<module>[\w.]+)(?: import (?P<names>[\w, ]+))?$", re.MULTILINE
)


def table(name: str, variable: str) -> Mapping[str, tuple[str, ...]]:
    """Return a module's literal variable, names in a text as a tuple; empty if it is missing."""
    for node in tree(name).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == variable:
            found = ast.literal_eval(node.value)
            return {key: tuple(names.split() if isinstance(names, str) else names) for key, names in found.items()}
    return {}


def typing_only(name: str) -> dict[str, set[str]]:
    """Return module -> names of what a file imports under ``if TYPE_CHECKING`` at its top."""
    found: dict[str, set[str]] = {}
    for node in tree(name).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for one in _imports(ast.walk(node), name.split("/")[:-1]):
                found.setdefault(one.module, set()).add(one.name)
    return found


def graph_of(names: list[str]) -> dict[str, dict[str, int]]:
    """Return module -> {module it imports: line}, among these files.

    ``from package import name`` is an import of the module ``package.name`` where there is one, else of the package
    itself, whose lazy table ``_HOMES`` counts as its imports. A script's neighbours in its folder, and the packages
    beside it, which it and they import by their bare names, count as well.
    """
    files = {module_of(name): name for name in names}
    graph: dict[str, dict[str, int]] = {}
    for module, name in files.items():
        found = graph[module] = {}
        folder = Path(name).parent
        while (ROOT / folder / "__init__.py").is_file():
            folder = folder.parent
        near = ".".join(folder.parts)
        lazily = [Import(1, home) for home in table(name, "_HOMES")] if name.endswith("__init__.py") else []
        for one in (*imports(name), *lazily):
            full = f"{one.module}.{one.name}"
            places = (full, one.module, f"{near}.{full}", f"{near}.{one.module}")
            target = next((place for place in places if place in files), module)
            if target != module:
                found.setdefault(target, one.line)
    return graph


def circles(graph: Mapping[str, Mapping[str, int]]) -> list[list[str]]:
    """Return the groups of modules of which each imports each other by some way (Tarjan, 1972), sorted."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = low[module] = len(order)
        stack.append(module)
        for other in graph[module]:
            if other not in order:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], order[other])
        if low[module] == order[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                found.append(sorted(group))

    for module in graph:
        if module not in order:
            visit(module)
    return sorted(found)
