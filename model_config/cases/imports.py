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
from typing import Any, NamedTuple

from model_config.cases.config import Case
from model_config.remembered import Remembered, key_of
from model_config.syntax import MOST, parsed
from tecoinfer_modelzoo.files import read_regular
from tecoinfer_modelzoo.json_types import Problems
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

    @property
    def plain(self) -> list[list[Any]]:
        """The names as JSON types, from which :func:`_restored` makes the same object."""
        return [sorted(self.modules), sorted(map(list, self.relative)), sorted(self.files)]


_EMPTY = _Source(frozenset(), frozenset(), frozenset())


class Imports:
    """The import graph of a repository; files are read on demand, each once.

    Args:
        root: the repository.
        gone: deleted files that are treated as existing: a file that imports a deleted one is affected.
        remembered: names in the files of earlier checks; default: every file is parsed.
    """

    def __init__(self, root: Path, gone: Iterable[str] = (), remembered: Remembered | None = None) -> None:
        self.root = root
        self.gone = frozenset(gone)
        self._remembered = remembered
        self._sources: dict[str, _Source] = {}
        self._firsts: dict[str, frozenset[str]] = {}
        self._there: dict[str, bool] = {}
        self._inside: dict[str, frozenset[str]] = {}
        self._own: dict[str, frozenset[str]] = {}
        self._imported: dict[tuple[str, str], frozenset[str]] = {}
        self._inner: dict[str, list[str]] = {}

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
                for used in self._used(file, folders):
                    waiting += used - found
        packages = {folder for file in found if (folder := os.path.dirname(file)) and self._is_package(folder)}
        return frozenset(found).union(*map(self._data, packages))

    def _used(self, file: str, folders: Sequence[str]) -> Iterator[frozenset[str]]:
        """Yield the files that a file uses: independent of the search folders, and in each of them."""
        if file not in self._own:
            self._own[file] = frozenset(self._found_alone(file))
        yield self._own[file]
        for folder in folders if file.endswith(".py") else ():
            # Most files use nothing of a model's folder, and there is one such folder per case.
            if not self._first_names(file).isdisjoint(self._names(folder)):
                yield self._in_folder(file, folder)

    def _first_names(self, file: str) -> frozenset[str]:
        """Return the first parts of the modules that a file names."""
        if file not in self._firsts:
            self._firsts[file] = frozenset(module.partition(".")[0] for module in self._source(file).modules)
        return self._firsts[file]

    def _in_folder(self, file: str, folder: str) -> frozenset[str]:
        """Return the files of the modules that a file names, in a search folder."""
        if (file, folder) not in self._imported:
            found = (self._resolve(module, folder) for module in self._source(file).modules)
            self._imported[file, folder] = frozenset(chain.from_iterable(found))
        return self._imported[file, folder]

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
        if package not in self._inner:
            self._inner[package] = self._walked(package)
        return self._inner[package]

    def _walked(self, package: str) -> list[str]:
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
            self._sources[file] = self._read(file)
        return self._sources[file]

    def _read(self, file: str) -> _Source:
        """Return the names in a file, stored by an earlier check or parsed; none if it is missing or not Python."""
        folder = os.path.dirname(file)
        try:
            content = read_regular(self.root / file, MOST)
        except OSError:  # reported by the step that runs it
            return _EMPTY
        if self._remembered is None:
            return _parsed(content, folder)
        key = key_of("names", folder, content)
        found = _restored(self._remembered.find(key))
        if found is None:
            found = _parsed(content, folder)
            self._remembered.keep(key, found.plain)
        return found

    @cached_property
    def _real_root(self) -> str:
        return os.path.realpath(self.root)


def _restored(plain: Any) -> _Source | None:
    """Return the names that :attr:`_Source.plain` wrote; ``None`` if there are none, or they are damaged."""
    try:
        modules, relative, files = plain
        return _Source(frozenset(modules), frozenset((above, module) for above, module in relative), frozenset(files))
    except Problems:
        return None


def _parsed(content: bytes, folder: str) -> _Source:
    """Return the names in the content of a file of a folder; none if it is not Python."""
    modules: set[str] = set()
    relative: set[tuple[str, str]] = set()
    files: set[str] = set()
    try:
        tree = parsed(content)
    except (SyntaxError, ValueError):  # reported by the step that runs it
        return _EMPTY
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
