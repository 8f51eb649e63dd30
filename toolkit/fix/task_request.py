"""Task selected on the command line, its model and its options."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import ConfigError
from utils.pipeline.flags.options import COMMON, MODEL, Options, options
from utils.tasks.base import Task, task_class

_OURS = ("batch_size", "dim", "input_shapes", "input_name")
"""Common flags of the scripts that determine the model's inputs; the others configure runs and are rejected here."""


@dataclass(frozen=True)
class TaskRequest:
    """Task selected on the command line.

    Attributes:
        task: the task; a legacy task is converted to a class. flags: its flags, as words.
        model_name: name of the model in the task; empty if the task has one model.
        others: ONNX files of the other models by name.
        defaults: default values of flags by key, such as those of a model's script.
    """

    task: type[Task]
    flags: Sequence[str] = ()
    model_name: str = ""
    others: Mapping[str, Path] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "task", task_class(self.task))

    @property
    def name(self) -> str:
        """Name of the model in the task; raises ConfigError if it is missing, unknown, or given for one model only."""
        known = self.task.models
        if not known:
            if self.model_name or self.others:
                raise ConfigError(f"task {self.task.name} has one model; leave out --model_name and --ckpt")
            return MODEL
        if self.model_name not in known:
            flag = f"--model_name {self.model_name}" if self.model_name else "no --model_name"
            raise ConfigError(f"{flag}: task {self.task.name} has the models {', '.join(known)}; pass one of them")
        return self.model_name

    def options(self, path: Path, data: Sequence[str], batch: int, dims: Mapping[str, Sequence[int]]) -> Options:
        """Return the task's options for the model at ``path``; raise ConfigError for a flag that is invalid or not
        supported here.

        ``data``: data paths, each ``PATH`` or ``NAME=PATH``; ``batch``: samples per call; ``dims``: sizes of symbolic
        dimensions.
        """
        files = {**self.others, self.name: path} if self.task.models else path
        words = ["--data_path", *data] if data else []
        words += ["--batch_size", str(batch)]
        if dims:
            words += ["--dim", *(f"{symbol}={','.join(map(str, sizes))}" for symbol, sizes in dims.items())]
        found = self._parsed([*words, *self.flags], files)
        own = {flag.key for flag in self.task.flags}
        for flag in COMMON:
            if flag.key not in (*_OURS, *own) and getattr(found, flag.key) != flag.default:
                raise ConfigError(f"{flag.name} is a flag of the scripts and not supported here; leave it out")
        if found.batch_size != batch:
            raise ConfigError(f"--batch_size {found.batch_size} after --: pass --batch_size before it")
        return found

    def _parsed(self, words: Sequence[str], files: Path | Mapping[str, Path]) -> Options:
        printed = io.StringIO()
        try:
            with redirect_stderr(printed):
                return options(
                    f"The flags of task {self.task.name}.", self.task, "valid", words, ckpt=files, **self.defaults
                )
        except SystemExit as stop:
            if not stop.code:  # --help
                raise
            line = printed.getvalue().strip().splitlines()[-1:] or [""]
            raise ConfigError(f"task {self.task.name}: {line[0].partition('error: ')[2] or line[0]}") from stop
