"""The table of the ``teco`` commands; each module is imported when its command is called."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from engine import ConfigError
from tecoinfer_modelzoo.text import did_you_mean

COMMANDS = {
    "check": ("model_config.check:command", "check models as a pull request is checked"),
    "list": ("toolkit.commands.list:main", "list the models of the zoo"),
    "info": ("toolkit.commands.info:main", "show one model: cases, flags, files, metrics"),
    "run": ("toolkit.commands.run:main", "run the export, valid, single or multi script of a model"),
    "new": ("toolkit.commands.new:main", "create a model folder that runs"),
    "fetch": ("toolkit.commands.fetch:main", "download model and data files out of packages"),
    "profile": ("toolkit.commands.profile:main", "show the time of each node and the bottlenecks"),
    "table": ("toolkit.commands.table:main", "tabulate parameters, multiply-adds, simulated time and memory"),
    "site": ("toolkit.commands.site:main", "write an HTML page about all models"),
    "compare": ("toolkit.commands.compare:main", "compare every node of a model on two engines"),
    "dump": ("toolkit.commands.dump:main", "store the tensors of a model, or compare two dumps"),
    "overflow": ("toolkit.commands.overflow:main", "find values that float16 cannot represent"),
    "fix": ("toolkit.commands.fix:main", "find the nodes that must stay float32 to pass the accuracy gate"),
    "ops": ("toolkit.commands.ops:main", "list the operators of a model and their support on a target"),
    "optest": ("toolkit.commands.optest:main", "extract one node of a model as a test case"),
    "train-gate": ("toolkit.commands.train_gate:main", "test whether a training converges on a device as on the CPU"),
    "compare-train": ("toolkit.commands.compare_train:main", "compare two training dumps operator by operator"),
    "replay-op": ("toolkit.commands.replay_op:main", "rerun one operator of a training dump"),
    "msaccucmp": ("toolkit.commands.msaccucmp:main", "compare or convert training dumps, with Ascend's flags"),
    "profile-train": ("toolkit.commands.profile_train:main", "show the time of a training and its bottlenecks"),
    "transplant": ("toolkit.commands.transplant:main", "migrate a CUDA training script to the card"),
    "completion": ("toolkit.commands.completion:main", "print a completion script for your shell"),
}
"""Every command: ``module:function`` and one line of help. The function takes the arguments, returns the exit code."""

SUPERVISED = frozenset(
    (
        *("info", "profile", "table", "compare", "dump", "overflow", "fix", "ops", "optest"),
        *("compare-train", "replay-op", "msaccucmp"),
    )
)
"""Commands that call native code, and run under a parent process (tecoinfer_modelzoo.process.supervise)."""

HIDDEN = {"_complete": "toolkit.commands.completion:complete"}
"""Commands for scripts, not listed in the help."""


def command(name: str) -> Callable[[Sequence[str]], int]:
    """Import a command and return its function.

    Raises:
        ConfigError: the name is unknown.
    """
    where = HIDDEN[name] if name in HIDDEN else COMMANDS.get(name, ("", ""))[0]
    if not where:
        names = ", ".join(COMMANDS)
        raise ConfigError(f"unknown command {name!r};{did_you_mean(name, COMMANDS)} commands: {names}")
    module, _, function = where.partition(":")
    found: Callable[[Sequence[str]], int] = getattr(importlib.import_module(module), function)
    return found
