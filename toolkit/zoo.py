"""Models: folders under ``example/`` and ``contrib/example/`` of the clone or project, and those of other zoos.

The root is the clone, or without one the current folder: the user's *project*. Models that are not in it come from
other zoos (:mod:`toolkit.zoo_sources`): they can be run and evaluated where they are, and copied into the project.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from engine import ConfigError
from model_config.cases.config import ROOT, STEPS, Case, Command, read_cases
from model_config.markdown_text import without_comments
from tecoinfer_modelzoo import has_packages
from tecoinfer_modelzoo.text import did_you_mean, one_line
from toolkit.zoo_sources import Sources, find_sources


class ZooPart(NamedTuple):
    """Part of the repository with models."""

    folder: str
    config: str


PLACES = {
    "core": ZooPart("example", "model_config/model.yaml"),
    "contrib": ZooPart("contrib/example", "contrib/model_config/model.yaml"),
}
"""Folder of the models and file of their cases, relative to the repository's root."""

PROJECT = "project"
"""Place of the models of a user's project, which has the folders of the core."""

ZOO = "zoo"
"""Place of the models of other zoos, from which models are copied into a project."""

SCRIPTS = {
    "export": "export_onnx.py",
    "valid": "example_valid.py",
    "single": "example_single_batch.py",
    "multi": "example_multi_batch.py",
}
"""Default script of each step."""

DOMAINS = (
    "classification",
    "detection",
    "face",
    "gnn",
    "nlp",
    "recommendation",
    "reinforcement",
    "segmentation",
    "speech",
)
"""Domains of the historical zoo; :func:`domains` adds those of the tasks."""


def domains(root: Path = ROOT) -> list[str]:
    """Return the sorted domains of the historical zoo and of all tasks, including those in contrib.

    Raise ConfigError if a task cannot be loaded.
    """
    from utils.tasks.find import add_contrib, tasks

    add_contrib(root)
    return sorted({*DOMAINS, *(task.domain for task in tasks().values())})


@dataclass(frozen=True)
class Model:
    """Folder of a model."""

    name: str  # of the folder
    domain: str  # name of the parent folder
    place: str  # a key of :data:`PLACES`, :data:`PROJECT` or :data:`ZOO`
    root: Path  # the clone, project or other zoo
    folder: Path  # of the model
    cases: tuple[Case, ...]  # cases whose ``run_dir`` is the folder

    @property
    def words(self) -> tuple[str, str, str]:
        """Names on the command line: name, ``domain/name``, and path."""
        return self.name, f"{self.domain}/{self.name}", self.path

    @property
    def path(self) -> str:
        """The folder relative to the root, with forward slashes."""
        return self.folder.relative_to(self.root).as_posix()

    @property
    def shown_path(self) -> str:
        """:attr:`path`, or the whole path of a model of another zoo."""
        return str(self.folder) if self.place == ZOO else self.path

    @property
    def config(self) -> str:
        """File of the cases, relative to the root."""
        return PLACES[self.place if self.place in PLACES else "core"].config

    @cached_property
    def scripts(self) -> dict[str, str]:
        """Available steps -> script, relative to the folder."""
        named = {step.name: step.run_file for case in self.cases for step in case.steps}
        there = {step: file for step, file in SCRIPTS.items() if (self.folder / file).is_file()}
        return {step: (there | named)[step] for step in STEPS if step in there | named}

    @property
    def targets(self) -> list[str]:
        """Sorted targets of the cases."""
        return sorted({str(step.params["target"]) for _, step in self.steps() if "target" in step.params})

    def steps(self) -> Iterator[tuple[Case, Command]]:
        """Yield every step of every case."""
        for case in self.cases:
            for step in case.steps:
                yield case, step

    def flags(self, step: str) -> list[str]:
        """Return the sorted flags of a step's script, read from its source without running it."""
        from model_config.structure.flags import known_flags
        from model_config.structure.source import Folder

        folder = Folder(Case(self.name, self.path, (), Path()), self.root)
        source = folder.find(self.scripts[step]) if step in self.scripts else None
        own = known_flags(source, folder) if source is not None else None
        used = {f"--{key}" for _, known in self.steps() if known.name == step for key in known.params}
        return sorted(used | (own or frozenset()))


class Zoo(NamedTuple):
    """The models, sorted by path, and one line per problem in the files of cases."""

    models: tuple[Model, ...]
    problems: tuple[str, ...]


def load_zoo(root: Path = ROOT, zoo: str = "") -> Zoo:
    """Find the models below a root, and then those of other zoos; an invalid case is a problem, not an error.

    Args:
        root: the clone or project. Its models hide those of the same path in other zoos.
        zoo: path or URL of another zoo; empty: those of :func:`toolkit.zoo_sources.find_sources`.

    Raise ConfigError if no model was found, or the zoo cannot be read.
    """
    own, others = models_below(root), find_sources(zoo)
    models, problems = list(own.models), [*own.problems, *others.problems]
    for folder in others.roots:
        found = models_below(folder, ZOO)
        known = {model.path for model in models}
        models += [model for model in found.models if model.path not in known]
        problems += found.problems
    if not models:
        raise ConfigError(_nothing(root, others))
    return Zoo(tuple(models), tuple(problems))


def models_below(root: Path, place: str = "") -> Zoo:
    """Return the models below one root, maybe none; ``place``: of all of them, :data:`ZOO` or that of their folder."""
    cases, problems = read_cases(config_files(root), root)
    where_of = {own: place or _place(own, root) for own in PLACES}
    models = [
        Model(folder.name, folder.parent.name, where_of[own], root, folder, tuple(_of(folder, cases, root)))
        for own, (where, _) in PLACES.items()
        if place != ZOO or own == "core"  # the code of contributed models is in their contrib/utils
        for folder in sorted((root / where).glob("*/*"))
        if _is_model(folder, cases, root)
    ]
    return Zoo(tuple(models), tuple(str(problem.finding) for problem in problems))


def _place(folder: str, root: Path) -> str:
    """Return the place of the models in a folder of :data:`PLACES`: a user's project is not the core."""
    return PROJECT if folder == "core" and not has_packages(root) else folder


def _nothing(root: Path, others: Sources) -> str:
    """Return the error if there are no models."""
    if others.roots or not others.install:
        return f"no models under {root}; create one with teco new DOMAIN MODEL, or change the folder"
    return (
        f"no models under {root}, and no zoo to take some from; install the models: {others.install}; or name a clone "
        "or an archive of the zoo: --zoo PATH or TECO_ZOO; or create one: teco new DOMAIN MODEL"
    )


def find_model(name: str, models: Sequence[Model]) -> tuple[Model, Case | None]:
    """Find a model by its name, ``domain/name``, path or case name; for a case name, return the case too.

    Raise ConfigError if no model, or more than one, has the name.
    """
    for root in dict.fromkeys(model.root for model in models):  # the project's models precede those of other zoos
        found = _find_below(name, [model for model in models if model.root == root])
        if found is not None:
            return found
    near = did_you_mean(name, [word for model in models for word in model.words])
    raise ConfigError(f"unknown model {name!r};{near} 'teco list' lists the models")


def _find_below(name: str, models: Sequence[Model]) -> tuple[Model, Case | None] | None:
    """Return the model, all being below the same root, and the case; raise ConfigError if the name is ambiguous."""
    named = [model for model in models if name.rstrip("/") in model.words]
    if len(named) > 1:
        paths = ", ".join(model.path for model in named)
        raise ConfigError(f"model name {name!r} is ambiguous; use one of the paths: {paths}")
    return next(chain(((model, None) for model in named), _of_case(name, models), _at_path(name, models)), None)


def _of_case(name: str, models: Iterable[Model]) -> Iterator[tuple[Model, Case]]:
    """Yield the model and the case with the name."""
    return ((model, case) for model in models for case in model.cases if case.name == name)


def _at_path(name: str, models: Sequence[Model]) -> Iterator[tuple[Model, None]]:
    """Yield the model whose folder contains a path, relative to the current folder or the repository's root."""
    places = dict.fromkeys(path.resolve() for path in (Path(name), models[0].root / name))
    yield from ((model, None) for model in models for path in places if path.is_relative_to(model.folder.resolve()))


def find_case(model: Model, name: str) -> Case:
    """Return a model's case by name; raise ConfigError if the model does not have the case."""
    names = [case.name for case in model.cases]
    if name not in names:
        listed = ", ".join(names) or f"none; add one to {model.config}"
        raise ConfigError(f"--case {name}: {model.path} has no such case;{did_you_mean(name, names)} cases: {listed}")
    return model.cases[names.index(name)]


def summary(readme: Path) -> str:
    """Return the first paragraph of a README's first section as one line, or ""."""
    after = _text(readme).partition("\n## 1.")[2].partition("\n")[2]
    paragraphs = [one_line(part) for part in without_comments(after).split("\n\n")]
    return next((part for part in paragraphs if part and not part.startswith("#")), "")


def config_files(root: Path) -> list[Path]:
    """Return the existing files of cases."""
    return [root / place.config for place in PLACES.values() if (root / place.config).is_file()]


def _of(folder: Path, cases: Iterable[Case], root: Path) -> list[Case]:
    where = folder.relative_to(root).as_posix()
    return [case for case in cases if case.run_dir == where]


def _is_model(folder: Path, cases: Iterable[Case], root: Path) -> bool:
    if not folder.is_dir() or folder.name.startswith("."):
        return False
    return any((folder / file).is_file() for file in SCRIPTS.values()) or bool(_of(folder, cases, root))


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
