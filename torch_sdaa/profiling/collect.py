"""Collection of the activities of host and devices between two moments, without judgement."""

from __future__ import annotations

import functools
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from torch_sdaa.loading.core import C
from torch_sdaa.profiling.naming import Called, ModuleNames

OP, BACKWARD, RANGE, RUNTIME, LAUNCH = range(5)
"""Types of host spans, with the numbers of ``csrc/host_spans.h``."""

EVALUATED = "autograd::engine::evaluate_function: "
"""Prefix of spans in which autograd evaluates a node."""

CLOSURE = "closure of an optimizer"
"""Name of the span of an optimizer's closure, the script's forward and backward."""

LARGEST = 1 << 21
"""Maximum number of host spans in a profile; about half a GB of memory during the evaluation."""

_WORKER = 0x8000

_LONGEST_ROUND = 8
"""Maximum optimizer steps per round; more are phases of a training, one optimizer after the other."""


class Steps:
    """Optimizer steps of a training with one or several optimizers, recorded as they return."""

    def __init__(self) -> None:
        self._numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._found: list[tuple[int, int]] = []
        self._next = 0

    def __len__(self) -> int:
        return len(self._found)

    def add(self, optimizer: Any, at: int) -> None:
        """Record that an optimizer's step returned, ``at`` nanoseconds."""
        if optimizer not in self._numbers:
            self._numbers[optimizer] = self._next
            self._next += 1
        self._found.append((self._numbers[optimizer], at))

    def most(self) -> int:
        """Return the number of steps of the optimizer that steps most often."""
        return max(Counter(number for number, _ in self._found).values(), default=0)

    def rounds(self) -> list[int]:
        """Return the end of each training step, nanoseconds; a round if optimizers take turns."""
        every = [at for _, at in self._found]
        kinds = len({number for number, _ in self._found})
        ended: list[int] = []
        seen: Counter[int] = Counter()
        longest = 0
        for number, at in self._found:
            seen[number] += 1
            longest = max(longest, seen.total())
            if len(seen) == kinds:
                ended.append(at)
                seen.clear()
        return ended if len(ended) > 1 and longest <= _LONGEST_ROUND else every


class HostSpan(NamedTuple):
    """An activity of a host thread; times in nanoseconds of this machine's clock.

    Attributes:
        doing: one of the five types above. name: index in ``names``. thread: the highest bit marks threads of autograd.
        sequence, maker: sequence number of the autograd node that is made or run, and the thread that made it.
        line: index in ``lines``, or -1. module: index in ``modules``, or -1.
        at: of a launch, its index in the log.
    """

    doing: int
    name: int
    thread: int
    begin: int
    end: int
    sequence: int
    maker: int
    line: int
    module: int
    at: int

    @property
    def worker(self) -> bool:
        """Whether an autograd thread ran it, for the thread that called backward."""
        return bool(self.thread & _WORKER)


class DeviceSpan(NamedTuple):
    """An activity of a device; simulated seconds. ``what``: 0 kernel, 1 copy in, 2 copy out, 3 and 4 between
    devices.
    """

    signature: int
    what: int
    device: int
    stream: int
    start: float
    end: float
    at: int


class Signature(NamedTuple):
    """A distinct launch: operator, operands as (dtype, bytes, sizes), operations, price, whether the host waits."""

    op: str
    inputs: list[Any]
    outputs: list[Any]
    flops: float
    seconds: float
    assumed: float
    waits: bool


@dataclass
class Collected:
    """The collected data.

    Attributes:
        begin, end: of the profile, nanoseconds. thread: the profiled one.
        host, device, signatures, names, lines, modules: see above; a line is (file, function, number).
        steps: return times of the optimizer steps, nanoseconds; with several optimizers, of complete rounds.
        turns: optimizer steps per round. repeats: those of the optimizer that steps most often.
        clocks: times of each used device at the beginning and at the end.
        compiled: compilations of torch.compile. dropped: number of spans dropped for lack of memory.
        called: modules called by each line of the script, by file and line.
    """

    begin: int
    end: int = 0
    thread: int = 0
    host: list[HostSpan] = field(default_factory=list)
    device: list[DeviceSpan] = field(default_factory=list)
    signatures: list[Signature] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    lines: list[tuple[str, str, int]] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    turns: int = 1
    repeats: int = 1
    clocks: dict[int, tuple[dict[str, float], dict[str, float]]] = field(default_factory=dict)
    compiled: list[dict[str, Any]] = field(default_factory=list)
    dropped: int = 0
    called: dict[tuple[str, int], Called] = field(default_factory=dict)


class Collector:
    """Collects from :meth:`start` to :meth:`stop`, once; one at a time per process.

    Args:
        on_step: called after each optimizer step with the number of returned steps.
    """

    def __init__(self, on_step: Callable[[int], None] | None = None) -> None:
        self._on_step = on_step
        self._modules = ModuleNames()
        self._steps = Steps()
        self._found = Collected(0)
        self._hooks: list[Any] = []
        self._compiled: list[Any] = []

    def start(self) -> None:
        """Start collecting; raise RuntimeError if another collector is active."""
        C.watch_host(_skipped(), LARGEST)
        C.trace_in_full(True)
        self._clocks = [dict(C.times(i)) for i in range(C.device_count())]
        self._compiled = _compilations()
        self._modules.start()
        self._hooks = [
            register_optimizer_step_pre_hook(_with_closure_named),
            register_optimizer_step_post_hook(self._stepped),
        ]
        self._found.begin = time.perf_counter_ns()

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        self._steps.add(optimizer, time.perf_counter_ns())
        if self._on_step is not None:
            self._on_step(len(self._steps))

    def stop(self) -> Collected:
        """Stop collecting, and return the data."""
        found = self._found
        found.end = time.perf_counter_ns()
        for hook in self._hooks:
            hook.remove()
        self._modules.stop()
        found.steps = self._steps.rounds()
        rounds = max(len(found.steps), 1)
        found.turns, found.repeats = (max(1, round(count / rounds)) for count in (len(self._steps), self._steps.most()))
        host = C.watched_host()
        spans, signatures, dropped = C.trace_in_full(False)
        found.thread, found.names, found.lines = host["thread"], host["names"], host["lines"]
        found.host = _nodes_whole([HostSpan(*span) for span in host["host"]], found.names)
        found.device = [DeviceSpan(*span) for span in spans]
        found.signatures = [Signature(*what, *cost) for what, *cost in signatures]
        found.modules = self._modules.names
        skipped = tuple(_skipped())
        found.called = {at: one for at, one in self._modules.called.items() if not at[0].startswith(("<", *skipped))}
        found.dropped = host["dropped"] + dropped
        for i, before in enumerate(self._clocks):
            after = dict(C.times(i))
            if after["launches"] != before["launches"]:
                found.clocks[i] = (before, after)
        known = set(map(id, self._compiled))  # kept alive, so that ids are not reused
        found.compiled = [_compilation(one) for one in _compilations() if id(one) not in known]
        return found


def _with_closure_named(
    optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return a step's arguments with its closure in a named span; ``None`` if it has no closure."""
    _, *given = args  # the first is the optimizer
    if given and callable(given[0]):
        return (optimizer, _named(given[0]), *given[1:]), kwargs
    if callable(kwargs.get("closure")):
        return args, {**kwargs, "closure": _named(kwargs["closure"])}
    return None


def _named(closure: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(closure)
    def named(*args: Any, **kwargs: Any) -> Any:
        with torch.autograd.profiler.record_function(CLOSURE):
            return closure(*args, **kwargs)

    return named


def _nodes_whole(spans: list[HostSpan], names: list[str]) -> list[HostSpan]:
    """Turn autograd's evaluation spans, which PyTorch reports as operators, into spans of their nodes.

    The node's own span, with the sequence number, is inside; sums over broadcast dimensions follow it.
    """
    whole = {i for i, name in enumerate(names) if name.startswith(EVALUATED)}
    around: dict[int, int] = {}
    for i, span in enumerate(spans):
        if span.doing == OP and span.name in whole:
            spans[i] = span._replace(doing=BACKWARD, sequence=-1)
            around[span.thread] = i
        elif span.doing == BACKWARD and span.thread in around:
            outer = around[span.thread]
            if spans[outer].sequence < 0 and span.end <= spans[outer].end:
                spans[outer] = spans[outer]._replace(sequence=span.sequence, maker=span.maker)
    return spans


def _skipped() -> list[str]:
    """Return path prefixes of files whose lines are not reported: PyTorch, this package and the standard library."""
    ours = Path(__file__).resolve().parents[1]
    standard = Path(sysconfig.get_paths()["stdlib"])
    # Installed packages may be inside the standard library's folder.
    parts = [part for part in standard.iterdir() if part.name not in ("site-packages", "dist-packages")]
    folders = [str(Path(torch.__file__).parent) + "/", f"{ours}/"]
    return [*folders, *(f"{part}/" if part.is_dir() else str(part) for part in parts)]


def _compilations() -> list[Any]:
    """Return PyTorch's records of the compilations in this process; [] without torch.compile."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return [] if dynamo is None else [one for one in dynamo.get_compilation_metrics() if one.is_forward is not False]


def _compilation(one: Any) -> dict[str, Any]:
    # for a module of PyTorch, the compiled function is a wrapper of PyTorch
    inside = str(one.co_filename).startswith(str(Path(torch.__file__).parent))
    return {
        "function": "a module of PyTorch" if inside else str(one.co_name),
        "file": "" if inside else str(one.co_filename),
        "line": 0 if inside else int(one.co_firstlineno or 0),
        "reason": str(one.recompile_reason or ""),
    }
