"""Static search for the files of the repository that a script may use.

Includes imports anywhere in a file, also in functions, and the ``__init__`` files of their packages, and strings that
name something of the repository: a module (``"engine.registry"``), a table entry
(``"engine.backends.cpu:CpuEngine"``), a file in the same folder or a pass (``"default_pass.py"``). Data files belong to
their package. The result may contain too many files, but misses only names that are composed at run time.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, repeat
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from model_config.cases.config import Case
from model_config.syntax import MOST, parsed
from tecoinfer_modelzoo.files import read_regular
from tecoinfer_modelzoo.trees import walk

PASSES = "engine/passes"
"""Folder that ``pass_path`` may be relative to."""

CONTRIB = "contrib"
"""Folder whose ``utils`` extends the core's, for scripts inside it."""

_MODULE = re.compile(r"([A-Za-z_]\w*(?:\.\w+)*):[A-Za-z_][\w.]*|([A-Za-z_]\w*(?:\.\w+)+)", re.ASCII)
_FILE = re.compile(r"[\w./-]+\.\w+", re.ASCII)
_TEXT = 200
"""Maximum length of a string that can be a name."""


class _Source(NamedTuple):
    """Names in one file: modules, modules relative to a folder, and files."""

    modules: frozenset[str]
    relative: frozenset[tuple[str, str]]
    files: frozenset[str]


class Imports:
    """The import graph of a repository; files are read on demand, each once.

    Args:
        root: the repository.
        gone: deleted files that are treated as existing: a file that imports a deleted one is affected.
    """

    def __init__(self, root: Path, gone: Iterable[str] = ()) -> None:
        self.root = root
        self.gone = frozenset(gone)
        self._sources: dict[str, _Source] = {}
        self._there: dict[str, bool] = {}
        self._inside: dict[str, frozenset[str]] = {}
        self._own: dict[str, frozenset[str]] = {}
        self._imported: dict[tuple[str, str], frozenset[str]] = {}

    def of_case(self, case: Case) -> frozenset[str]:
        """Return the files that a case's steps use, including its scripts, relative to the root."""
        steps = [*case.steps, *filter(None, [case.accuracy.run_reference])]
        scripts = [os.path.normpath(f"{case.run_dir}/{step.run_file}") for step in steps]
        named = [value for step in case.steps for value in map(str, step.params.values())]
        given = list(self._files([*named, *(f"{name}.py" for name in named)], case.run_dir))  # such as a pass file
        contrib = [CONTRIB] if PurePosixPath(case.run_dir).parts[:1] == (CONTRIB,) else []
        return self.closure([*scripts, *given], [case.run_dir, "", *contrib])

    def closure(self, files: Iterable[str], folders: Sequence[str]) -> frozenset[str]:
        """Return the files and all files they use.

        Args:
            files: start files, relative to the root.
            folders: import search folders, relative to the root.
        """
        found: set[str] = set()
        waiting = [file for file in files if self._is_file(file)]
        while waiting:
            file = waiting.pop()
            if file not in found:
                found.add(file)
                waiting += self._used(file, folders)
        packages = {folder for file in found if (folder := os.path.dirname(file)) and self._is_package(folder)}
        return frozenset(found).union(*map(self._data, packages))

    def _used(self, file: str, folders: Sequence[str]) -> Iterator[str]:
        if file not in self._own:
            self._own[file] = frozenset(self._found_alone(file))
        yield from self._own[file]
        for folder in folders if file.endswith(".py") else ():
            if (file, folder) not in self._imported:
                found = (self._resolve(module, folder) for module in self._source(file).modules)
                self._imported[file, folder] = frozenset(chain.from_iterable(found))
            yield from self._imported[file, folder]

    def _found_alone(self, file: str) -> Iterator[str]:
        """Yield the files that a file uses independent of the search folders."""
        target = os.path.relpath(os.path.realpath(self.root / file), self._real_root)
        if not target.startswith(".."):
            yield target  # target of a link
        if not file.endswith(".py"):
            return
        source, own = self._source(file), os.path.dirname(file)
        for folder, module in (*((own, module) for module in source.modules), *source.relative):
            yield from self._resolve(module, folder)
        yield from self._files(source.files, own)

    def _resolve(self, module: str, folder: str) -> Iterator[str]:
        """Yield the file of a module, and those of its packages, in a search folder."""
        first, *parts = module.split(".")
        if first not in self._names(folder):
            return
        place = f"{folder}/{first}" if folder else first
        for part in (None, *parts):
            place = place if part is None else f"{place}/{part}"
            if self._is_file(f"{place}.py"):
                yield f"{place}.py"
            if self._is_package(place):
                yield f"{place}/__init__.py"

    def _names(self, folder: str) -> frozenset[str]:
        """Return the names of the modules and packages directly in a folder."""
        if folder not in self._inside:
            top = f"{folder}/" if folder else ""
            gone = {file[len(top) :].split("/")[0] for file in self.gone if file.startswith(top)}
            try:
                there = os.listdir(self.root / folder)
            except OSError:  # not a folder
                there = []
            self._inside[folder] = frozenset(name.removesuffix(".py") for name in gone.union(there))
        return self._inside[folder]

    def _files(self, names: Iterable[str], own: str) -> Iterator[str]:
        for name in names:
            for folder in (own, PASSES):
                path = os.path.normpath(os.path.join(folder, name))
                if not path.startswith(("..", "/")) and self._is_file(path):
                    yield path

    def _data(self, package: str) -> list[str]:
        """Return the files of a package other than Python and prose, including those in subfolders."""
        found = [file for file in self.gone if file.startswith(f"{package}/") and not file.endswith((".py", ".md"))]
        for folder, folders, files in walk(self.root / package):
            place = os.path.relpath(folder, self.root)
            inner = [name for name in folders if name != "__pycache__" and not self._is_package(f"{place}/{name}")]
            folders[:] = inner
            found += [f"{place}/{name}" for name in files if not name.endswith((".py", ".pyc", ".md"))]
        return found

    def _is_package(self, folder: str) -> bool:
        return self._is_file(f"{folder}/__init__.py")

    def _is_file(self, path: str) -> bool:
        if path not in self._there:
            self._there[path] = path in self.gone or (self.root / path).is_file()
        return self._there[path]

    def _source(self, file: str) -> _Source:
        if file not in self._sources:
            self._sources[file] = _read(self.root / file, os.path.dirname(file))
        return self._sources[file]

    @cached_property
    def _real_root(self) -> str:
        return os.path.realpath(self.root)


def _read(path: Path, folder: str) -> _Source:
    """Return the names in a file; empty if it is missing or not Python."""
    modules: set[str] = set()
    relative: set[tuple[str, str]] = set()
    files: set[str] = set()
    try:
        tree = parsed(read_regular(path, MOST))
    except (OSError, SyntaxError, ValueError):  # reported by the step that runs it
        return _Source(frozenset(), frozenset(), frozenset())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            above = "/".join(folder.split("/")[: len(folder.split("/")) - node.level + 1])
            relative.update(zip(repeat(above), _imported(node), strict=False))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            modules.update(_imported(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= _TEXT:
            modules.update(_module_in(node.value))
            files.update([node.value] if _FILE.fullmatch(node.value) else [])
    return _Source(frozenset(modules), frozenset(relative), frozenset(files))


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the imported modules, or names of one."""
    module = node.module if isinstance(node, ast.ImportFrom) else None
    found = [".".join(filter(None, (module, alias.name))) for alias in node.names]
    return [name for name in found if len(name) <= _TEXT]


def _module_in(text: str) -> list[str]:
    """Return the module that a string names, if any."""
    match = _MODULE.fullmatch(text)
    return [match[1] or match[2]] if match else []
