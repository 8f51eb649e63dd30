"""Which copy of the zoo runs, a clone or an installed wheel: its version, and what to type for more of it."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

NAME = "tecoinfer-modelzoo"
"""What pip calls the zoo."""

HOME = Path(__file__).resolve().parents[1]
"""The folder in which the zoo's packages lie side by side: a clone, or ``site-packages``."""


def clone() -> Path | None:
    """Return the root of the clone that runs, installed from there or not; ``None`` in an installed wheel."""
    return HOME if (HOME / "constraints.txt").is_file() and (HOME / "pyproject.toml").is_file() else None


COPY_OF = ".copy_of"
"""A file at the root of a copy of a checkout that holds the path of the checkout."""


def original(path: Path) -> Path:
    """Return the file or folder of the checkout that a path in a copy of it stands for; else the path itself.

    Args:
        path: absolute. ``teco check`` runs models in copies (:data:`COPY_OF`), which are removed afterwards, so an
            install command must not name a file in one.
    """
    for folder in (path, *path.parents):
        if (note := folder / COPY_OF).is_file():
            return Path(note.read_text(encoding="utf-8", errors="surrogateescape")) / path.relative_to(folder)
    return path


def has_packages(root: Path) -> bool:
    """Say whether a folder holds the zoo's packages, as a clone does and a project beside an installed zoo does not."""
    return (root / __package__).is_dir()


def python_path(root: Path) -> str:
    """Return the ``PYTHONPATH`` of a script below a root: a clone comes first, a project hides nothing installed.

    Args:
        root: of a clone, for whose ``contrib/`` there is no other way to its packages, or of a project.
    """
    own = [str(root)] if has_packages(root) else []
    return os.pathsep.join([*own, *filter(None, [os.environ.get("PYTHONPATH")])])


@cache
def version() -> str | None:
    """Return the version: what a clone says of itself, else that of the installed package; ``None`` without either."""
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
    """Return the command that installs optional parts of the zoo, and works in the folder where it is read.

    Args:
        extras: names of ``[project.optional-dependencies]`` in ``pyproject.toml``.
    """
    wanted, root = f"[{','.join(extras)}]" if extras else "", clone()
    if root is None:
        return f'pip install "{NAME}{wanted}"'
    root = original(root)
    if root == Path(os.path.abspath(os.curdir)):
        return f'pip install -c constraints.txt -e ".{wanted}"'
    return f'pip install -c "{root / "constraints.txt"}" -e "{root}{wanted}"'
