"""Tiles of target ``tvm`` chosen by measuring (``TECO_TVM_TUNE``), in a process of its own.

A kernel whose largest reduction is computed in tiles (:mod:`engine.backends.tvm_schedule`) can have many of them. The
search measures the schedule's own tile and a number of others: the first half of them drawn at random, the second half
neighbours of the fastest one so far. Each is compiled and run, on random inputs, by a process that is replaced if it
crashes or does not answer in time; the kernel travels there as TVMScript. A tile whose results differ from those of the
own tile is not used. What is found is kept in the cache of the zoo, for each kernel, processor and number of threads.

Run as a program, it is that process: questions on standard input and answers on standard output, as lines of JSON.
Imports tvm inside its functions.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from engine.backends import tvm_schedule
from engine.backends.tvm_schedule import Tile
from engine.host.cores import processor_name
from engine.signature import Array
from tecoinfer_modelzoo.cache import exclusive, read_entry, write_entry
from tecoinfer_modelzoo.errors import ConfigError
from tecoinfer_modelzoo.json_types import Problems, entries, flag, items, number, parsed, text, whole
from tecoinfer_modelzoo.progress import progress

TUNE_VARIABLE = "TECO_TVM_TUNE"
"""Environment variable of the tiles that are measured for each kernel; 0, the default: none."""

MOST_TRIALS = 100_000

VERSION = "random-and-neighbours-1"
"""Part of the key of a result; changed with the search."""

LIMIT = 60.0
"""Seconds in which a tile must be compiled and measured, on a busy machine too."""

MOST_LOST = 10  # processes that crash or do not answer, after which the search for a plan ends
GAIN = 0.97  # share of the own tile's time that another one must stay below, which is more than noise
CLOSE = 1e-5  # largest difference from the results of the own tile, relative to their largest magnitude
SEED = 20261130

_KIND = "tvm_tiles"
_REPEATS, _REPEAT_SECONDS = 5, 0.01  # measurements of a tile, and the seconds of each; the shortest counts
_SHORTEST = 1e-7  # seconds of a call, for a clock that did not advance
_FINALS, _FINALISTS = 3, 3  # further measurements, in turns, of the own tile and the fastest ones; and their number
_GRACE = 5.0  # seconds in which a process whose pipe is closed ends by itself
_LONGEST = 1 << 26  # bytes of an answer

_log = logging.getLogger(__name__)


def trials() -> int:
    """Return the number of :data:`TUNE_VARIABLE`; raise ConfigError if it is not a whole number in its range."""
    given = os.environ.get(TUNE_VARIABLE) or "0"
    if not (given.isascii() and given.isdigit() and len(given) < 10 and int(given) <= MOST_TRIALS):
        raise ConfigError(
            f"{TUNE_VARIABLE}={given[:80]!r} must be the number of tiles to measure for each kernel, such as 32, from "
            f"0 (none) to {MOST_TRIALS}"
        )
    return int(given)


class Tuner:
    """The search for the tiles of kernels.

    Attributes:
        problem: why the search for a plan ended before all kernels were measured, or "".

    Args:
        target: of TVM, as JSON. version: of TVM. count: tiles that are measured for each kernel. threads: of a call.
    """

    def __init__(self, target: str, version: str, count: int, threads: int) -> None:
        self.count, self.problem = count, ""
        self._target, self._threads = target, threads
        self._key = [VERSION, tvm_schedule.VERSION, target, version, processor_name(), threads]

    def tiles(self, kernels: Mapping[str, str]) -> dict[str, Tile]:
        """Return tiles that are faster than the schedule's own ones, by name of the kernel.

        Args:
            kernels: TVMScript by name.
        """
        self.problem = ""
        found: dict[str, Tile | None] = {}
        with exclusive(_KIND), _Process() as process:  # searches side by side would disturb each other's times
            for script in progress(list(dict.fromkeys(kernels.values())), "kernel", "tuning"):
                found[script] = self._recalled_or_searched(script, process)
                if self.problem:
                    break
        chosen = {name: found.get(script) for name, script in kernels.items()}
        return {name: tile for name, tile in chosen.items() if tile is not None}

    def _recalled_or_searched(self, script: str, process: _Process) -> Tile | None:
        key = hashlib.sha256(json.dumps([*self._key, script]).encode()).hexdigest()
        entry = read_entry(_KIND, key)
        try:
            if entry is not None and whole(entry["trials"]) >= self.count:
                return None if entry["tile"] is None else _tile(entry["tile"])
        except Problems as error:
            _log.info("tiles %s are measured again: %s", key, error)
        search = _Search(script, self._target, self._threads, process)
        try:
            tile = search.fastest(self.count)
        except _LostError as error:
            _log.info("a kernel has its own tile: %s", error)
            if process.lost >= MOST_LOST:
                self.problem = f"the process that measures was lost {process.lost} times; the last time {error}"
            return None
        shown = {"tile": tile, "trials": self.count, "own_seconds": search.own_seconds, "seconds": search.seconds}
        write_entry(_KIND, key, shown)
        return tile


class _LostError(Exception):
    """The process ended without an answer, or was ended because it gave none."""


class _Search:
    """The search for the tile of one kernel; ``seconds``: of the fastest tile, ``own_seconds``: of the own one."""

    def __init__(self, script: str, target: str, threads: int, process: _Process) -> None:
        self._question = {"kernel": script, "target": target, "threads": threads}
        self._process = process
        self._random = random.Random(SEED)  # noqa: S311 -- of a search, not a secret
        self.own_seconds = self.seconds = 0.0

    def fastest(self, count: int) -> Tile | None:
        """Measure a number of tiles; return the fastest; ``None`` if that is the default tile, or there is no other.

        Raise _LostError if the process is lost with the own tile, or the :data:`MOST_LOST`-th time.
        """
        left = self._choices()
        own = left.pop(0) if left else None
        seconds = None if own is None else self._seconds(own)
        if own is None or seconds is None:
            return None
        times = {own: seconds}
        for turn in range(min(count, len(left))):
            tile = self._next(left, min(times, key=times.__getitem__), turn < count / 2)
            left.remove(tile)
            if (found := self._tried(tile)) is not None:
                times[tile] = found
        last = list(dict.fromkeys([own, *sorted(times, key=times.__getitem__)[:_FINALISTS]]))
        for tile in last * (_FINALS if len(last) > 1 else 0):
            times[tile] = min(times[tile], self._tried(tile) or times[tile])
        best = min(last, key=times.__getitem__)
        self.own_seconds, self.seconds = times[own], times[best]
        _log.info("%d tiles measured: %s in %.3g s, %s in %.3g s", len(times), own, times[own], best, times[best])
        return best if times[best] < GAIN * times[own] else None

    def _choices(self) -> list[Tile]:
        """Return the tiles that the kernel can have, its own first; none if it is small, or has no tiles."""
        answer = self._process.ask({**self._question, "what": "choices"}, LIMIT)
        if "refused" in answer:
            _log.info("a kernel has its own tile: %s", answer["refused"])
            return []
        return [_tile(each) for each in items(answer["tiles"])]

    def _next(self, left: Sequence[Tile], best: Tile, anywhere: bool) -> Tile:
        """Return the tile to measure: any, or one that differs from the best in one of its sizes, if there is one."""
        near = [] if anywhere else [tile for tile in left if _is_near(tile, best)]
        return self._random.choice(near or left)

    def _tried(self, tile: Tile) -> float | None:
        """Return the time of a call with a tile, as :meth:`_seconds`; ``None`` also if the process is lost."""
        try:
            return self._seconds(tile)
        except _LostError as error:
            if self._process.lost >= MOST_LOST:
                raise
            _log.info("%s is not used: %s", tile, error)
            return None

    def _seconds(self, tile: Tile) -> float | None:
        """Return the time of a call with a tile; ``None`` if the kernel cannot have it, or computes something else."""
        answer = self._process.ask({**self._question, "what": "time", "tile": tile}, LIMIT)
        if "refused" in answer:
            _log.info("%s is not used: %s", tile, answer["refused"])
            return None
        return number(answer["seconds"])


def _is_near(tile: Tile, other: Tile) -> bool:
    """Return whether two tiles differ in one size; the rows' axis and their number are one, if one has no rows."""
    if tile.axis != other.axis:
        return tile._replace(axis=other.axis, height=other.height) == other
    return sum(a != b for a, b in zip(tile, other, strict=True)) == 1


def _tile(found: Any) -> Tile:
    """Return a tile from JSON; raise one of :data:`Problems` if it is not one."""
    width, axis, height, steps, outer = items(found)
    return Tile(whole(width), whole(axis, -1), whole(height, 1), whole(steps, 1), flag(outer))


# ------------------------------------------------------------------------------------------ the process, from outside


class _Process:
    """The process that measures; started when it is asked, and again after it was lost. ``lost``: how often."""

    def __init__(self) -> None:
        self.lost = 0
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._end(0.0)

    def ask(self, question: Mapping[str, Any], limit: float) -> dict[str, Any]:
        """Return the answer; raise _LostError if there is none within a number of seconds, or it cannot be started."""
        try:
            child = self._child or self._started()
            assert child.stdin is not None  # noqa: S101 -- for the type checker
            child.stdin.write(json.dumps(question).encode() + b"\n")
            child.stdin.flush()
            return entries(parsed(_line(child.stdout, limit)))
        except TimeoutError:
            self._end(0.0)
            reason = f"it did not answer within {limit:g} s"
        except (OSError, *Problems) as error:
            reason = self._end(_GRACE) or str(error)
        self.lost += 1
        raise _LostError(reason)

    def _started(self) -> subprocess.Popen[bytes]:
        root = str(Path(__file__).resolve().parents[2])
        paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
        self._child = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=root,  # python -m looks for modules there first
            env={**os.environ, "PYTHONPATH": paths},
        )
        return self._child

    def _end(self, grace: float) -> str:
        """Kill the process, if it does not end by itself within some seconds; return how it ended, or "" if killed."""
        child, self._child = self._child, None
        if child is None:
            return ""
        try:
            code = child.wait(grace)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            return ""
        finally:
            for pipe in (child.stdin, child.stdout):
                with suppress(OSError):  # what was not written
                    if pipe is not None:
                        pipe.close()
        return f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"


def _line(stream: IO[bytes] | None, limit: float) -> bytes:
    """Return a line from a pipe; raise TimeoutError after a number of seconds, and another OSError at its end."""
    assert stream is not None  # noqa: S101 -- for the type checker
    deadline, line = time.monotonic() + limit, bytearray()
    while not line.endswith(b"\n"):
        if not select.select([stream], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError
        part = os.read(stream.fileno(), 1 << 16)
        if not part or len(line) > _LONGEST:
            raise ConnectionError("it did not answer with a line")
        line += part
    return bytes(line)


# ------------------------------------------------------------------------------------------- the process, from inside


def main() -> int:
    """Answer questions until standard input ends."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # TVM prints
        kernel = None
        for line in sys.stdin:
            question = entries(parsed(line))
            of = text(question["kernel"]), text(question["target"]), whole(question["threads"])
            if kernel is None or kernel.of != of:
                kernel = _Kernel(*of)
            answers.write(json.dumps(kernel.answer(question)) + "\n")
            answers.flush()
    return 0


class _Kernel:
    """A kernel, its random inputs, and its compiled tiles; ``of``: what it was made of."""

    def __init__(self, script: str, target: str, threads: int) -> None:
        import tvm

        self.of, self._threads = (script, target, threads), threads
        self._script, self._target = script, tvm.target.Target(json.loads(target))
        tvm.get_global_func("runtime.config_threadpool")(1, max(1, threads))
        self._compiled: dict[Tile, Any] = {}
        self._wanted: list[Array] = []
        self._inputs: list[Array] = []

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tiles that the kernel can have, or the seconds of one of them, or why it is refused."""
        try:
            if question["what"] == "choices":
                found, work = tvm_schedule.choices(self._function())
                return {"tiles": found if work >= tvm_schedule.LEAST_WORK else []}
            return self._timed(_tile(question["tile"]))
        except Exception as error:  # noqa: BLE001 -- TVM raises errors of many types
            return {"refused": f"{type(error).__name__}: {error}"[-500:]}

    def _function(self) -> Any:
        """Return the kernel, which scheduling changes."""
        from tvm.script import from_source

        return from_source(self._script)

    def _timed(self, tile: Tile) -> dict[str, Any]:
        """Return the seconds of a call with a tile, or why it is refused; raise an error of TVM if it cannot."""
        if tile not in self._compiled:
            if not self._wanted:
                found, _ = tvm_schedule.choices(self._function())
                self._wanted = self._results(self._library(found[0]))
            library = self._library(tile)
            if not all(map(_is_close, self._results(library), self._wanted)):
                return {"refused": "its results are others"}
            self._compiled[tile] = library
        return {"seconds": self._measured(self._compiled[tile])}

    def _measured(self, library: Any) -> float:
        """Return the shortest seconds of a call: of the processor's time if one thread computes."""
        import tvm

        clock = time.process_time if self._threads == 1 else time.perf_counter
        tensors = self._tensors()

        def seconds(number: int) -> float:
            calls = library.time_evaluator("main", tvm.cpu(), number=number, repeat=1)
            start = clock()
            calls(*tensors)
            return (clock() - start) / (number + 1)  # one more warms up

        number = max(1, int(_REPEAT_SECONDS / max(seconds(1), _SHORTEST)))
        return min(seconds(number) for _ in range(_REPEATS))

    def _library(self, tile: Tile) -> Any:
        import tvm

        function = tvm_schedule.with_tile(self._function(), tile).with_attr("global_symbol", "main")
        return tvm.compile(tvm.IRModule({"main": function}), target=self._target).jit()

    def _tensors(self) -> list[Any]:
        """Return the parameters of a call, results among them: normal floats, and other types 0, which is an index."""
        import tvm

        if not self._inputs:
            rng = np.random.default_rng(SEED)
            for buffer in self._function().params:
                shape, dtype = [int(size) for size in buffer.shape], str(buffer.dtype)
                drawn = rng.standard_normal(shape, np.float32) if dtype.startswith("float") else np.zeros(shape)
                self._inputs.append(np.asarray(drawn, dtype))
        return [tvm.runtime.tensor(array) for array in self._inputs]

    def _results(self, library: Any) -> list[Array]:
        """Return all parameters after a call."""
        tensors = self._tensors()
        library["main"](*tensors)
        return [tensor.numpy() for tensor in tensors]


def _is_close(found: Array, wanted: Array) -> bool:
    if found.dtype.kind != "f":
        return bool(np.array_equal(found, wanted))
    largest = np.max(np.abs(wanted), initial=0.0, where=np.isfinite(wanted))
    return bool(np.allclose(found, wanted, rtol=CLOSE, atol=CLOSE * float(largest), equal_nan=True))


if __name__ == "__main__":
    sys.exit(main())
