"""The running copy of the zoo, a clone or an installed wheel: version, paths, installation commands, documentation."""

from __future__ import annotations

import json
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
    root = clone()
    if root is None:
        return f'pip install "{requirement(*extras)}"'
    wanted, root = _in_brackets(extras), original(root)
    if root == Path(os.path.abspath(os.curdir)):
        return f'pip install -c constraints.txt -e ".{wanted}"'
    return f'pip install -c "{root / "constraints.txt"}" -e "{root}{wanted}"'


def requirement(*extras: str) -> str:
    """Return the installed wheel with ``extras`` as pip takes it: ``tecoinfer-modelzoo[check] @ file:///zoo.whl``.

    What follows the ``@`` is where the wheel was installed from; it is left out if that is unknown, as for a wheel of
    an index, or does not exist any more.
    """
    url, subdirectory = origin() if clone() is None else ("", "")
    place = f" @ {url}{'#subdirectory=' if subdirectory else ''}{subdirectory}" if url else ""
    return f"{NAME}{_in_brackets(extras)}{place}"


def readme_install() -> str:
    """Return the command that installs the zoo, for the README of a model in a user's project."""
    wanted = requirement()
    return f'python -m pip install "{wanted}"' if " " in wanted else f"python -m pip install {wanted}"


@cache
def origin() -> tuple[str, str]:
    """Return the URL that the distribution was installed from, and the folder in it; both may be empty.

    Read from ``direct_url.json`` (PEP 610), which installers write for a file, a folder or a repository, and not for an
    index. A path that no longer exists is left out.
    """
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname  # with OpenSSL and http: a tenth of a short script's start

    try:
        written = json.loads(distribution(NAME).read_text("direct_url.json") or "{}")
        url, vcs = str(written.get("url", "")), written.get("vcs_info") or {}
        subdirectory = str(written.get("subdirectory") or "")
        if vcs:
            url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
        elif url.startswith("file:") and not os.path.exists(url2pathname(urlsplit(url).path)):
            url = ""
    except (PackageNotFoundError, OSError, ValueError, LookupError, AttributeError, TypeError):
        return "", ""
    return (url, subdirectory) if url else ("", "")


def _in_brackets(extras: tuple[str, ...]) -> str:
    return f"[{','.join(extras)}]" if extras else ""


DOCS = HOME / "tecoinfer_modelzoo" / "docs"
"""Pages of the documentation in an installed wheel; a clone has them in ``docs/``."""

_PAGE = re.compile(r"(?<![\w./-])docs/((?:[\w-]+/)*[\w.-]+\.md)\b")


def with_page_paths(text: str) -> str:
    """Return a text in which each page of the documentation is the path of an existing file.

    A clone has the pages under these names, and its texts are unchanged. In an installed wheel the folder ``docs`` is
    :data:`DOCS`; a page that the wheel does not have stays as it is.
    """
    if "docs/" not in text or clone() is not None:
        return text
    return _PAGE.sub(lambda page: str(DOCS / page[1]) if (DOCS / page[1]).is_file() else page[0], text)
