"""The table of ``teco``'s commands, each imported only when it is called."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from engine import ConfigError
from tecoinfer_modelzoo.text import did_you_mean

COMMANDS = {
    "check": ("model_config.check:command", "check models as a pull request is checked"),
    "list": ("toolkit.commands.list:main", "every model of the zoo"),
    "info": ("toolkit.commands.info:main", "what there is to know of one model"),
    "run": ("toolkit.commands.run:main", "run a model's export, valid, single or multi script"),
    "new": ("toolkit.commands.new:main", "begin a model: a folder that already runs"),
    "fetch": ("toolkit.commands.fetch:main", "take model and data files out of packages, installing nothing"),
    "profile": ("toolkit.commands.profile:main", "where a model's time goes, and what would make it less"),
    "table": ("toolkit.commands.table:main", "what models cost: parameters, multiply-adds, simulated times and memory"),
    "site": ("toolkit.commands.site:main", "write one HTML page about the whole zoo"),
    "compare": ("toolkit.commands.compare:main", "compare every node of a model on two engines"),
    "dump": ("toolkit.commands.dump:main", "keep the values inside a model, and compare two such dumps"),
    "overflow": ("toolkit.commands.overflow:main", "where float16 is too narrow for a model"),
    "fix": ("toolkit.commands.fix:main", "find the nodes that must stay float32 for the accuracy gate to pass"),
    "ops": ("toolkit.commands.ops:main", "which operators a model needs, and whether the target has them"),
    "optest": ("toolkit.commands.optest:main", "cut one node out of a model as a test case"),
    "train": ("toolkit.commands.train:main", "tools for trainings: gate, compare, replay, profile, ops"),
    "msaccucmp": (
        "toolkit.commands.msaccucmp:main",
        "compare and convert dumps of trainings, in another vendor's words",
    ),
    "transplant": ("toolkit.commands.transplant:main", "move a CUDA training script onto the card, by its source"),
    "completion": ("toolkit.commands.completion:main", "print a script that completes commands in your shell"),
}
"""Every command: ``module:function`` and one line of help. The function takes the arguments, returns the exit code."""

TRAIN = {
    "gate": "toolkit.commands.train_gate:main",
    "compare": "toolkit.commands.compare_train:main",
    "replay": "toolkit.commands.replay_op:main",
    "profile": "toolkit.commands.profile_train:main",
    "ops": "toolkit.commands.ops_training:train_ops",
}
"""The tools of ``teco train``: ``module:function``."""

HIDDEN = {
    "_complete": "toolkit.commands.completion:complete",
    "train-gate": TRAIN["gate"],
    "compare-train": TRAIN["compare"],
    "replay-op": TRAIN["replay"],
    "profile-train": TRAIN["profile"],
}
"""Commands that the help does not list: one for completion scripts, and the earlier names of ``teco train``'s tools."""

SUPERVISED = frozenset(
    (
        *("info", "profile", "table", "compare", "dump", "overflow", "fix", "ops", "optest", "msaccucmp"),
        *("train compare", "train replay", "train ops", "compare-train", "replay-op"),
    )
)
"""Commands that use native code: below a parent process with limits (tecoinfer_modelzoo.process.supervise)."""


def is_supervised(words: Sequence[str]) -> bool:
    """Return whether a command line, without ``teco``, runs below a parent process with limits."""
    return bool(words) and (words[0] in SUPERVISED or " ".join(words[:2]) in SUPERVISED)


def command(name: str) -> Callable[[Sequence[str]], int]:
    """Import a command.

    Raises:
        ConfigError: there is no command of this name.
    """
    where = HIDDEN[name] if name in HIDDEN else COMMANDS.get(name, ("", ""))[0]
    if not where:
        names = ", ".join(COMMANDS)
        raise ConfigError(f"unknown command {name!r};{did_you_mean(name, COMMANDS)} commands: {names}")
    return load_function(where)


def load_function(where: str) -> Callable[[Sequence[str]], int]:
    """Import ``module:function``."""
    module, _, function = where.partition(":")
    found: Callable[[Sequence[str]], int] = getattr(importlib.import_module(module), function)
    return found
