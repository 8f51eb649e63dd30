"""Zoos from which models are taken, besides the clone or project: a path, a URL, or installed packages of models.

A zoo is a folder with ``example/DOMAIN/MODEL`` and ``model_config/model.yaml``, such as a clone of this repository.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

from engine import ConfigError
from tecoinfer_modelzoo import clone, expanded
from tecoinfer_modelzoo.distribution import origin
from tecoinfer_modelzoo.text import typed_reason

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

VARIABLE = "TECO_ZOO"
"""Environment variable with the path or URL of a zoo, for all commands; ``--zoo`` precedes it."""

GROUP = "tecoinfer.zoos"
"""Entry points of installed packages of models; the value is the package whose folder is the zoo."""

COMPANION = "tecoinfer-modelzoo-models"
"""Distribution of the zoo's own models that are small and may be redistributed, built from ``packages/models``."""

FOLDER = "example"
"""The folder that a zoo must have."""


class Sources(NamedTuple):
    """Folders of zoos, one line per package that cannot be used, and the command that installs the models."""

    roots: tuple[Path, ...]
    problems: tuple[str, ...] = ()
    install: str = ""


def find_sources(zoo: str = "") -> Sources:
    """Return the zoo of ``zoo`` or :data:`VARIABLE`, else those of installed packages; a clone uses no packages.

    Raise ConfigError or FetchError if a zoo that was named cannot be read.
    """
    given = zoo or os.environ.get(VARIABLE, "")
    if given:
        return Sources((zoo_folder(given, "--zoo" if zoo else VARIABLE),))
    if clone() is not None:
        return Sources(())
    from importlib.metadata import entry_points

    roots, problems = [], []
    for entry in sorted(entry_points(group=GROUP), key=lambda one: (one.name, one.value)):
        try:
            roots.append(_of_package(entry))
        except ConfigError as error:
            problems.append(str(error))
    return Sources(tuple(roots), tuple(problems), install_models())


def zoo_folder(given: str, flag: str) -> Path:
    """Return the folder of a zoo, downloaded and unpacked if necessary.

    Args:
        given: path of a folder, an archive or a git repository, or a URL (``file``, ``http``, ``https``) of one.
        flag: where it was given, for messages.

    Raises:
        ConfigError: the path does not exist, or is not a zoo. FetchError: the zoo cannot be downloaded or unpacked.
    """
    path = _local(given)
    if path is not None and not os.path.lexists(path):
        raise ConfigError(f"{flag} {given} does not exist; pass a clone of the zoo, or an archive or URL of one")
    if path is not None and (path / FOLDER).is_dir():
        return path.resolve()
    from toolkit.zoo_archives import unpacked_zoo

    return unpacked_zoo(given, path, flag)


def _local(given: str) -> Path | None:
    """Return the path that is named, ``None`` for a URL of another machine."""
    if given.startswith("file:"):
        return Path(url2pathname(urlsplit(given).path))
    return None if "://" in given else expanded(given).absolute()


def _of_package(entry: EntryPoint) -> Path:
    """Return the folder of an installed package of models; raise ConfigError if there is none."""
    package = entry.dist.name if entry.dist is not None else entry.name
    try:
        spec = find_spec(entry.module)
    except (ImportError, ValueError, AttributeError) as error:
        raise ConfigError(f"package {package}: {entry.value} cannot be found ({typed_reason(error)})") from error
    places = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    found = next((place for place in places if (place / FOLDER).is_dir()), None)
    if found is None:
        raise ConfigError(f"package {package}: {entry.value} has no folder {FOLDER}/; install it again, or remove it")
    return found


def install_models() -> str:
    """Return the pip command that installs :data:`COMPANION`: from where this installation is from, if it is there."""
    url, _ = origin()
    if url.startswith("git+"):
        return f'pip install "{COMPANION} @ {url}#subdirectory=packages/models"'
    path = _local(url) if url.startswith("file:") else None
    if path is not None and (path / "packages" / "models" / "pyproject.toml").is_file():
        return f'pip install "{path / "packages" / "models"}"'
    beside = sorted(path.parent.glob(f"{COMPANION.replace('-', '_')}-*.whl")) if path is not None else []
    return f'pip install "{beside[-1]}"' if beside else f"pip install {COMPANION}"
