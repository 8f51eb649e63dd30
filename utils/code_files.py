"""The Python files a run is made of, besides what is installed: a repaired script is another run.

Scripts and tasks of people are found from the functions that a task is made of and from the script itself: their
files, and all files that these import, in functions too, or name beside themselves. What belongs to the zoo counts as a
whole, folder by folder, as which of its modules a run comes to import depends on what it finds in the cache.
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

from engine import component_version

ZOO = Path(__file__).resolve().parents[1]
"""Folder of the zoo's packages."""

ZOO_PACKAGES = ("engine", "tecoinfer_modelzoo", "utils")
"""The zoo's packages that a run imports."""

LEFT_OUT = ("utils/export", "utils/pages")
"""Folders of them that no run imports."""

VERSIONS = ("numpy", "Pillow", "onnx", "onnxruntime")
"""Components whose versions belong to a run."""

MOST_FILES = 1000
"""Files that are followed at most."""

_NAMED = re.compile(r"[\w.-]+(/[\w.-]+)*\.\w+")
"""A text in a script that may name a file beside it."""


def zoo_code() -> dict[str, str]:
    """Return hashes of the zoo's own code by folder, and the versions of what it is run with."""
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
        with open(path, "rb") as file:  # one by one, as there are hundreds
            return sha256(file.read()).hexdigest()
    except OSError:
        return "unreadable"


def code_files(functions: Iterable[Callable[..., Any]], files: Iterable[Path] = ()) -> dict[str, Path]:
    """Return the files that functions and the running script are in and import, by name; not those of the zoo.

    Args:
        functions: what runs. files: Python files that run, too.

    Returns:
        Names are relative to the zoo where a file lies there, else to the script's folder where it lies there.
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
    """Return the file that was started; in a worker of a run the script that it works for."""
    for name in ("teco_script", "__main__"):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None:
            return Path(file)
    return None


def file_of(function: Any) -> Path | None:
    """Return the file that a function, or the class of an object that is called, was written in."""
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
    """Say whether a path belongs to Python or an installed package: its version says which it is."""
    known = any(path.is_relative_to(place) for place in _installed_places())
    return known or not {"site-packages", "dist-packages"}.isdisjoint(path.parts)


def _is_zoo(path: Path) -> bool:
    return any(path.is_relative_to(ZOO / name) for name in ZOO_PACKAGES)


def _name(file: Path, folder: Path | None) -> str:
    for root in (ZOO, folder):
        if root is not None and file.is_relative_to(root):
            return file.relative_to(root).as_posix()
    return str(file)


def _used(file: Path, places: list[str]) -> Iterator[Path]:
    """Yield the files that a file names beside itself, and those of the modules that it imports."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAMED.fullmatch(node.value):
            if not node.value.endswith(".onnx"):  # models are known, and which of them a run takes
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
    """Yield the files of a module and of the packages it is in, as far as there are any."""
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
