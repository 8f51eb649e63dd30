"""Tile sizes for target ``tvm``, found by measuring (``TECO_TVM_TUNE``): in a process of its own, within a time limit.

Every reduction that :mod:`engine.backends.tvm_schedule` divides into tiles is a kernel with one choice: the elements of
a row of a tile, and its rows. The process compiles a kernel with each choice, the schedule's own first, and measures
it with random inputs. The largest kernels come first. Each choice that is faster is written to standard output at once,
so a crash of TVM's compiler, or the end of the time, loses only what was not measured.

Run as a program, it reads its task from standard input (JSON). It imports tvm inside its functions; only
:mod:`engine.backends.tvm_runtime` uses it.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from math import isfinite, prod
from pathlib import Path
from typing import Any

from engine.backends import tvm_schedule
from engine.base import ConfigError
from tecoinfer_modelzoo.json_types import Problems, entries, parsed, text, whole

TUNE_VARIABLE = "TECO_TVM_TUNE"
"""Environment variable of the seconds in which tile sizes are measured for each plan; 0, the default: none are."""

LONGEST = 24 * 3600.0

Choice = tuple[int, int]
"""Elements of a row of a tile, and rows of a tile."""

_WIDTHS, _HEIGHTS = (8, 16, 32, 64), (1, 2, 4, 6, 8, 12, 16)
_MOST = 32  # vector registers of a tile
_GRACE = 60.0  # seconds beyond the limit: the start of the process, and the kernel that is measured last
_REPEATS = 5  # measurements of a choice; the fastest counts, because other programs only make a call slower
_GAIN = 0.97  # share of the time of the fastest choice so far below which another one is taken
_LINE = 1 << 20

_log = logging.getLogger(__name__)


def tuning_seconds() -> float:
    """Return the seconds of :data:`TUNE_VARIABLE`; raise ConfigError if it is not a number from 0 to a day."""
    given = os.environ.get(TUNE_VARIABLE) or "0"
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not (isfinite(seconds) and 0 <= seconds <= LONGEST):
        raise ConfigError(f"{TUNE_VARIABLE}={given!r} must be seconds from 0 (no tuning) to {LONGEST:.0f}")
    return seconds


def tuned(functions: Mapping[str, Any], target: str, seconds: float) -> tuple[dict[str, Choice], str]:
    """Return the choices for kernels that are faster than the schedule's own, and why the search ended early, or "".

    Args:
        functions: kernels by name. target: as JSON. seconds: limit of the search.
    """
    kernels = {name: function.script() for name, function in functions.items()}
    task = json.dumps({"kernels": kernels, "target": target, "seconds": seconds})
    root = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    command = [sys.executable, "-m", "engine.backends.tvm_tune"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": paths},
    ) as child:
        try:
            output, _ = child.communicate(task.encode(), timeout=seconds + _GRACE)
        except subprocess.TimeoutExpired:
            child.kill()
            output, _ = child.communicate()
            return _read(output), f"it did not end within {seconds + _GRACE:.0f} s"
        except BaseException:
            child.kill()
            raise
    return _read(output), _ended(child.returncode)


def _ended(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}" if code else ""
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"it was ended by {name}"


def _read(output: bytes) -> dict[str, Choice]:
    """Return the choices of the complete lines that a process wrote."""
    found: dict[str, Choice] = {}
    for line in output.split(b"\n")[:-1]:
        try:
            entry = entries(parsed(line[:_LINE]))
            found[text(entry["kernel"])] = (whole(entry["width"]), whole(entry["height"]))
        except Problems as error:
            _log.debug("a line of the tuning process is ignored: %s", error)
    return found


# ------------------------------------------------------------------------------------------------------- the process


def main() -> int:
    """Read a task from standard input, and write a line for each kernel with a faster choice."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as results:
        os.dup2(2, 1)  # TVM prints
        task = entries(parsed(sys.stdin.buffer.read()))
        os.environ.setdefault("TVM_BIND_THREADS", "0")
        import tvm

        deadline = time.monotonic() + float(task["seconds"])
        target = tvm.target.Target(json.loads(text(task["target"])))
        named = {name: tvm.script.from_source(text(script)) for name, script in entries(task["kernels"]).items()}
        for name in sorted(named, key=lambda name: -_work(named[name])):
            if time.monotonic() > deadline:
                break
            choice = _fastest(named[name], target, deadline)
            if choice is not None:
                results.write(json.dumps({"kernel": name, "width": choice[0], "height": choice[1]}) + "\n")
                results.flush()
    return 0


def _work(function: Any) -> int:
    """Return the number of innermost iterations of a kernel's reductions: 0 if none is divided into tiles."""
    try:
        return tvm_schedule.tiled_work(function)
    except Exception as error:  # noqa: BLE001 -- of the scheduler
        _log.debug("%s", error)
        return 0


def _fastest(function: Any, target: Any, deadline: float) -> Choice | None:
    """Return the fastest choice for a kernel; ``None`` if that is the schedule's own, or it has no tiles."""
    if not _work(function):
        return None
    run = _runner(function, None, target)
    if run is None:
        return None
    best, seconds = None, _measured(run)
    for choice in _choices(function):
        if time.monotonic() > deadline:
            break
        other = _runner(function, choice, target)
        if other is None:
            continue
        found = _measured(other)
        if found < _GAIN * seconds and _measured(other) < _GAIN * min(seconds, _measured(run)):  # both once more
            best, seconds, run = choice, found, other
    return best


def _choices(function: Any) -> Iterator[Choice]:
    """Yield the widths that divide the last axis, with the rows that fit the registers and divide an axis."""
    for width in _WIDTHS:
        for height in _HEIGHTS:
            if height * -(-width // tvm_schedule.REGISTER) <= _MOST and tvm_schedule.takes(function, (width, height)):
                yield width, height


def _runner(function: Any, choice: Choice | None, target: Any) -> Callable[[], None] | None:
    """Compile a kernel with a choice; return a function that runs it on random inputs, or ``None`` if TVM cannot."""
    import numpy as np
    import tvm

    try:
        module = tvm.IRModule({"main": tvm_schedule.copied(function)})
        scheduled, _ = tvm_schedule.scheduled(module, {} if choice is None else {"main": choice})
        made = scheduled["main"].with_attr("global_symbol", "main")
        library = tvm.compile(tvm.IRModule({"main": made}), target=target)
    except Exception as error:  # noqa: BLE001 -- TVM raises errors of many types
        _log.debug("%s", error)
        return None
    rng = np.random.default_rng(0)
    arrays = []
    for parameter in function.params:
        buffer = function.buffer_map[parameter]
        shape = [int(size) for size in buffer.shape]
        drawn = rng.standard_normal(shape) if "float" in str(buffer.dtype) else np.zeros(shape)
        arrays.append(tvm.runtime.tensor(np.asarray(drawn, str(buffer.dtype))))
    call = library["main"]
    repeats = max(1, int(2e6 / max(1, prod(max((array.shape for array in arrays), key=prod)))))

    def run() -> None:
        for _ in range(min(repeats, 50)):
            call(*arrays)

    return run


def _measured(run: Callable[[], None]) -> float:
    """Return the seconds of the fastest of some calls."""
    run()
    found = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


if __name__ == "__main__":
    sys.exit(main())
