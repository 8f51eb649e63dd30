"""Creation of a model: a folder that runs, and its case in ``model.yaml``; nothing is changed on an error."""

from __future__ import annotations

import argparse
import json
import keyword
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from string import Template as Text
from typing import Any, NamedTuple

from engine import ConfigError, TecoInferError
from model_config.cases.config import ROOT, read_cases
from tecoinfer_modelzoo import has_packages
from tecoinfer_modelzoo.distribution import readme_install
from tecoinfer_modelzoo.text import did_you_mean, one_line, typed_reason
from tecoinfer_modelzoo.yaml_files import YamlError, read_yaml
from toolkit.zoo import PLACES, config_files
from utils.pipeline.flags.options import COMMON
from utils.tasks import SCRIPTS, Flag, Task, Template
from utils.tasks.find import add_contrib, default_of, find_task, tasks

CASE = "case.yaml"  # template of the case; all other templates become files of the model's folder
LONGEST = 40  # largest number of characters of a name, which limits the length of lines in the templates

SET = ("batch_size",)
"""Flags that the templates set."""

PATHS = {
    "core": "sys.path.insert(0, str(Path(__file__).resolve().parents[3]))",
    "contrib": """\
sys.path.insert(0, str(Path(__file__).resolve().parents[4]))  # the core
sys.path.append(str(Path(__file__).resolve().parents[3]))  # contrib/, after the core""",
}
"""Lines of a script in a clone that add the zoo's packages to the path."""

INSTALLED = """\
sys.path.append(str(Path(__file__).resolve().parents[3]))  # this project's modules, after the zoo's
import tecoinfer_modelzoo

tecoinfer_modelzoo.check()  # raises if a package of the project has the name of one of the zoo's"""
"""Lines of a script in a separate project with an installed zoo."""


@dataclass(frozen=True, slots=True)
class Created:
    """Result of :func:`create`: folder and file of the case (relative to the root), number of files, and task."""

    folder: str
    config: str
    files: int
    task: str


class Given(NamedTuple):
    """A model file that exists, for a task with a template for it: the file, its data, and defaults of flags."""

    ckpt: Path
    data: tuple[Path, ...] = ()
    defaults: tuple[str, ...] = ()
    """``FLAG=VALUE`` of the task or of all tasks, written into the scripts."""


def create(
    domain: str,
    model: str,
    *,
    task: str = "",
    contrib: bool = False,
    root: Path = ROOT,
    given: Given | None = None,
    arch: str = "",
) -> Created:
    """Write a model's folder from the template of a task, and append its case.

    Args:
        domain, model: names of the folders. task: name of the task; empty for the domain's.
        contrib: create the model below ``contrib/``.
        root: the repository, or a project's folder; tasks of its ``contrib/`` are available too.
        given: the user's model file; ``None``: the placeholder of the template.
        arch: name of a published network in place of the placeholder.

    Raises:
        ConfigError: a name is invalid or exists, the task is unknown or has no valid template (for a file or a
            network), the network is unknown, a default is not one of its flags, or the file of cases cannot be appended
            to; nothing was changed.
        TecoInferError: the model file or its data cannot be read; nothing was changed.
    """
    place = "contrib" if contrib else "core"
    check_names(domain, model, root)
    check_case(model, root)
    found = _task(domain, task, root)
    template = _template(found, contrib, root)
    if given is not None:
        template = _adopting(found, template, model, given)
    elif arch:
        template = _publishing(found, template, arch)
    folder, config = f"{PLACES[place].folder}/{domain}/{model}", PLACES[place].config
    in_clone = has_packages(root)
    words = {"model": model, "title": model.replace("_", " ").title(), "folder": folder}
    words["paths"] = PATHS[place] if in_clone else INSTALLED
    words["install"] = "python -m pip install ." if in_clone else readme_install()
    try:
        files = _write(root / folder, root / config, template, words | {"task": found.name}, root)
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}; nothing was changed") from error
    return Created(folder, config, files, found.name)


def _task(domain: str, name: str, root: Path) -> type[Task]:
    """Return the named task, or else the task with the domain's name, or the domain's default task."""
    add_contrib(root)
    if name:
        return find_task(name)
    known = tasks()
    found = known.get(domain) or default_of(domain, known)
    if found is not None:
        return found
    own = [task for task in known.values() if task.domain == domain]
    write = "" if own else ", or write one (docs/how-to/adding_a_domain.md)"
    raise ConfigError(f"{_no_task(domain, own, known)}; choose one with --task NAME{write}")


def _no_task(domain: str, own: Sequence[type[Task]], known: Mapping[str, type[Task]]) -> str:
    """Return why the domain does not determine the task; ``own`` are the domain's tasks."""
    if own:
        return f"domain {domain!r} has several tasks: {', '.join(sorted(task.name for task in own))}"
    near = did_you_mean(domain, [*known, *(task.domain for task in known.values())])
    listed = ", ".join(f"{task.name} ({task.domain})" for _, task in sorted(known.items()))
    return f"domain {domain!r} has no task;{near} tasks and their domains: {listed}"


def _template(task: type[Task], contrib: bool, root: Path) -> Template:
    """Return a task's template, which has at least a case."""
    template = task.template
    if template is None:
        have = ", ".join(sorted(one.name for one in tasks().values() if one.template is not None))
        raise ConfigError(
            f"task {task.name!r} has no template; copy a model of it, or set template= of its Task; "
            f"tasks with a template: {have}"
        )
    if not (template.folder / f"{CASE}.tmpl").is_file():
        raise ConfigError(f"template {template.folder} of task {task.name!r} has no {CASE}.tmpl; add it")
    if not contrib and template.folder.resolve().is_relative_to((root / "contrib").resolve()):
        raise ConfigError(f"task {task.name!r} is in contrib/utils, which core models cannot import; add --contrib")
    return template


def _adopting(task: type[Task], template: Template, model: str, given: Given) -> Template:
    """Return a template that fills a folder with a model file of the user."""
    adoption = template.adoption
    if adoption is None:
        raise ConfigError(
            f"task {task.name!r} has no template for a model file; leave out --ckpt, or add --task arrays"
        )
    values = defaults_of(task, given.defaults)
    values = values if given.data else {**adoption.without_data, **values}
    shared = [key for key, flag in _flags_of(task).items() if set(flag.scripts) == set(SCRIPTS)]
    words = {
        "defaults": keywords(values),
        "shared_defaults": keywords({name: values[name] for name in shared if name in values}),
    }
    return Template(adoption.folder, lambda folder: {**adoption.fill(folder, model, given.ckpt, given.data), **words})


def _publishing(task: type[Task], template: Template, arch: str) -> Template:
    """Return a template that fills a folder for a published network."""
    published = template.published
    if published is None:
        known = tasks().values()
        have = sorted(one.name for one in known if one.template is not None and one.template.published is not None)
        raise ConfigError(
            f"task {task.name!r} has no template for --arch; leave it out; tasks that have one: {', '.join(have)}"
        )
    words = published.words(arch)
    return Template(published.folder, lambda folder: {**template.fill(folder), **words})


def defaults_of(task: type[Task], words: Sequence[str]) -> dict[str, Any]:
    """Return the values of ``FLAG=VALUE`` by the flags' keys. Raises ConfigError if a word is not such a value."""
    flags = _flags_of(task)
    values: dict[str, list[Any]] = {}
    for word in words:
        name, separator, text = word.partition("=")
        flag = flags.get(name.replace("-", "_"))
        if not separator or flag is None:
            near = did_you_mean(name, flags)
            known = ", ".join(flag.key for flag in task.flags)
            raise ConfigError(f"--default {word!r} is not FLAG=VALUE of task {task.name};{near} flags: {known}")
        try:
            values.setdefault(flag.key, []).append(text if flag.type is None else flag.type(text))
        except (ValueError, argparse.ArgumentTypeError) as error:
            raise ConfigError(f"--default {word!r}: {one_line(error)}; give another value") from error
    lists = {name for name in values if flags[name].nargs in ("+", "*")}
    twice = next((name for name, given in values.items() if len(given) > 1 and name not in lists), None)
    if twice is not None:
        raise ConfigError(f"--default {twice} is given {len(values[twice])} times; give it once")
    return {name: given if name in lists else given[0] for name, given in values.items()}


def _flags_of(task: type[Task]) -> dict[str, Flag]:
    """Return the flags of a task's scripts by key, without those that a template sets and those of output files."""
    return {flag.key: flag for flag in (*task.flags, *COMMON) if flag.key not in SET and flag.type is not Path}


def keywords(values: Mapping[str, Any]) -> str:
    """Return keyword arguments of a call, each on a line of its own."""
    return "".join(f"\n        {name}={_literal(value)}," for name, value in values.items())


def _literal(value: Any) -> str:
    """Return a value of a flag as Python source, texts in double quotes."""
    return repr(value) if isinstance(value, bool) else json.dumps(value)


def _write(folder: Path, config: Path, template: Template, words: dict[str, str], root: Path) -> int:
    """Write folder and case, and remove both on an error; return the number of files."""
    with ExitStack() as undo:
        _make_parents(folder.parent, root, undo)
        partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
        undo.callback(shutil.rmtree, partial, ignore_errors=True)
        words, files = _fill(partial, template, words)
        partial.rename(folder)
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        append_case(config, _rendered(template.folder / f"{CASE}.tmpl", words), words["model"], root, undo)
        undo.pop_all()
    return files


def check_names(domain: str, model: str, root: Path) -> None:
    """Raise ConfigError if a name cannot be that of a folder, or the folder exists."""
    for what, name in (("domain", domain), ("model", model)):
        if not _usable(name):
            near = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").lower()
            hint = f"; write {near!r}" if _usable(near) else ""
            raise ConfigError(
                f"{what} {name!r} must start with a lower-case letter, contain only lower-case letters, digits and "
                f"underscores, at most {LONGEST}, and not be a Python keyword{hint}"
            )
    for place in PLACES.values():
        if (root / place.folder / domain / model).exists():
            raise ConfigError(f"{place.folder}/{domain}/{model} exists; choose another name, or remove it first")


def _usable(name: str) -> bool:
    return bool(re.fullmatch(rf"[a-z][a-z0-9_]{{0,{LONGEST - 1}}}", name)) and not keyword.iskeyword(name)


def check_case(name: str, root: Path) -> None:
    """Raise ConfigError if a case of this name exists in any file."""
    for case in read_cases(config_files(root), root)[0]:
        if case.name == name:
            where = f"{case.source}:{case.line}"
            raise ConfigError(f"case name {name!r} is used by {case.run_dir} in {where}; choose another model name")


def _make_parents(folder: Path, root: Path, undo: ExitStack) -> None:
    missing = [path for path in (folder, *folder.parents) if path.is_relative_to(root) and not path.exists()]
    for path in reversed(missing):
        path.mkdir()
        undo.callback(path.rmdir)


def _fill(folder: Path, template: Template, words: dict[str, str]) -> tuple[dict[str, str], int]:
    """Write the files of a model; return all variables of its templates, and the number of files."""
    folder.mkdir()
    made = _sample_data(folder, template)
    taken = sorted(words.keys() & made.keys())
    if taken:
        raise ConfigError(f"the fill of template {template.folder} redefines the variable {taken[0]!r}; rename it")
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
        raise ConfigError(
            f"the fill of template {template.folder} failed: {typed_reason(error)}; correct it"
        ) from error
    if not isinstance(made, Mapping):
        raise ConfigError(f"the fill of template {template.folder} returned {made!r}; it must return a dict")
    return made


def _rendered(file: Path, words: Mapping[str, str]) -> str:
    try:
        return Text(file.read_text(encoding="utf-8")).substitute(words)
    except KeyError as error:
        known = ", ".join(sorted(words))
        raise ConfigError(f"template {file} uses the variable {error}, which is unknown; variables: {known}") from error
    except ValueError as error:
        raise ConfigError(f"template {file}: {error}; write a dollar sign as $$") from error


def append_case(config: Path, case: str, name: str, root: Path, undo: ExitStack) -> None:
    """Append a case to a file of cases, and verify the result before replacing the file.

    Raise ConfigError if the file with the case cannot be read.
    """
    try:
        before = config.read_bytes().decode("utf-8") if config.is_file() else ""
    except UnicodeDecodeError as error:
        raise ConfigError(f"{config}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
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
    """Return the problems of the case with the name, and of the files."""
    return [str(problem.finding) for problem in read_cases(files, root)[1] if problem.case in ("", name)]


def _not_a_list(file: Path, name: str) -> list[str]:
    """Return why a file is not a list of cases that ends with the named case; read_cases accepts such files."""
    try:
        cases = read_yaml(file)
    except YamlError as error:
        return [f"it would be invalid YAML ({one_line(error)}); correct the file first"]
    last = cases[-1] if isinstance(cases, list) and cases else None
    if isinstance(last, dict) and last.get("case_name") == name:
        return []
    return ["it is not a list of cases; start each case with '- case_name:' at the start of a line"]
