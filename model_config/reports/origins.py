"""Size and licence of the models on the page of the zoo, from their cases and the tables of data and weights."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from engine import ConfigError
from model_config.cases.config import CONFIGS, FULL, Case, read_cases
from model_config.reports.described import unlinked
from model_config.reports.scored import ScoredModel
from tecoinfer_modelzoo.files import text_of
from utils.fetch import Package, kept_path, packages
from utils.fetch.table import rows_of

TABLES = ("docs/data.yaml", "contrib/data.yaml")
"""Tables of committed files, with their licences."""

_FETCHED = re.compile(r"\bfetch:([a-z0-9_]+)|\bfetched\(\"([a-z0-9_]+)\"")
"""Names of packages in a case or a script."""


class Terms(NamedTuple):
    """A licence without links: ``brief``, with the permitted use where none is stated; ``whole``, always with it."""

    brief: str
    whole: str


@dataclass(frozen=True, slots=True)
class Origin:
    """What the page says of a model's files.

    Attributes:
        size: bytes of the float32 model files; ``None`` if they are not here.
        terms: licences of its weights, or of the packages they or their data come from.
    """

    size: int | None
    terms: tuple[Terms, ...]

    @property
    def licences(self) -> str:
        """The licences in brief, each once."""
        return "; ".join(dict.fromkeys(one.brief for one in self.terms))


def origins(root: Path, models: Sequence[ScoredModel]) -> dict[str, Origin]:
    """Return size and licences of models, by their path.

    Raises:
        ConfigError: a table of licences cannot be read.
    """
    files = [root / name for name in (*CONFIGS, FULL) if (root / name).is_file()]
    cases: dict[str, list[Case]] = {}
    for case in read_cases(files, root)[0]:
        cases.setdefault(case.run_dir, []).append(case)
    rows, known = _rows(root), packages()
    return {model.path: _origin(root, model.path, cases.get(model.path, []), rows, known) for model in models}


_Rows = Sequence[tuple[str, Terms]]


def _rows(root: Path) -> _Rows:
    """Return the patterns of committed files with their terms."""
    mistakes: list[str] = []
    found = [row for name in TABLES if os.path.lexists(root / name) for _, row in rows_of(root / name, mistakes)]
    if mistakes:
        raise ConfigError(*mistakes)
    patterns = ((row.get("files"), _terms(str(row.get("licence")), str(row.get("use", "")))) for row in found)
    return [(str(one), terms) for files, terms in patterns if isinstance(files, list) for one in files]


def _terms(licence: str, use: str) -> Terms:
    stated = licence if "none" not in licence.split() else f"{licence}: {use.partition(';')[0]}"
    return Terms(unlinked(stated), unlinked(f"{licence} ({use})" if use else licence))


def _origin(root: Path, path: str, cases: Sequence[Case], rows: _Rows, known: Mapping[str, Package]) -> Origin:
    names = list(dict.fromkeys(_models(cases)))
    files = [_float32(kept_path(root / path, name, known)) for name in names]
    size = sum(file.stat().st_size for file in files) if files and all(file.is_file() for file in files) else None
    # a fetched path is absolute; it matches no pattern of committed files
    committed = [terms for file in files for pattern, terms in rows if fnmatchcase(_inside(root, file), pattern)]
    read = [known[name] for name in _packages(root / path, cases) if name in known]
    terms = committed or [_terms(package.licence, package.use) for package in read]
    return Origin(size, tuple(dict.fromkeys(terms)))


def _models(cases: Sequence[Case]) -> Iterator[str]:
    """Yield the model files of the valid steps of the first case that has one."""
    steps = (step for case in cases for step in case.steps if step.name == "valid")
    step = next(steps, None)
    yield from step.ckpts.values() if step is not None else ()


def _float32(file: Path) -> Path:
    """Return the float32 file beside a float16 one, if it is there."""
    twin = file.with_name(file.name.replace("_float16", ""))
    return twin if twin.is_file() else file


def _inside(root: Path, file: Path) -> str:
    return file.relative_to(root).as_posix() if file.is_relative_to(root) else file.as_posix()


def _packages(folder: Path, cases: Sequence[Case]) -> list[str]:
    """Return the names of the packages that the cases and scripts of a model read."""
    texts = [str(value) for case in cases for step in case.steps for value in step.params.values()]
    for file in sorted(folder.glob("*.py")):
        try:
            texts.append(text_of(file, "replace"))
        except OSError:
            continue
    found = (one or other for text in texts for one, other in _FETCHED.findall(text))
    return list(dict.fromkeys(found))
