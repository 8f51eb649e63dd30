"""A new model: a folder that runs at once, and its case in ``model.yaml``; all of it or nothing."""

from __future__ import annotations

import keyword
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from string import Template as Text

from engine import ConfigError, TecoInferError
from model_config.cases.config import ROOT, read_cases
from tecoinfer_modelzoo import NAME, has_packages
from tecoinfer_modelzoo.text import did_you_mean, one_line, typed_reason
from tecoinfer_modelzoo.yaml_files import YamlError, read_yaml
from toolkit.zoo import PLACES, config_files
from utils.tasks import Task, Template
from utils.tasks.find import add_contrib, default_of, find_task, tasks

CASE = "case.yaml"
"""The template of the case; all others become files of the model's folder."""

LONGEST = 40
"""Characters of a name; lines of the templates with longer ones would be too long."""

_PATHS = {
    "core": "sys.path.insert(0, str(Path(__file__).resolve().parents[3]))",
    "contrib": """\
sys.path.insert(0, str(Path(__file__).resolve().parents[4]))  # the core
sys.path.append(str(Path(__file__).resolve().parents[3]))  # contrib/, behind it""",
}
"""How a script of a clone finds the zoo's packages from where it lies."""

_INSTALLED = """\
sys.path.append(str(Path(__file__).resolve().parents[3]))  # this project's modules, behind the zoo's
import tecoinfer_modelzoo

tecoinfer_modelzoo.check()  # no package of the project has the name of one of the zoo's"""
"""The same in a project of one's own, beside an installed zoo."""


@dataclass(frozen=True, slots=True)
class Created:
    """What :func:`create` made: the folder and the file with the case (from the root), how many files, whose task."""

    folder: str
    config: str
    files: int
    task: str


def create(domain: str, model: str, *, task: str = "", contrib: bool = False, root: Path = ROOT) -> Created:
    """Write a model's folder from the template of a task, and append its case.

    The placeholder model and the sample data are the template's, and its files say what they are.

    Args:
        domain, model: names of the folders.
        task: name of the task; empty for the domain's.
        contrib: below ``contrib/`` instead of in the core.
        root: the repository, or a project's folder; tasks of its ``contrib/`` are found too.

    Raises:
        ConfigError: a name cannot be used or is taken, there is no such task or it has no usable template, or the file
            with the cases cannot be appended to; then nothing was changed.
    """
    place = "contrib" if contrib else "core"
    _check_names(domain, model, root)
    _check_case(model, root)
    found = _task(domain, task, root)
    template = _template(found, contrib, root)
    folder, config = f"{PLACES[place].folder}/{domain}/{model}", PLACES[place].config
    in_clone = has_packages(root)
    words = {"model": model, "title": model.replace("_", " ").title(), "folder": folder}
    words["paths"] = _PATHS[place] if in_clone else _INSTALLED
    words["install"] = "python -m pip install ." if in_clone else f"python -m pip install {NAME}"
    try:
        files = _write(root / folder, root / config, template, words | {"task": found.name}, root)
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}; nothing was changed") from error
    return Created(folder, config, files, found.name)


def _task(domain: str, name: str, root: Path) -> type[Task]:
    """Return the task of this name, or else the one that is named as the domain, or that the domain stands for."""
    add_contrib(root)
    if name:
        return find_task(name)
    known = tasks()
    found = known.get(domain) or default_of(domain, known)
    if found is not None:
        return found
    own = [task for task in known.values() if task.domain == domain]
    write = "" if own else ", or write one (docs/adding_a_domain.md)"
    raise ConfigError(f"{_no_task(domain, own, known)}; choose one by --task NAME{write}")


def _no_task(domain: str, own: Sequence[type[Task]], known: Mapping[str, type[Task]]) -> str:
    """Say why a domain alone does not say which task is meant; ``own`` are those of the domain."""
    if own:
        return f"domain {domain!r} has several tasks: {', '.join(sorted(task.name for task in own))}"
    near = did_you_mean(domain, [*known, *(task.domain for task in known.values())])
    listed = ", ".join(f"{task.name} ({task.domain})" for _, task in sorted(known.items()))
    return f"no task is for domain {domain!r};{near} tasks and their domains: {listed}"


def _template(task: type[Task], contrib: bool, root: Path) -> Template:
    """Return a task's template, which holds at least a case."""
    template = task.template
    if template is None:
        have = ", ".join(sorted(one.name for one in tasks().values() if one.template is not None))
        raise ConfigError(
            f"task {task.name!r} has no template; copy a model of it, or give its Task a template=; "
            f"these have one: {have}"
        )
    if not (template.folder / f"{CASE}.tmpl").is_file():
        raise ConfigError(f"template {template.folder} of task {task.name!r} has no {CASE}.tmpl; add it")
    if not contrib and template.folder.resolve().is_relative_to((root / "contrib").resolve()):
        raise ConfigError(f"task {task.name!r} is in contrib/utils, which core models do not see; add --contrib")
    return template


def _write(folder: Path, config: Path, template: Template, words: dict[str, str], root: Path) -> int:
    """Write folder and case, or take back what was written; return the number of files."""
    with ExitStack() as undo:
        _make_parents(folder.parent, root, undo)
        partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
        undo.callback(shutil.rmtree, partial, ignore_errors=True)
        words, files = _fill(partial, template, words)
        partial.rename(folder)
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        _append(config, _rendered(template.folder / f"{CASE}.tmpl", words), words["model"], root, undo)
        undo.pop_all()
    return files


def _check_names(domain: str, model: str, root: Path) -> None:
    for what, name in (("domain", domain), ("model", model)):
        if not _usable(name):
            near = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").lower()
            hint = f"; write {near!r}" if _usable(near) else ""
            raise ConfigError(
                f"{what} {name!r} must start with a lower-case letter, hold only lower-case letters, digits and "
                f"underscores, at most {LONGEST}, and not be a word of Python{hint}"
            )
    for place in PLACES.values():
        if (root / place.folder / domain / model).exists():
            raise ConfigError(
                f"{place.folder}/{domain}/{model} exists already; choose another name, or remove it first"
            )


def _usable(name: str) -> bool:
    return bool(re.fullmatch(rf"[a-z][a-z0-9_]{{0,{LONGEST - 1}}}", name)) and not keyword.iskeyword(name)


def _check_case(name: str, root: Path) -> None:
    """Raise where the case name is taken: a case must have its name alone over all files."""
    for case in read_cases(config_files(root), root)[0]:
        if case.name == name:
            where = f"{case.source}:{case.line}"
            raise ConfigError(f"case name {name!r} is taken by {case.run_dir} in {where}; choose another model name")


def _make_parents(folder: Path, root: Path, undo: ExitStack) -> None:
    missing = [path for path in (folder, *folder.parents) if path.is_relative_to(root) and not path.exists()]
    for path in reversed(missing):
        path.mkdir()
        undo.callback(path.rmdir)


def _fill(folder: Path, template: Template, words: dict[str, str]) -> tuple[dict[str, str], int]:
    """Write the files of a model; return all words of its templates, and the number of files."""
    folder.mkdir()
    made = _sample_data(folder, template)
    taken = sorted(words.keys() & made.keys())
    if taken:
        raise ConfigError(f"the fill of template {template.folder} gives the word {taken[0]!r} anew; call it otherwise")
    words = {**made, **words}
    for file in sorted(template.folder.glob("*.tmpl")):
        name = file.name.removesuffix(".tmpl")
        if name != CASE:
            (folder / name).write_text(_rendered(file, words), encoding="utf-8")
    return words, sum(path.is_file() for path in folder.rglob("*"))


def _sample_data(folder: Path, template: Template) -> Mapping[str, str]:
    try:
        made: object = template.fill(folder)
    except (OSError, TecoInferError):
        raise
    except Exception as error:
        reason = typed_reason(error)
        raise ConfigError(
            f"the sample data of template {template.folder} cannot be made: {reason}; correct its fill"
        ) from error
    if not isinstance(made, Mapping):
        raise ConfigError(
            f"the fill of template {template.folder} returned no words (but {made!r}); let it return a dict, which may "
            "be empty"
        )
    return made


def _rendered(file: Path, words: Mapping[str, str]) -> str:
    try:
        return Text(file.read_text(encoding="utf-8")).substitute(words)
    except KeyError as error:
        known = ", ".join(sorted(words))
        raise ConfigError(
            f"template {file} asks for the word {error}, which its fill does not give; words: {known}"
        ) from error
    except ValueError as error:
        raise ConfigError(f"template {file}: {error}; a dollar sign by itself is written $$") from error


def _append(config: Path, case: str, name: str, root: Path, undo: ExitStack) -> None:
    """Append a case to the end of a file of cases, whose text stays as it is; read it back before it counts.

    Raises:
        ConfigError: with the case behind it, the file cannot be read.
    """
    try:
        before = config.read_bytes().decode("utf-8") if config.is_file() else ""
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{config}: byte {error.start} is not UTF-8 text; save the file as UTF-8, then add the case"
        ) from error
    gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
    config.parent.mkdir(parents=True, exist_ok=True)
    partial = config.with_name(f".{config.name}.{os.getpid()}.partial")
    undo.callback(partial.unlink, missing_ok=True)
    partial.write_bytes(f"{before}{gap}{case}".encode())
    others = [file for file in config_files(root) if file != config]
    wrong = _troubles([partial, *others], name, root) or _not_a_list(partial, name)
    if wrong:
        raise ConfigError(f"a case cannot be appended to {config}: {wrong[0].replace(partial.name, config.name)}")
    partial.replace(config)


def _troubles(files: Sequence[Path], name: str, root: Path) -> list[str]:
    """Return what the reader of cases finds wrong with the case of this name, or with a file as a whole."""
    return [str(problem.finding) for problem in read_cases(files, root)[1] if problem.case in ("", name)]


def _not_a_list(file: Path, name: str) -> list[str]:
    """Say why a file as a whole is not a list of cases that ends with this one; the reader of cases takes bad files."""
    try:
        cases = read_yaml(file)
    except YamlError as error:
        return [f"it would not be YAML any more ({one_line(error)}); correct the file first"]
    ends = (
        isinstance(cases, list) and bool(cases) and isinstance(cases[-1], dict) and cases[-1].get("case_name") == name
    )
    return [] if ends else ["it is not a list of cases; start each case with '- case_name:' at the start of a line"]
