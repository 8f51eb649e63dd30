"""``docs/reference/flags.md``: the arguments of every command, and of the scripts of every task of the core."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

from model_config.cases.config import ROOT
from toolkit.command_table import COMMANDS, TRAIN, command, load_function
from toolkit.data_page import row, save
from utils.pipeline.flags.options import script_flags
from utils.tasks.base import SCRIPTS, Flag, str2bool
from utils.tasks.find import tasks

PAGE = "docs/reference/flags.md"

KINDS = {
    "dump": ("full", "once", "range", "compare", "recover"),
    "ops": ("", "--training"),
    "msaccucmp": ("compare", "convert"),
    "train": tuple(TRAIN),
}
"""Commands with several parsers: the first argument of each."""

PROGRAMS = {
    "tecoexec": ("tecoexec.cli:execute", ()),
    "teco-smi": ("engine.sdaa.smi:main", ("--simulated",)),
}
"""Commands besides ``teco``: ``module:function``, and arguments with which it parses its own flags."""


_HEAD = """\
# Flags

The arguments of every command, and of the scripts `valid`, `single` and `multi`. `teco site --write_docs` writes this
page from the parsers. `teco COMMAND --help` and the `--help` of a script show the same texts.

Every command has `--help` and `--version`. Commands that call native code have `--time_limit SECONDS` and
`--memory_limit GIB`, the limits of the command with all its processes (default: `TECO_TIME_LIMIT` and
`TECO_MEMORY_LIMIT`); `--timeout SECONDS` is the limit of one script or step that a command starts. Commands that print
a report have `--csv FILE` and `--html FILE`. These flags are listed below only where they differ.

Commands and scripts with a result have `--json [FILE]`. With FILE they write the result there as JSON, in addition to
the printed text. Without FILE, or with `-`, standard output has the JSON only, and printed text goes to standard error:
`teco compare digits --json | jq .lead`. `teco list`, `teco info` and `teco fetch` print no text then; since they take
names, they read the word after `--json` as FILE only if it ends in `.json`, and any word in `--json=FILE`.

"""

_SCRIPTS = """\
## Scripts: flags of every task

| flag | scripts | default | meaning |
|---|---|---|---|
"""

_TASKS = """
## Scripts: flags of single tasks

| flag | tasks | scripts | default | meaning |
|---|---|---|---|---|
"""


class _BuiltError(Exception):
    """Carries the parser of a command out of ``parse_args``."""


def write_flags(root: Path) -> Path:
    """Write the page and return its path; raise ConfigError if the page cannot be written."""
    (root / PAGE).parent.mkdir(parents=True, exist_ok=True)
    return save(root / PAGE, page())


def page() -> str:
    """Return the text of the page."""
    every, single = _script_rows()
    return "".join((_HEAD, *_commands(), _SCRIPTS, *every, _TASKS, *single))


def parser_of(name: str, *words: str) -> argparse.ArgumentParser:
    """Return the parser that a ``teco`` command builds for ``words``, without running the command."""
    return _parser_in(command(name), words)


def _parser_in(main: Callable[[Sequence[str]], object], words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser that a function builds before it parses ``words``."""

    def stop(parser: argparse.ArgumentParser, *args: Any, **options: Any) -> NoReturn:
        raise _BuiltError(parser)

    with mock.patch.object(argparse.ArgumentParser, "parse_args", stop):
        try:
            main(words)
        except _BuiltError as built:
            found: argparse.ArgumentParser = built.args[0]
            return found
    raise AssertionError(f"{main} parses no arguments")


def _commands() -> Iterator[str]:
    for name, (_, text) in COMMANDS.items():
        for kind in KINDS.get(name, ("",)):
            parser = parser_of(name, *filter(None, [kind]))
            own = _first_line(parser) if name == "train" else f"{text[0].upper()}{text[1:]}."
            yield from _section(f"teco {name} {kind}".rstrip(), own, parser)
    for name, (where, words) in PROGRAMS.items():
        parser = _parser_in(load_function(where), words)
        yield from _section(name, _first_line(parser), parser)


def _section(name: str, text: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"## {name}\n\n{text}\n\n| argument | meaning |\n|---|---|\n"
    yield from _arguments(parser)
    yield "\n"


def _first_line(parser: argparse.ArgumentParser) -> str:
    """Return the first paragraph of a command's help, on one line."""
    return " ".join((parser.description or "").partition("\n\n")[0].split())


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield row(f"`{name}`", action._choices_actions[0].help or "")
                yield from _arguments(below)
        elif not _is_common(action):
            names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
            yield row(f"`{names}{_value(action)}`", action.help or "")


def _is_common(action: argparse.Action) -> bool:
    """Return whether an action is described at the head of the page, or is a former flag that no help lists."""
    if action.help == argparse.SUPPRESS:
        return True
    if action.metavar in ("FILE", "SECONDS", "GIB"):
        return action.dest in ("json", "csv", "html", "time_limit", "memory_limit")
    return not {"--help", "--version"}.isdisjoint(action.option_strings)


def _value(action: argparse.Action) -> str:
    if not action.option_strings or action.nargs == 0:
        return ""
    if isinstance(action.metavar, tuple):
        return f" {' '.join(action.metavar)}"
    text = str(action.metavar or _choices(action.choices) or action.dest.upper())
    return f" [{text}]" if action.nargs == "?" else f" {text}"


def _choices(choices: Any) -> str:
    return "{" + ",".join(map(str, choices)) + "}" if choices else ""


def _script_rows() -> tuple[list[str], list[str]]:
    """Return the rows of the flags that every task has, and of the others."""
    core = {name: task for name, task in tasks().items() if _is_core(task)}
    found: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for name, task in core.items():
        for script in SCRIPTS:
            for flag in script_flags(task, script):
                key = (f"`{flag.name}{_flag_value(flag)}`", _default(flag.default), flag.help)
                found.setdefault(key, {}).setdefault(name, []).append(script)
    every, single = [], []
    for (flag_text, default, text), by_task in found.items():
        scripts = ", ".join(s for s in SCRIPTS if any(s in having for having in by_task.values()))
        if len(by_task) == len(core):
            every.append(row(flag_text, scripts, default, text))
        else:
            single.append(row(flag_text, ", ".join(by_task), scripts, default, text))
    return every, sorted(single)


def _is_core(task: type) -> bool:
    file = sys.modules[task.__module__].__file__
    return file is not None and Path(file).resolve().is_relative_to(ROOT / "utils")


def _flag_value(flag: Flag) -> str:
    if flag.type is str2bool:
        return ""
    text = str(flag.metavar or _choices(flag.choices) or flag.key.upper())
    return f" [{text}]" if flag.nargs == "?" else f" {text}"


def _default(value: Any) -> str:
    """Return the text of a default; paths are relative to the repository."""
    if value is None or value is False or value in ("", [], ()):
        return ""
    words: Sequence[Any] = value if isinstance(value, (list, tuple)) else [value]
    return f"`{re.sub(re.escape(str(ROOT)) + '/', '', ' '.join(map(str, words)))}`"
