"""A case: a folder of files, a command on them, and the check of its result."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parents[2]

CODES = frozenset({0, 1, 2, 3, 4, 130})
"""Exit codes of the zoo's commands."""


@dataclass(frozen=True)
class Outcome:
    """Result of a command.

    Attributes:
        code: exit code; minus the number of the signal that ended it; ``None`` if it had to be killed.
        out, err: output; invalid UTF-8 is escaped.
        seconds: wall time.
        memory: peak memory in bytes. left: command lines of processes that are still running.
    """

    code: int | None
    out: str
    err: str
    seconds: float
    memory: int
    left: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
        words: arguments of ``python``: a script and its arguments, or ``-m``, a module and its arguments.
        what: description of the changes to the files.
        judge: returns the finding of an outcome that passed the general checks, or ``None``.
        excused: returns the reason if a signal is not an error of the zoo (it also ends the runtime alone).
        codes: valid exit codes. env: environment variables in addition to those of every case.
        interrupts: seconds after the start at which Ctrl-C (SIGINT to the whole group) is sent.
        most_memory: memory limit of the command in bytes.
    """

    words: tuple[str, ...]
    what: str
    judge: Callable[[Outcome], str | None] = lambda outcome: None
    excused: Callable[[Outcome], str | None] = lambda outcome: None
    codes: frozenset[int] = CODES
    env: Mapping[str, str] = field(default_factory=dict)
    interrupts: tuple[float, ...] = ()
    most_memory: int = 4 << 30


class Kind(Protocol):
    """A module of :mod:`tests.fuzz.kinds`."""

    WARM: tuple[str, ...]
    """Modules without threads to import once before the cases, which run in forks: a start takes milliseconds."""

    def make(self, rng: random.Random, folder: Path, number: int) -> Case:
        """Write the files of a case into an empty folder, which is the command's working folder, and return it.

        The same state of ``rng`` and the same ``number`` (0, 1, ...) make the same case.
        """
        ...
