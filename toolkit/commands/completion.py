"""Print a script that completes the commands, models, steps and flags of teco in your shell.

bash: add  source <(teco completion bash)   to ~/.bashrc
zsh:  add  source <(teco completion zsh)    to ~/.zshrc, after compinit
fish: run  teco completion fish > ~/.config/fish/completions/teco.fish
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from engine import ConfigError
from model_config.cases.config import ROOT, STEPS
from tecoinfer_modelzoo.text import did_you_mean
from toolkit.arguments import Parser
from toolkit.command_table import COMMANDS, TRAIN, command
from toolkit.zoo import domains, find_model, load_zoo

SCRIPTS = {
    "bash": """\
_teco() {
    local IFS=$'\\n'
    COMPREPLY=($(teco _complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _teco teco
""",
    "zsh": """\
_teco() {
    local -a found
    found=("${(@f)$(teco _complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "$found" ]]; then compadd -- $found; else _files; fi
}
compdef _teco teco
""",
    "fish": """\
complete -c teco -a '(set -l typed (commandline -opc); teco _complete $typed[2..] (commandline -ct) 2>/dev/null)'
""",
}
"""Script of each shell: calls ``teco _complete`` with the words typed so far, and completes files if it prints none."""

_HELP_FLAG = re.compile(r"(?<![\w-])--[A-Za-z][\w-]*")


def main(argv: Sequence[str]) -> int:
    """Print the completion script of a shell."""
    parser = Parser("teco completion", __doc__)
    parser.add_argument("shell", metavar="SHELL", help=f"one of: {', '.join(SCRIPTS)}")
    shell = parser.parse_args(argv).shell
    if shell not in SCRIPTS:
        raise ConfigError(f"unknown shell {shell!r};{did_you_mean(shell, SCRIPTS)} shells: {', '.join(SCRIPTS)}")
    print(SCRIPTS[shell], end="")
    return 0


def complete(argv: Sequence[str], root: Path = ROOT) -> int:
    """Print the completions of the last word, one per line."""
    for word in candidates(argv or [""], root):
        print(word)
    return 0


def candidates(words: Sequence[str], root: Path = ROOT) -> list[str]:
    """Return the sorted completions of the last word."""
    *before, current = words
    if not before:
        found: Iterable[str] = [*COMMANDS, "help", "--help", "--version"]
    elif before[-1] in _VALUES:
        found = _VALUES[before[-1]](root)
    elif current.startswith("-"):
        found = _flags(before, root)
    else:
        found = _positional(before, root)
    return sorted({word for word in found if word.startswith(current)})


def _models(root: Path) -> list[str]:
    return [word for model in load_zoo(root).models for word in model.words[:2]]


def _cases(root: Path) -> list[str]:
    return [case.name for model in load_zoo(root).models for case in model.cases]


def _targets(root: Path) -> list[str]:
    from engine import available_targets

    return available_targets()


def _tasks(root: Path) -> list[str]:
    from utils.tasks.find import add_contrib, tasks

    add_contrib(root)
    return list(tasks())


def _fetchable(root: Path) -> list[str]:
    with contextlib.suppress(ConfigError):
        return [*_packages(root), *_models(root)]
    return _packages(root)


def _packages(root: Path) -> list[str]:
    from utils.fetch import packages
    from utils.tasks.find import add_contrib

    add_contrib(root)
    return list(packages())


_VALUES: dict[str, Callable[[Path], list[str]]] = {"--case": _cases, "--target": _targets, "--task": _tasks}
"""Flags with a known set of values."""

_POSITIONAL: dict[str, tuple[Callable[[Path], Iterable[str]], ...]] = {
    "run": (_models, lambda root: STEPS),
    "info": (_models,),
    "new": (domains,),
    "completion": (lambda root: SCRIPTS,),
    "train": (lambda root: TRAIN,),
}
"""Values of the positional arguments of a command, in order."""

_ANY_NUMBER: dict[str, Callable[[Path], list[str]]] = {"check": _cases, "fetch": _fetchable}
"""Commands that take any number of arguments of one kind."""


def _positional(before: Sequence[str], root: Path) -> Iterable[str]:
    command, *rest = before
    if command == "help":
        return COMMANDS
    if command in _ANY_NUMBER:
        return _ANY_NUMBER[command](root)
    kinds = _POSITIONAL.get(command, ())
    place = len(_plain(rest))
    return kinds[place](root) if place < len(kinds) else []


def _plain(words: Sequence[str]) -> list[str]:
    """Return the words that are neither flags nor values of the flags in :data:`_VALUES`."""
    pairs = zip(["", *words], words, strict=False)
    return [word for before, word in pairs if not word.startswith("-") and before not in _VALUES]


def _flags(before: Sequence[str], root: Path) -> list[str]:
    """Return the flags in the help of a command, or for ``run MODEL STEP`` those of the model's script."""
    name, *rest = before
    plain = _plain(rest)
    if name == "run" and len(plain) >= 2:
        return ["--case", "--help", *find_model(plain[0], load_zoo(root).models)[0].flags(plain[1])]
    if name not in COMMANDS:
        return []
    tool = [word for word in plain[:1] if name == "train" and word in TRAIN]
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        command(name)([*tool, "--help"])
    return _HELP_FLAG.findall(text.getvalue())
