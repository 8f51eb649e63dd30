"""The Python files of a run, without installed packages; a journal is invalid after one of them changes.

A user's code is found from the task's functions and the script: their files, and all files that these import, also in
functions, or name by a relative path. The zoo's own code counts as a whole, by folder, as the imported modules depend
on the state of the cache.
"""

from __future__ import annotations

import ast
import functools
import os
import platform
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from importlib.machinery import PathFinder
from pathlib import Path
from types import CodeType
from typing import Any

from engine.host import component_version

ZOO = Path(__file__).resolve().parents[1]
"""Folder of the zoo's packages."""

ZOO_PACKAGES = ("engine", "tecoinfer_modelzoo", "utils")
"""The zoo's packages that a run imports."""

LEFT_OUT = ("utils/export", "utils/pages")
"""Folders in these packages that runs do not import."""

VERSIONS = ("numpy", "Pillow", "onnx", "onnxruntime")
"""Components whose versions are recorded."""

MOST_FILES = 1000
"""Largest number of files that are followed."""

_NAMED = re.compile(r"[\w.-]+(/[\w.-]+)*\.\w+")
"""A string in a script that may be a relative path of a file."""


def zoo_code() -> dict[str, str]:
    """Return hashes of the zoo's code by folder, and the versions of Python and :data:`VERSIONS`."""
    found = {f"zoo {name}": digest for name, digest in _folders().items()}
    found["version of python"] = platform.python_version()
    return found | {f"version of {name}": str(component_version(name)) for name in VERSIONS}


def _folders() -> dict[str, str]:
    found: dict[str, str] = {}
    for package in ZOO_PACKAGES:
        for folder, folders, files in os.walk(ZOO / package):
            place = os.path.relpath(folder, ZOO).replace(os.sep, "/")
            folders[:] = sorted(name for name in folders if name != "__pycache__" and f"{place}/{name}" not in LEFT_OUT)
            digest = sha256()
            for name in sorted(name for name in files if name.endswith(".py")):
                digest.update(f"{name} {_hash(os.path.join(folder, name))}\n".encode("utf-8", "surrogatepass"))
            found[place] = digest.hexdigest()[:16]
    return found


def _hash(path: str) -> str:
    try:
        with open(path, "rb") as file:  # without checks, as there are hundreds
            return sha256(file.read()).hexdigest()
    except OSError:
        return "unreadable"


def code_files(functions: Iterable[Callable[..., Any]], files: Iterable[Path] = ()) -> dict[str, Path]:
    """Return the files of functions and of the running script, and files they import, by name; not those of the zoo.

    Args:
        functions: of the task. files: further Python files.

    Returns:
        Names are relative to the zoo or to the script's folder for files in these, else absolute.
    """
    script = _script()
    first = [*filter(None, (script, *map(file_of, functions))), *files]
    found: dict[Path, None] = {}
    waiting = [Path(os.path.realpath(file)) for file in first]
    places = [place for place in (os.path.realpath(one or ".") for one in sys.path) if not is_installed(Path(place))]
    while waiting and len(found) < MOST_FILES:
        file = waiting.pop()
        if file in found or is_installed(file) or _is_zoo(file) or not file.is_file():
            continue
        found[file] = None
        if file.suffix == ".py":
            waiting += _used(file, places)
    folder = None if script is None else Path(os.path.realpath(script)).parent
    return dict(sorted((_name(file, folder), file) for file in found))


def _script() -> Path | None:
    """Return the script's file, in a worker too."""
    for name in ("teco_script", "__main__"):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None:
            return Path(file)
    return None


def file_of(function: Any) -> Path | None:
    """Return the file that defines a function, or the class of a callable object."""
    while True:
        inner = getattr(function, "func", None) if isinstance(function, functools.partial) else None
        inner = inner or getattr(function, "__wrapped__", None)
        if inner is None:
            break
        function = inner
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if isinstance(code, CodeType):
        return Path(code.co_filename)
    kind = function if isinstance(function, type) else type(function)
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return None if file is None else Path(file)


@functools.cache
def _installed_places() -> tuple[Path, ...]:
    keys = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple(Path(os.path.realpath(place)) for key in keys if (place := sysconfig.get_path(key)))


def is_installed(path: Path) -> bool:
    """Return whether a path belongs to Python or an installed package, which is identified by its version."""
    listed = any(path.is_relative_to(place) for place in _installed_places())
    return listed or not {"site-packages", "dist-packages"}.isdisjoint(path.parts)


def _is_zoo(path: Path) -> bool:
    return any(path.is_relative_to(ZOO / name) for name in ZOO_PACKAGES)


def _name(file: Path, folder: Path | None) -> str:
    for root in (ZOO, folder):
        if root is not None and file.is_relative_to(root):
            return file.relative_to(root).as_posix()
    return str(file)


def _used(file: Path, places: list[str]) -> Iterator[Path]:
    """Yield the files that a file names by relative paths, and those of the modules that it imports."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAMED.fullmatch(node.value):
            if not node.value.endswith(".onnx"):  # models are recorded by their flags
                yield Path(os.path.realpath(file.parent / node.value))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(alias.name.split("."), [str(file.parent), *places])
        elif isinstance(node, ast.ImportFrom):
            module = node.module.split(".") if node.module else []
            where = [str(file.parents[node.level - 1])] if node.level else [str(file.parent), *places]
            for alias in node.names:  # which may be modules themselves
                yield from _files([*module, alias.name], where)


def _files(parts: list[str], places: list[str]) -> Iterator[Path]:
    """Yield the existing files of a module and of its packages."""
    for place, part in enumerate(parts):
        try:
            spec = PathFinder.find_spec(part, places)
        except (ImportError, ValueError, OSError):
            return
        if spec is None:
            return
        if spec.origin is not None and spec.has_location:
            yield Path(os.path.realpath(spec.origin))
        loaded = getattr(sys.modules.get(".".join(parts[: place + 1])), "__path__", ())  # contrib extends packages
        places = [os.path.realpath(one) for one in dict.fromkeys([*(spec.submodule_search_locations or ()), *loaded])]
        if not places:
            return
