"""Advice that makes a run faster, by the stage that bounds it, and the condition of each entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from utils.advice import SHORT, Advice, InUse, advice, still_open

if TYPE_CHECKING:
    from engine import Engine
    from utils.tasks.base import Options, Task

_MANY = 4
"""Workers per core from which more workers are not advised."""


@dataclass(frozen=True)
class Course:
    """The facts on a run that advice depends on.

    Attributes:
        wall: seconds. samples: run in that time. cores: usable cores.
        full: all cores are busy. turns: preprocessing threads wait for one another's interpreter lock.
        simulated: the engine is a simulated device, computed on the host. in_use: the flags.
    """

    wall: float
    samples: int
    cores: int
    full: bool = False
    turns: bool = False
    simulated: bool = False
    in_use: InUse = field(default_factory=InUse)

    @property
    def target(self) -> str:
        """The target's name; empty if unknown."""
        return str(self.in_use.flags.get("target", ""))

    @property
    def take_turns(self) -> bool:
        """Whether threads wait for the interpreter lock while cores are idle."""
        return self.turns and not self.full

    @property
    def more_workers(self) -> bool:
        """Whether more workers may help."""
        workers = self.in_use.flags.get("workers")
        return not self.full and (workers is None or workers < _MANY * self.cores)

    @property
    def larger_batch(self) -> bool:
        """Whether there are enough samples for a larger batch."""
        return int(self.in_use.flags.get("batch_size", 1)) < self.samples


_BEFORE_ENGINE = ("decode", "preprocess")
_TURNS = "--worker_mode process, as threads take turns in the interpreter here"
_HOST = ("", "onnx", "cpu")
"""Targets that compute on the host; an unknown target counts as one."""

_INT8 = "--dtype int8, where the metric allows it"

TABLE: tuple[Advice[Course], ...] = (
    Advice("disk", "keep the data on a faster disk, or in memory"),
    *(Advice(s, _TURNS, {"worker_mode": "process"}, lambda run: run.take_turns) for s in _BEFORE_ENGINE),
    *(Advice(s, "more --workers", {}, lambda run: run.more_workers) for s in _BEFORE_ENGINE),
    *(Advice(s, "more cores", {}, lambda run: run.full) for s in _BEFORE_ENGINE),
    Advice("engine", "a real card: this host computes what the simulated one would", {}, lambda run: run.simulated),
    Advice("engine", f"--target cpu {_INT8}", {"target": "cpu"}, lambda run: run.target in ("", "onnx")),
    Advice("engine", _INT8, {"dtype": "int8"}, lambda run: run.target == "cpu"),
    Advice("engine", "more cores", {}, lambda run: run.full and run.target in _HOST),
    Advice(
        "engine", "--dtype float16, where the metric allows it", {"dtype": "float16"}, lambda run: run.target == "cuda"
    ),
    Advice("engine", "a larger --batch_size", {}, lambda run: run.target == "cuda" and run.larger_batch),
    Advice("postprocess", "a larger --batch_size", {}, lambda run: run.larger_batch),
)
"""Advice by stage, most effective first."""


@dataclass(frozen=True)
class OwnAdvice:
    """Facts known before a run: the task's advice by stage (:attr:`Task.advice`), and the flags."""

    words: Mapping[str, str] = field(default_factory=dict)
    in_use: InUse = field(default_factory=InUse)

    @classmethod
    def of(cls, task: Task, options: Options, engines: Mapping[str, Engine]) -> OwnAdvice:
        """Return the facts of a task's run, with the resolved values of the flags."""
        names = ("target", "batch_size", "workers", "worker_mode", *getattr(options, "flags", ()))
        flags = {name: getattr(options, name) for name in names if hasattr(options, name)}
        dtypes = {engine.dtype for engine in engines.values()}
        flags["dtype"] = getattr(options, "dtype", None) or (dtypes.pop() if len(dtypes) == 1 else None)
        orders = {flag.key: tuple(flag.choices) for flag in task.flags if flag.exact is not None and flag.choices}
        return cls(task.advice, InUse(flags, orders))


def helps_most(stage: str, run: Course, own: Mapping[str, str]) -> str:
    """Return the most effective advice for the stage that bounds a run; empty if there is none.

    Args:
        stage: that bounds the run. run: facts on it.
        own: the task's advice by stage, which replaces the common one; before the engine only if all cores are busy,
            as otherwise more threads are the cheaper way.
    """
    if run.wall < SHORT:
        return ""
    common = next(advice(TABLE, stage, run.in_use, run), "")
    if (stage in _BEFORE_ENGINE and not run.full) or (stage == "engine" and run.simulated):
        return common
    return still_open(own.get(stage, ""), run.in_use) or common
