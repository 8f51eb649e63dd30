"""Reading and validation of ``model.yaml``; all problems of all files are reported at once, one line each."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from engine import ALL_DTYPES, ConfigError
from model_config.cases.case import GATES, STEPS, AccuracyRule, Case, Command, Paths
from model_config.cases.case_file import LONGEST_NAME, MOST_TROUBLES, Entry, read_entries
from model_config.cases.reach import LONGEST_VALUE, MOST_CHARACTERS, characters, leaves, leaving
from model_config.results import Finding
from tecoinfer_modelzoo import clone
from tecoinfer_modelzoo.text import did_you_mean, shortened, shown_value
from tecoinfer_modelzoo.yaml_files import YamlError, yaml_text

__all__ = [
    "CONFIGS",
    "FULL",
    "PARAMETERS",
    "REQUIRED",
    "ROOT",
    "STEPS",
    "AccuracyRule",
    "Case",
    "Command",
    "Problem",
    "load_cases",
    "read_cases",
    "relative",
    "select_cases",
]

_log = logging.getLogger(__name__)

ROOT = clone() or Path.cwd()
"""Root that ``run_dir`` starts from: the clone, or for an installed zoo the current folder."""

CONFIGS = ("model_config/model.yaml", "contrib/model_config/model.yaml")
"""The files with the cases of the core and of contributors, relative to the repository's root."""

FULL = "model_config/full.yaml"
"""File with cases that measure a whole model of which the check runs a part; used only if given with --config."""

HISTORICAL_PREFIX = "TecoInference"
"""Optional first part of a ``run_dir``, the historical name of the repository's root."""

RULE = "model-yaml"
"""Rule of all findings about a ``model.yaml``."""

PARAMETERS = ("ckpt", "batch_size", "data_path", "target", "dtype")
"""Parameters of an example step, in the order they are passed; ``others`` holds the rest."""

REQUIRED = ("ckpt", "batch_size", "target", "dtype")
"""Required parameters; an environment needs no data."""

LARGEST_BATCH = 2**31 - 1

TOLERANCES = ("tolerance", "reference_tolerance")
ACCURACY = (
    *TOLERANCES,
    "baseline_ckpt",
    "reference",
    "reference_source",
    "run_reference",
    "secondary_metrics",
    "gate",
)
"""Keys of a case's ``accuracy``."""

DEPRECATED = "accept_inconclusive"
"""A deprecated key of ``accuracy`` that has no effect."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A configuration problem: name of the case (empty: the whole file), and the finding."""

    case: str
    finding: Finding


def read_cases(files: Iterable[Path], root: Path = ROOT) -> tuple[list[Case], list[Problem]]:
    """Read the cases of all files, in their order, and all problems.

    A case with a problem is listed without steps, so that it can be reported; other cases are unaffected. A duplicate
    name is listed once, with a problem.

    Args:
        files: files in the format described in ``model_config/README.md``.
        root: the repository that ``run_dir`` starts from.
    """
    cases: dict[str, Case] = {}
    problems: list[Problem] = []
    for file in files:
        reader = _Reader(file, root)
        for case in reader.read():
            first = cases.setdefault(case.name, case)
            if first is not case:
                what = f"is used twice, first in {relative(first.source, root)}:{first.line}"
                reader.note(case.name, case.line, "case_name", what, "give each case its own name")
        problems += reader.problems
    bad = {problem.case for problem in problems}
    usable = [case if case.name not in bad else _without_steps(case) for case in cases.values()]
    return usable, problems


def load_cases(files: Iterable[Path], root: Path = ROOT) -> list[Case]:
    """Return the cases of all files, which must be valid.

    Raises:
        ConfigError: there is a problem; the message has one line for each problem of each file.
    """
    cases, problems = read_cases(files, root)
    if problems:
        raise ConfigError(*(str(problem.finding) for problem in problems))
    return cases


def relative(path: Path, root: Path) -> str:
    """Return a path with forward slashes, relative to the repository if it lies in it."""
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()


def _without_steps(case: Case) -> Case:
    return Case(case.name, case.run_dir, (), case.source, case.line)


def select_cases(cases: Sequence[Case], names: Sequence[str], root: Path = ROOT) -> list[Case]:
    """Return the named cases in the files' order, or all without names.

    Args:
        cases: of the configuration files.
        names: of cases, of models (``digits``, ``classification/digits``), and paths of folders with models and of
            files in a model's folder, relative to the current folder or to ``root``.
        root: the repository that ``run_dir`` starts from.

    Raises:
        ConfigError: a name is unknown, or the list of cases is empty.
    """
    known = [case.name for case in cases]
    if not known:
        raise ConfigError(
            "no case in the configuration files; begin a model: teco new DOMAIN MODEL, copy one: teco fetch MODEL, or "
            "name a file: --config"
        )
    if not names:
        return list(cases)
    chosen = set[str]()
    for name in names:
        found = {name} & set(known) or {case.name for case in cases if _is_at(case, name, root)}
        if not found:
            words = [*known, *(os.path.basename(case.run_dir) for case in cases)]
            near = did_you_mean(name, words)
            raise ConfigError(f"unknown case {name!r};{near} pass a case, a model or its folder: {', '.join(known)}")
        chosen |= found
    return [case for case in cases if case.name in chosen]


def _is_at(case: Case, word: str, root: Path) -> bool:
    """Return whether a word names the model of a case, its folder, a folder above it or a file in it."""
    if f"/{case.run_dir}".endswith(f"/{word.strip('/')}"):
        return True
    folder = Path(os.path.realpath(root / case.run_dir))
    places = {Path(os.path.realpath(base / word)) for base in (Path.cwd(), root) if (base / word).exists()}
    return any(place.is_relative_to(folder) or folder.is_relative_to(place) for place in places)


class _Reader:
    """Reads one file and collects its problems; invalid values are left out of the result."""

    def __init__(self, file: Path, root: Path) -> None:
        self.file = file
        self.root = root
        self.problems: list[Problem] = []
        self.case = ""
        self.noted = 0
        self.entry = Entry(0)

    def note(self, case: str, line: int, key: str, what: str, fix: str) -> None:
        """Record a problem of a case, or of the whole file if ``case`` is empty."""
        said = ": ".join(filter(None, (case, shortened(key, 200), what)))
        self.problems.append(Problem(case, Finding(relative(self.file, self.root), line, RULE, said, fix)))

    def problem(self, key: str, what: str, fix: str) -> None:
        """Record a problem of the current case, up to a maximum number."""
        self.noted += 1
        if self.noted <= MOST_TROUBLES:
            self.note(self.case, self.entry.line_of(key), key, what, fix)
        elif self.noted == MOST_TROUBLES + 1:
            self.note(self.case, self.entry.line, "", "has more problems than are shown", "correct those first")

    def read(self) -> list[Case]:
        """Return the cases of the file, including those with problems; an empty file has none."""
        try:
            text = yaml_text(self.file)
        except OSError as error:
            self.note("", 0, "", f"cannot be read: {error.strerror}", "check the path")
            return []
        except YamlError as error:
            what, _, fix = error.reason.partition("; ")
            self.note("", 0, "", what, fix)
            return []
        entries, troubles = read_entries(text)
        for trouble in troubles:
            self.note("", trouble.line, trouble.key, trouble.what, trouble.fix)
        return [self._case(index, entry) for index, entry in enumerate(entries, start=1)]

    def _case(self, index: int, entry: Entry) -> Case:
        self.entry, self.noted = entry, 0
        self.case = entry.name or f"case {index} of {relative(self.file, self.root)}"
        for trouble in entry.troubles:
            self.note(self.case, trouble.line, trouble.key, trouble.what, trouble.fix)
        if entry.troubles:
            return Case(self.case, "", (), self.file, entry.line)
        fields = self._mapping(entry.data, "case", ("case_name", "run_dir", *STEPS.values()), ("accuracy",))
        name, run_dir = self._text(fields, "case_name"), self._text(fields, "run_dir")
        if name and not re.fullmatch(r"\w[\w.+-]*", name):
            what = f"{shown_value(name)} must consist of letters, digits and _ . + -"
            self.problem("case_name", what, "rename it")
        elif len(name) > LONGEST_NAME:
            what = f"{shown_value(name)} has {len(name)} characters; at most {LONGEST_NAME} are allowed"
            self.problem("case_name", what, "shorten it")
        run_dir = self._run_dir(run_dir) if run_dir else ""
        steps = tuple(self._step(step, key, fields[key], run_dir) for step, key in STEPS.items() if key in fields)
        accuracy = self._accuracy(fields["accuracy"], run_dir) if "accuracy" in fields else AccuracyRule()
        return Case(self.case, run_dir, steps, self.file, entry.line, accuracy)

    def _accuracy(self, item: Any, run_dir: str) -> AccuracyRule:
        if _empty(item):
            self.problem("accuracy", "is empty", f"give some of {', '.join(ACCURACY)}, or leave the key out")
            return AccuracyRule()
        fields = self._mapping(item, "accuracy", (), (*ACCURACY, DEPRECATED))
        if fields.pop(DEPRECATED, None) is not None:
            where = f"{relative(self.file, self.root)}: {self.case}"
            _log.warning("%s: deprecated: accuracy.%s has no effect; delete it", where, DEPRECATED)
        found: dict[str, Any] = {}
        for key in fields:
            if key in (*TOLERANCES, "reference"):
                found[key] = self._number(fields[key], f"accuracy.{key}", positive=key in TOLERANCES)
            elif key == "run_reference":
                found[key] = replace(self._step("export", f"accuracy.{key}", fields[key], run_dir), name="valid")
            elif key == "baseline_ckpt":
                found[key] = self._paths(fields, key, "accuracy")
            elif key == "secondary_metrics":
                found[key] = self._names(fields[key], f"accuracy.{key}")
            elif key == "gate":
                found[key] = self._gate(fields)
            else:
                found[key] = self._text(fields, key, "accuracy")
        for key, path in _located(found, "baseline_ckpt", "accuracy") if run_dir else []:
            self._check_inside(path, key, run_dir)
        return AccuracyRule(**found)

    def _names(self, value: Any, key: str) -> tuple[str, ...]:
        if isinstance(value, list) and value and all(isinstance(name, str) and _usable(name) for name in value):
            return tuple(value)
        self.problem(key, _what(value), "write a list of names of the report's secondary metrics, such as [top5]")
        return ()

    def _gate(self, fields: dict[str, Any]) -> str:
        gate = self._text(fields, "gate", "accuracy")
        if gate and gate not in GATES:
            self.problem("accuracy.gate", f"{shown_value(gate)} is unknown", f"use one of: {', '.join(GATES)}")
            return GATES[0]
        return gate or GATES[0]

    def _number(self, value: Any, key: str, *, positive: bool) -> float:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            if not positive or 0 < value < 1:
                return float(value)
            self.problem(key, f"{shown_value(value)} is not between 0 and 1", "write a share, such as 0.001 for 0.1 %")
        else:
            what = "is empty" if _empty(value) else f"{shown_value(value)} is not a finite number"
            self.problem(
                key, what, "write a number without quotes, such as 0.001 (not 1e-3, which YAML takes for text)"
            )
        return 0.0

    def _step(self, name: str, key: str, item: Any, run_dir: str) -> Command:
        export = name == "export"
        fields = self._mapping(item, key, ("run_file",) if export else ("run_file", "params"), ("params",))
        run_file = self._text(fields, "run_file", key)
        if run_file and run_dir:
            self._check_run_file(run_file, f"{key}.run_file", run_dir)
        if "params" not in fields:
            return Command(name, run_file, {})
        where = f"{key}.params"
        if export:
            return Command(name, run_file, self._kept(self._parameters(fields["params"], where), where, run_dir))
        params = self._mapping(fields["params"], where, REQUIRED, ("data_path", "others"))
        own = self._own(params, where)
        if run_dir:
            for key, path in _located(own, "ckpt", where):
                self._check_inside(path, key, run_dir)
            for key, path in _located(own, "data_path", where):
                self._check_data(path, key, run_dir)
        others = self._others(params, where)
        self._kept({key: own[key] for key in ("target", "dtype") if key in own}, where, run_dir)
        return Command(name, run_file, own | self._kept(others, f"{where}.others", run_dir))

    def _kept(self, params: dict[str, Any], where: str, run_dir: str) -> dict[str, Any]:
        """Return parameters; report paths that leave the folder of the case, and too long command lines."""
        folder = os.path.realpath(self.root / run_dir)
        for key, value in params.items() if run_dir else ():
            found = leaving(value, folder)
            if found is not None:
                what = f"{shown_value(found)} leaves run_dir {run_dir!r}"
                self.problem(f"{where}.{key}", what, "write a path inside it")
        if characters(params) > MOST_CHARACTERS:
            what = f"has more than {MOST_CHARACTERS} characters, more than a command line takes"
            self.problem(where, what, "let the script read a file")
        return params

    def _own(self, params: dict[str, Any], where: str) -> dict[str, Any]:
        """Read the parameters that are not in ``others``."""
        texts: dict[str, Any] = {key: self._text(params, key, where) for key in ("target", "dtype")}
        texts |= {key: self._paths(params, key, where) for key in ("ckpt", "data_path")}
        self._check_dtype(texts["dtype"], f"{where}.dtype")
        if "batch_size" in params:
            self._check_batch(params["batch_size"], f"{where}.batch_size")
        own = {**texts, "batch_size": params.get("batch_size")}
        return {key: own[key] for key in PARAMETERS if key in params or key in REQUIRED}

    def _check_dtype(self, dtype: str, where: str) -> None:
        if dtype and dtype not in ALL_DTYPES:
            known = f"use one of: {', '.join(ALL_DTYPES)}"
            near = did_you_mean(dtype, ALL_DTYPES).strip()
            self.problem(where, f"{shown_value(dtype)} is unknown", f"{near} {known}".strip())

    def _check_batch(self, batch: Any, where: str) -> None:
        if type(batch) is not int or not 1 <= batch <= LARGEST_BATCH:
            limit = f"at most {LARGEST_BATCH}" if type(batch) is int and batch > 1 else "at least 1"
            what = "is empty" if _empty(batch) else f"{shown_value(batch)} is not a whole number of {limit}"
            self.problem(where, what, "write a number without quotes, such as 64")

    def _paths(self, params: dict[str, Any], key: str, where: str) -> Paths:
        """Return a path, or several by name; invalid ones are left out and reported."""
        value = params.get(key)
        if not isinstance(value, dict) or not value:
            return self._text(params, key, where, "write a path, or a 'name: path' line for each of several")
        found = {}
        for name, path in value.items():
            if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
                what = f"{shown_value(name)} is not a valid name"
                self.problem(f"{where}.{key}", what, "use letters, digits and underscores")
            elif not isinstance(path, str) or not _usable(path):
                self.problem(f"{where}.{key}.{name}", _what(path), "write a path")
            else:
                found[name] = path
        return found

    def _others(self, params: dict[str, Any], where: str) -> dict[str, Any]:
        if "others" not in params:
            return {}
        others = self._parameters(params["others"], f"{where}.others")
        for key in sorted(set(others) & set(PARAMETERS)):
            self.problem(f"{where}.others.{key}", "is a parameter of every step", "write it in params itself")
        return others

    def _parameters(self, item: Any, where: str) -> dict[str, Any]:
        """Read free parameters: flag names, and values that are scalars or lists of scalars."""
        if not isinstance(item, dict) or not item:
            self.problem(where, _what(item), "write 'name: value' lines, or leave the key out")
            return {}
        for key, value in item.items():
            if not isinstance(key, str) or not re.fullmatch(r"[A-Za-z]\w*(-\w+)*", key, re.ASCII):
                self.problem(
                    f"{where}.{shown_value(key)}",
                    "is not the name of a command-line flag",
                    "write it without the dashes",
                )
            elif not all(map(_usable, value if isinstance(value, list) and value else [value])):
                self.problem(
                    f"{where}.{key}", _what(value), "give text, a number or true/false, in quotes if necessary"
                )
        return item

    def _mapping(self, item: Any, where: str, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
        """Return the entry's known keys; report missing and unknown ones."""
        if not isinstance(item, dict):
            self.problem(
                where, _what(item), f"write 'key: value' lines with the keys {', '.join(required or optional)}"
            )
            return {}
        known = [*required, *optional]
        self._check_keys(item, "" if where == "case" else f"{where}.", required, known)
        return {key: item[key] for key in item if key in known}

    def _check_keys(self, item: dict[Any, Any], prefix: str, required: Sequence[str], known: Sequence[str]) -> None:
        others = [key for key in item if key not in known]
        for key in others[: MOST_TROUBLES + 1]:
            near = did_you_mean(str(key), known).strip() or f"use one of: {', '.join(known)}"
            self.problem(f"{prefix}{_shown(key)}", "is an unknown key", near)
        for key in required:
            if key not in item:
                self.problem(f"{prefix}{key}", "is missing", "add it")

    def _text(self, fields: dict[str, Any], key: str, where: str = "", fix: str = "write a text") -> str:
        """Return a required text; empty if it is missing (already reported) or invalid (reported here)."""
        value = fields.get(key, "")
        if key not in fields or (isinstance(value, str) and _usable(value)):
            return str(value)
        if key == "target" and value is None:
            fix = "the null engine is written 'null', in quotes"
        self.problem(f"{where}.{key}" if where else key, _what(value), fix)
        return ""

    def _run_dir(self, text: str) -> str:
        """Return the folder relative to the root; empty if it is not a folder of the repository."""
        path = PurePosixPath(text)
        parts = path.parts[1:] if path.parts[:1] == (HISTORICAL_PREFIX,) else path.parts
        folder, root = os.path.realpath(self.root.joinpath(*parts)), os.path.realpath(self.root)
        if path.is_absolute() or ".." in parts or not Path(folder).is_relative_to(root):
            self.problem(
                "run_dir", f"{shown_value(text)} leaves the repository", "write a path that starts at its root"
            )
        elif folder == root:
            self.problem("run_dir", f"{shown_value(text)} is the whole repository", "name the model's folder")
        elif not os.path.isdir(folder):
            self.problem("run_dir", f"folder {shown_value(text)} does not exist under {self.root}", "check the path")
        else:
            return "/".join(parts)
        return ""

    def _check_run_file(self, text: str, key: str, run_dir: str) -> None:
        if self._check_inside(text, key, run_dir) and not os.path.isfile(self.root / run_dir / text):
            self.problem(key, f"file {shown_value(text)} does not exist in run_dir {run_dir!r}", "check the name")

    def _check_inside(self, text: str, key: str, run_dir: str) -> bool:
        """Return whether a path stays in the model's folder with links resolved; report a problem if not."""
        if leaves(text, os.path.realpath(self.root / run_dir)):
            self.problem(key, f"{shown_value(text)} leaves run_dir {run_dir!r}", "write a path inside it")
            return False
        return True

    def _check_data(self, text: str, key: str, run_dir: str) -> None:
        """Report a relative ``data_path`` that leaves the repository; an absolute one (a shared disk) is allowed."""
        reached = Path(os.path.realpath(self.root / run_dir / text))
        if not os.path.isabs(text) and not reached.is_relative_to(os.path.realpath(self.root)):
            self.problem(key, f"{shown_value(text)} leaves the repository", "write the data set's absolute path")


def _located(params: Mapping[str, Any], name: str, where: str) -> list[tuple[str, str]]:
    """Return each path of a parameter with its key in the file."""
    value = params.get(name)
    if isinstance(value, Mapping):
        return [(f"{where}.{name}.{key}", path) for key, path in value.items()]
    return [(f"{where}.{name}", value)] if value else []


def _shown(key: Any) -> str:
    return key if isinstance(key, str) and key.isprintable() and len(key) <= LONGEST_NAME else shown_value(key)


def _usable(value: Any) -> bool:
    """Return whether a value can be a command-line argument."""
    if isinstance(value, str):
        return bool(value.strip()) and value.isprintable() and len(value) <= LONGEST_VALUE
    return isinstance(value, (bool, int, float))


def _empty(value: Any) -> bool:
    return value is None or value in ({}, []) or (isinstance(value, str) and not value.strip())


def _what(value: Any) -> str:
    """Return the reason why a value is invalid."""
    if _empty(value):
        return "is empty"
    if isinstance(value, str) and len(value) > LONGEST_VALUE:
        return f"has {len(value)} characters, more than the {LONGEST_VALUE} of a value"
    if isinstance(value, str) and not _usable(value):
        return f"{shown_value(value)} has characters that cannot be used"
    return f"has the wrong type ({type(value).__name__})"
