"""The running copy of the zoo, a clone or an installed wheel: version, paths and installation commands."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

NAME = "tecoinfer-modelzoo"
"""Distribution name on PyPI."""

HOME = Path(__file__).resolve().parents[1]
"""Folder that contains the zoo's packages: the root of a clone, or ``site-packages``."""


def clone() -> Path | None:
    """Return the root of the running clone, installed in editable mode or not; ``None`` for an installed wheel."""
    return HOME if (HOME / "constraints.txt").is_file() and (HOME / "pyproject.toml").is_file() else None


COPY_OF = ".copy_of"
"""Marker file at the root of a copied checkout; it contains the path of the original checkout."""


def original(path: Path) -> Path:
    """Return the path in the original checkout for a path in a temporary copy of ``teco check``, else itself."""
    for folder in (path, *path.parents):
        if (note := folder / COPY_OF).is_file():
            return Path(note.read_text(encoding="utf-8", errors="surrogateescape")) / path.relative_to(folder)
    return path


def has_packages(root: Path) -> bool:
    """Return whether a folder contains the zoo's packages: true for a clone, false for a user's project."""
    return (root / __package__).is_dir()


def python_path(root: Path) -> str:
    """Return the ``PYTHONPATH`` of a script below a root; a clone comes first, a project is not added."""
    own = [str(root)] if has_packages(root) else []
    return os.pathsep.join([*own, *filter(None, [os.environ.get("PYTHONPATH")])])


@cache
def version() -> str | None:
    """Return the version of the clone, else of the installed package; ``None`` if neither exists."""
    root = clone()
    if root is not None:
        found = re.search(r'^version = "(.+)"$', (root / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
        return found[1] if found else None
    from importlib.metadata import PackageNotFoundError, version as installed

    try:
        return installed(NAME)
    except PackageNotFoundError:
        return None


def install_command(*extras: str) -> str:
    """Return the pip command that installs ``extras`` of ``pyproject.toml``, valid in the current folder."""
    wanted, root = f"[{','.join(extras)}]" if extras else "", clone()
    if root is None:
        return f'pip install "{NAME}{wanted}"'
    root = original(root)
    if root == Path(os.path.abspath(os.curdir)):
        return f'pip install -c constraints.txt -e ".{wanted}"'
    return f'pip install -c "{root / "constraints.txt"}" -e "{root}{wanted}"'
