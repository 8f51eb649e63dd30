"""Run a script of a model in the model's folder, with the parameters of its case; flags override them."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from engine import ConfigError
from model_config.cases.config import ROOT, STEPS, Case
from tecoinfer_modelzoo import python_path
from tecoinfer_modelzoo.flags import STDOUT
from tecoinfer_modelzoo.text import did_you_mean
from toolkit.arguments import Parser
from toolkit.zoo import ZOO, Model, find_case, find_model, load_zoo

EPILOG = """\
All further arguments go to the script, after the parameters of the model's case; `teco run MODEL STEP --help` shows
the help of the script. Input paths (--ckpt, --data_path, --pass_path, --weights) are relative to the model's folder,
or else to the current folder; output paths (--json, --out, --resume, --save) are relative to the current folder."""

READ = ("--ckpt", "--data_path", "--pass_path", "--weights")
WRITTEN = ("--json", "--out", "--resume", "--save")
"""Flags whose value is an input or an output path."""

SEVERAL = ("--ckpt", "--data_path")
"""Flags that take several named values: ``--ckpt det=a.onnx rec=b.onnx``."""


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Replace this process by the script, which passes on its exit code, output and signals."""
    model, case, step, flags = _arguments(argv, root)
    command = command_line(model, case, step, _from_here(flags, model.folder))
    print(f"in {model.shown_path}: {shlex.join(['python', *command])}", file=sys.stderr)
    _become(command, model.folder, root)


def command_line(model: Model, case: Case | None, step: str, flags: Sequence[str]) -> list[str]:
    """Return the script and its arguments: the parameters of the case without those given as flags, then the flags.

    Raises ConfigError if the model has no script for the step.
    """
    if step not in model.scripts:
        raise ConfigError(f"{model.path} has no step {step!r}; it has: {', '.join(model.scripts)}")
    if step == "export" and model.place == ZOO:
        copy = f"teco fetch {model.domain}/{model.name}"
        raise ConfigError(f"{model.folder} is in another zoo, and an export writes there; copy the model first: {copy}")
    own = next((known for known in case.steps if known.name == step), None) if case is not None else None
    if own is None:
        return [model.scripts[step], *flags]
    given = {flag.partition("=")[0] for flag in flags if flag.startswith("--")}
    kept = {key: value for key, value in own.params.items() if f"--{key}" not in given}
    return [own.run_file, *replace(own, params=kept).arguments, *flags]


def _arguments(argv: Sequence[str], root: Path) -> tuple[Model, Case | None, str, list[str]]:
    parser = Parser("teco run", __doc__, EPILOG)
    parser.add_argument("--case", metavar="NAME", help="case whose parameters are used, if the model has several")
    parser.add_argument("model", metavar="MODEL", help="name, domain/name, case name or path")
    parser.add_argument("step", metavar="STEP", help=f"one of: {', '.join(STEPS)}")
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="arguments of the script")
    args = parser.parse_args(argv)
    if args.step not in STEPS:
        raise ConfigError(f"unknown step {args.step!r};{did_you_mean(args.step, STEPS)} steps: {', '.join(STEPS)}")
    zoo = load_zoo(root)
    for problem in zoo.problems:
        print(f"warning: {problem}", file=sys.stderr)
    model, case = find_model(args.model, zoo.models)
    named, flags = _take_case(args.flags)
    name = named or args.case
    if not name and case is None and len(model.cases) > 1:
        names = ", ".join(one.name for one in model.cases)
        raise ConfigError(f"{model.path} has several cases: {names}; choose one with --case NAME")
    return model, find_case(model, name) if name else case or next(iter(model.cases), None), args.step, flags


def _take_case(flags: Sequence[str]) -> tuple[str, list[str]]:
    """Remove ``--case NAME`` from the script's flags; return the name and the other flags."""
    rest, name = [], ""
    words = iter(flags)
    for word in words:
        flag, _, value = word.partition("=")
        if flag != "--case":
            rest.append(word)
            continue
        name = value or next(words, "")
        if not name:
            raise ConfigError("--case needs the name of a case (see teco run --help)")
    return name, rest


def _from_here(flags: Sequence[str], folder: Path) -> list[str]:
    """Make paths relative to the current folder absolute, including those of ``NAME=PATH``."""
    changed: list[str] = []
    current = ""
    for word in flags:
        own, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
        changed.append(own + equals + (_path_from_here(own or current, value, folder) if value else ""))
        if own:
            current = "" if equals else own
        elif current not in SEVERAL:
            current = ""
    return changed


def _path_from_here(flag: str, value: str, folder: Path) -> str:
    """Return the value of a flag, made absolute if it is a path relative to the current folder."""
    if value == str(STDOUT):
        return value
    if flag in WRITTEN or (flag in READ and _only_here(value, folder)):
        return str(Path(value).absolute())
    name, equals, path = value.partition("=")
    if flag in SEVERAL and equals and _only_here(path, folder):
        return f"{name}={Path(path).absolute()}"
    return value


def _only_here(path: str, folder: Path) -> bool:
    return bool(path) and not os.path.exists(folder / path) and os.path.exists(path)


def _become(command: Sequence[str], folder: Path, root: Path) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os.chdir(folder)
    os.execve(sys.executable, [sys.executable, *command], {**os.environ, "PYTHONPATH": python_path(root)})  # noqa: S606
