"""A process per contestant, which opens its model once and then runs turns on request.

The start of the process, imports and the opening of the model are not timed. A turn is measured by wall seconds and CPU
seconds inside the process, children included; memory from outside, in a turn that is not timed.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import psutil

from engine import Array, TecoInferError
from parts.peers import PEERS, Contestant, Setup, quiet
from tecoinfer_modelzoo.text import one_line

SAMPLE_SECONDS = 0.05
"""Interval of memory measurements."""


class Turn(NamedTuple):
    """Seconds of one turn; ``cpu`` is summed over threads and child processes."""

    seconds: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Start:
    """Result of a start: ``note`` is the description, or the reason why it cannot run (``ready`` is false)."""

    ready: bool
    note: str


def _serve(pipe: Connection, name: str, setup: Setup) -> None:
    """Run a contestant: the child process of :class:`Process`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the benchmark ends its children on interrupt
    quiet()
    try:
        contestant = PEERS[name][0](setup)
    except (TecoInferError, ImportError) as error:
        pipe.send(Start(False, one_line(error)))
        return
    pipe.send(Start(True, contestant.note))
    try:
        while (command := pipe.recv()) != "end":
            pipe.send(_checked(contestant) if command == "check" else _timed(contestant.turn))
    except TecoInferError as error:
        pipe.send(Start(False, one_line(error)))
    except EOFError:  # the benchmark was killed
        return


def _checked(contestant: Contestant) -> Array:
    scores = contestant.turn()
    return contestant.check() if contestant.check else scores


def _timed(turn: Any) -> tuple[Turn, Array]:
    cpu, start = _cpu_seconds(), time.perf_counter()
    scores = turn()
    seconds = time.perf_counter() - start
    return Turn(seconds, _cpu_seconds() - cpu), scores


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process, its children that live, and those that ended and were waited for."""
    total, process = 0.0, psutil.Process()
    for one in (process, *process.children(recursive=True)):
        times = one.cpu_times()
        total += times.user + times.system
    own = process.cpu_times()
    return total + own.children_user + own.children_system


class UnavailableError(Exception):
    """A contestant was started, but cannot run this model; the text is the reason."""


class Process:
    """One contestant in a separate process; close it when done.

    Attributes:
        start: whether it can run, and its description.
        peak: largest memory in bytes during the check, the process and its children.
    """

    def __init__(self, name: str, setup: Setup) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, far = context.Pipe()
        self._process = context.Process(target=_serve, args=(far, name, setup), name=name)
        self._process.start()
        far.close()
        self.name = name
        self.peak = 0

    def started(self) -> Start:
        """Wait until the model is open."""
        start = self._receive()
        assert isinstance(start, Start)
        return start

    def check(self) -> Array:
        """Run a turn that is not timed, measure its memory, and return its scores.

        Raises:
            UnavailableError: it cannot run.
        """
        self._pipe.send("check")
        ended = False
        while not ended:
            ended = self._pipe.poll(SAMPLE_SECONDS)
            self.peak = max(self.peak, _memory(psutil.Process(self._process.pid)))
        scores: Array | Start = self._receive()
        if isinstance(scores, Start):
            raise UnavailableError(scores.note)
        return scores

    def turn(self) -> tuple[Turn, Array]:
        """Run a turn; return its times and its scores."""
        self._pipe.send("turn")
        result: tuple[Turn, Array] = self._receive()
        return result

    def close(self) -> None:
        """End the process, also in the middle of a turn."""
        if self._process.is_alive():
            for child in psutil.Process(self._process.pid).children(recursive=True):
                child.terminate()
            self._process.terminate()
        self._process.join()
        self._pipe.close()

    def _receive(self) -> Any:
        try:
            return self._pipe.recv()
        except EOFError:
            self._process.join()
            code = self._process.exitcode
            raise SystemExit(f"{self.name!r} ended with exit code {code}; see above for the reason") from None


def _memory(process: psutil.Process) -> int:
    """Return the memory of a process and its children; pages that several of them share count once (PSS)."""
    total = 0
    for one in (process, *process.children(recursive=True)):
        try:
            memory = one.memory_full_info()
            total += getattr(memory, "pss", memory.rss)
        except (psutil.NoSuchProcess, psutil.AccessDenied):  # a child that just ended
            continue
    return total
