"""Reading ``model.yaml``: every problem of every file is found in one go, one line each."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from engine.base import DTYPES, ConfigError

if TYPE_CHECKING:
    import yaml

ROOT = Path(__file__).resolve().parents[1]
"""The repository that ``run_dir`` starts from."""

HISTORICAL_PREFIX = "TecoInference"
"""First part a ``run_dir`` may have; it is the historical name of the repository's root."""

STEPS = {
    "export": "run_export",
    "valid": "run_example_valid",
    "single": "run_example_single",
    "multi": "run_example_multi",
}
"""Name of each step, in the order they run, and its key in a case."""

REQUIRED = ("ckpt", "batch_size", "data_path", "target", "dtype")
"""Parameters every example step must have; ``others`` holds the rest."""

Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a case.

    Attributes:
        name: a key of :data:`STEPS`.
        run_file: the script, relative to the case's ``run_dir``.
        params: command-line parameters in the order they are passed, ``others`` included.
    """

    name: str
    run_file: str
    params: Mapping[str, Scalar | list[Scalar]]

    @property
    def arguments(self) -> list[str]:
        """The script's arguments: ``--key value``, or ``--key value value`` for a list."""
        words: list[str] = []
        for key, value in self.params.items():
            words += [f"--{key}", *map(str, value if isinstance(value, list) else [value])]
        return words


@dataclass(frozen=True, slots=True)
class Case:
    """One model to check: ``run_dir`` is relative to the repository's root, ``source`` the file that describes it."""

    name: str
    run_dir: str
    steps: tuple[Step, ...]
    source: Path


def load_cases(files: Iterable[Path], root: Path = ROOT) -> list[Case]:
    """Read the cases of all files, in their order.

    Args:
        files: files in the format that ``model_config/README.md`` describes.
        root: the repository that ``run_dir`` starts from.

    Raises:
        ConfigError: a file cannot be used; its text has one line for every problem of every file.
    """
    cases: list[Case] = []
    problems: list[str] = []
    for file in files:
        reader = _Reader(file, root)
        found = reader.read()
        for case in found:
            first = next((known for known in cases if known.name == case.name), None)
            if first is not None:
                reader.case = case.name
                reader.problem("case_name", f"is used twice, first in {first.source}; give each case its own name")
            cases.append(case)
        problems += reader.problems
    if problems:
        raise ConfigError("\n".join(problems))
    return cases


def select_cases(cases: Sequence[Case], names: Sequence[str]) -> list[Case]:
    """Return the named cases in the files' order, or all where no name is given.

    Raises:
        ConfigError: a name is not the name of a case, or there is no case at all.
    """
    known = [case.name for case in cases]
    if not known:
        raise ConfigError("no case in the configuration files; add one as model_config/README.md describes")
    for name in names:
        if name not in known:
            raise ConfigError(f"unknown case {name!r};{_near(name, known)} the cases are: {', '.join(known)}")
    return [case for case in cases if not names or case.name in names]


def _near(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f" did you mean {near[0]!r}?" if near else ""


class _Reader:
    """Reads one file and collects its problems; what could not be read is left out of the result."""

    def __init__(self, file: Path, root: Path) -> None:
        self.file = file
        self.root = root
        self.problems: list[str] = []
        self.case = ""

    def problem(self, key: str, text: str) -> None:
        """Note a problem of the current case; ``text`` says what is wrong and, after a semicolon, the fix."""
        self.problems.append(f"{self.file}: {self.case}: {key}: {text}")

    def read(self) -> list[Case]:
        """Return the usable cases of the file; an empty file has none."""
        try:
            data = _parse(self.file)
        except ConfigError as error:
            self.problems.append(str(error))
            return []
        if data is not None and not isinstance(data, list):
            what = type(data).__name__
            self.problems.append(
                f"{self.file}: holds a {what}, not a list of cases; start each case with '- case_name:'"
            )
            return []
        read = [self._case(index, item) for index, item in enumerate(data or [], start=1)]
        return [case for case in read if case is not None]

    def _case(self, index: int, item: Any) -> Case | None:
        before = len(self.problems)
        name = item.get("case_name") if isinstance(item, dict) else None
        self.case = name if isinstance(name, str) and name.isprintable() and name.strip() else f"case {index}"
        fields = self._mapping(item, "case", ("case_name", "run_dir", *STEPS.values()))
        name, run_dir = self._text(fields, "case_name"), self._text(fields, "run_dir")
        if name and not re.fullmatch(r"\w[\w.+-]*", name):
            self.problem("case_name", f"{name!r} must be made of letters, digits and _ . + -; rename it")
        run_dir = self._run_dir(run_dir) if run_dir else ""
        steps = tuple(self._step(step, key, fields[key], run_dir) for step, key in STEPS.items() if key in fields)
        return Case(name, run_dir, steps, self.file) if len(self.problems) == before else None

    def _step(self, name: str, key: str, item: Any, run_dir: str) -> Step:
        export = name == "export"
        fields = self._mapping(item, key, ("run_file",) if export else ("run_file", "params"), ("params",))
        run_file = self._text(fields, "run_file", key)
        if run_file and run_dir:
            self._check_run_file(run_file, f"{key}.run_file", run_dir)
        if "params" not in fields:
            return Step(name, run_file, {})
        where = f"{key}.params"
        if export:
            return Step(name, run_file, self._parameters(fields["params"], where))
        params = self._mapping(fields["params"], where, REQUIRED, ("others",))
        return Step(name, run_file, self._required(params, where) | self._others(params, where))

    def _required(self, params: dict[str, Any], where: str) -> dict[str, Any]:
        texts = {key: self._text(params, key, where) for key in REQUIRED if key != "batch_size"}
        if texts["dtype"] and texts["dtype"] not in DTYPES:
            self.problem(f"{where}.dtype", f"{texts['dtype']!r} is unknown; use one of: {', '.join(DTYPES)}")
        batch = params.get("batch_size")
        if "batch_size" in params and (type(batch) is not int or batch < 1):
            what = "is empty" if _empty(batch) else f"{batch!r} is not a whole number of at least 1"
            self.problem(f"{where}.batch_size", f"{what}; write a number without quotes, such as 64")
        return {key: batch if key == "batch_size" else texts[key] for key in REQUIRED}

    def _others(self, params: dict[str, Any], where: str) -> dict[str, Any]:
        if "others" not in params:
            return {}
        others = self._parameters(params["others"], f"{where}.others")
        for key in set(others) & set(REQUIRED):
            self.problem(f"{where}.others.{key}", "is one of the required parameters; write it only in params")
        return others

    def _parameters(self, item: Any, where: str) -> dict[str, Any]:
        """Read free parameters: names that can follow ``--``, and values that are scalars or lists of scalars."""
        if not isinstance(item, dict) or not item:
            self.problem(where, f"{_what(item)}; write 'name: value' lines, or leave the key out")
            return {}
        for key, value in item.items():
            if not isinstance(key, str) or not re.fullmatch(r"[A-Za-z]\w*(-\w+)*", key, re.ASCII):
                self.problem(f"{where}.{key!r}", "is not the name of a command-line flag; write it without the dashes")
            elif not all(map(_usable, value if isinstance(value, list) and value else [value])):
                self.problem(
                    f"{where}.{key}", f"{_what(value)}; give text, a number or true/false, in quotes if need be"
                )
        return item

    def _mapping(self, item: Any, where: str, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
        """Return the entry's known keys; note missing and unknown ones."""
        if not isinstance(item, dict):
            self.problem(where, f"{_what(item)}; it needs the keys {', '.join(required)}")
            return {}
        prefix = "" if where == "case" else f"{where}."
        known = [*required, *optional]
        for key in item:
            if key not in known:
                near = _near(str(key), known) or f" use one of: {', '.join(known)}"
                shown = key if isinstance(key, str) and key.isprintable() else repr(key)
                self.problem(f"{prefix}{shown}", f"is an unknown key;{near}")
        for key in required:
            if key not in item:
                self.problem(f"{prefix}{key}", "is missing; add it")
        return {key: item[key] for key in item if key in known}

    def _text(self, fields: dict[str, Any], key: str, where: str = "") -> str:
        """Return a required text, or nothing where it is missing (noted already) or unusable (noted here)."""
        value = fields.get(key, "")
        if key not in fields or (isinstance(value, str) and _usable(value)):
            return str(value)
        quotes = "; the null engine is written 'null', in quotes" if key == "target" and value is None else ""
        self.problem(f"{where}.{key}" if where else key, f"{_what(value)}{quotes or '; write a text'}")
        return ""

    def _run_dir(self, text: str) -> str:
        """Return the folder relative to the root, or nothing where it is not a folder of the repository."""
        path = PurePosixPath(text)
        parts = path.parts[1:] if path.parts[:1] == (HISTORICAL_PREFIX,) else path.parts
        folder, root = os.path.realpath(self.root.joinpath(*parts)), os.path.realpath(self.root)
        if path.is_absolute() or ".." in parts or not Path(folder).is_relative_to(root):
            self.problem("run_dir", f"{text!r} leaves the repository; write a path that starts at its root")
        elif folder == root:
            self.problem("run_dir", f"{text!r} is the whole repository; name the model's folder")
        elif not os.path.isdir(folder):
            self.problem("run_dir", f"folder {text!r} does not exist under {self.root}; check the path")
        else:
            return "/".join(parts)
        return ""

    def _check_run_file(self, text: str, key: str, run_dir: str) -> None:
        path, folder = PurePosixPath(text), os.path.realpath(self.root / run_dir)
        file = os.path.realpath(os.path.join(folder, text))
        if path.is_absolute() or ".." in path.parts or not Path(file).is_relative_to(folder):
            self.problem(key, f"{text!r} leaves run_dir {run_dir!r}; write a path inside it")
        elif not os.path.isfile(file):
            self.problem(key, f"file {text!r} does not exist in run_dir {run_dir!r}; check the name")


def _usable(value: Any) -> bool:
    """Say whether a value can be a command-line argument."""
    if isinstance(value, str):
        return bool(value.strip()) and value.isprintable()
    return isinstance(value, (bool, int, float))


def _empty(value: Any) -> bool:
    return value is None or value in ({}, []) or (isinstance(value, str) and not value.strip())


def _what(value: Any) -> str:
    """Name what is wrong with a value."""
    if _empty(value):
        return "is empty"
    if isinstance(value, str) and not _usable(value):
        return f"{value!r} has characters that cannot be used"
    return f"has the wrong type ({type(value).__name__})"


def _parse(file: Path) -> Any:
    """Return the file's plain data.

    Raises:
        ConfigError: it cannot be read, is not YAML, or says the same key twice.
    """
    import yaml

    try:
        text = file.read_text(encoding="utf-8-sig")
        _refuse_duplicates(yaml.compose(text, Loader=yaml.SafeLoader), file)
        return yaml.safe_load(text)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: byte {error.start} is not UTF-8 text; save the file as UTF-8") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{file}: line {line}: not YAML: {error.problem}; correct the line") from error
    except ConfigError:
        raise
    # PyYAML lets the errors of a bad value (`!!bool 5`, a 13th month, endless nesting) through as they come.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{file}: not usable YAML ({type(error).__name__}: {reason}); correct the file") from error


def _refuse_duplicates(top: yaml.Node | None, file: Path) -> None:
    """Raise on a key that a mapping has twice: ``safe_load`` would silently keep the last."""
    waiting, seen = [top], set()
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen or not isinstance(node.value, list):
            continue
        seen.add(id(node))
        pairs = [pair for pair in node.value if isinstance(pair, tuple)]
        waiting += [value for _, value in pairs] or node.value
        keys: set[str] = set()
        for key, _ in pairs:
            if isinstance(key.value, str) and key.value in keys:
                line = key.start_mark.line + 1
                raise ConfigError(f"{file}: line {line}: key {key.value!r} is given twice; keep one of the two")
            keys.add(str(key.value))
