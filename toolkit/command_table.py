"""The table of the ``teco`` commands; each module is imported when its command is called."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from engine import ConfigError
from tecoinfer_modelzoo.text import did_you_mean

COMMANDS = {
    "check": ("model_config.check:command", "check models as a pull request is checked"),
    "list": ("toolkit.commands.list:main", "list the models of the zoo"),
    "models": ("toolkit.commands.list:main", "the same as list"),
    "info": ("toolkit.commands.info:main", "show one model: cases, flags, files, metrics"),
    "run": ("toolkit.commands.run:main", "run the export, valid, single or multi script of a model"),
    "new": ("toolkit.commands.new:main", "create a model folder that runs, or copy a model under a new name"),
    "adapt": ("toolkit.adapt.cli:main", "adapt a model: export, data, folder, gate, check, in one command"),
    "fetch": ("toolkit.commands.fetch:main", "copy models into a project, download files of packages"),
    "profile": ("toolkit.commands.profile:main", "show the time of each node and the bottlenecks"),
    "table": ("toolkit.commands.table:main", "tabulate parameters, multiply-adds, simulated time and memory"),
    "report": ("toolkit.report.cli:main", "write one page about a model, to send"),
    "site": ("toolkit.commands.site:main", "write an HTML page about all models"),
    "compare": ("toolkit.commands.compare:main", "compare every node of a model on two engines"),
    "dump": ("toolkit.commands.dump:main", "store the tensors of a model, or compare two dumps"),
    "overflow": ("toolkit.commands.overflow:main", "find values that float16 cannot represent"),
    "fix": ("toolkit.commands.fix:main", "find the nodes that must stay float32 to pass the accuracy gate"),
    "ops": ("toolkit.commands.ops:main", "list the operators of a model and their support on a target"),
    "optest": ("toolkit.commands.optest:main", "extract one node of a model as a test case"),
    "train": ("toolkit.commands.train:main", "gate, compare, replay, profile or list the operators of trainings"),
    "msaccucmp": ("toolkit.commands.msaccucmp:main", "compare or convert training dumps, with Ascend's flags"),
    "transplant": ("toolkit.commands.transplant:main", "migrate a CUDA training script to the card"),
    "serve": ("toolkit.commands.serve:main", "serve models over the network (REST, gRPC)"),
    "export-repository": ("toolkit.commands.serve:export_repository", "write a model repository for Triton"),
    "completion": ("toolkit.commands.completion:main", "print a completion script for your shell"),
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
        *("info", "profile", "table", "report", "compare", "dump", "overflow", "fix", "ops", "optest", "msaccucmp"),
        *("adapt", "train compare", "train replay", "train ops", "compare-train", "replay-op"),
    )
)
"""Commands that call native code, and run under a parent process (tecoinfer_modelzoo.process.supervise)."""


def is_supervised(words: Sequence[str]) -> bool:
    """Return whether a command line, without ``teco``, runs below a parent process with limits."""
    return bool(words) and (words[0] in SUPERVISED or " ".join(words[:2]) in SUPERVISED)


def command(name: str) -> Callable[[Sequence[str]], int]:
    """Import a command and return its function; raise ConfigError if the name is unknown."""
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
