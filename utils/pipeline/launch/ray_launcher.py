"""Workers on a Ray cluster: each is an actor with its own engine that evaluates one part of the data set.

The zoo and the data must have the same path on every machine. The part of a lost worker is computed again by a new one;
an error raised by the zoo would be raised again, so it ends the run.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import engine
from engine import ConfigError, EngineError, TecoInferError, usable_cores
from tecoinfer_modelzoo import home_folder, install_command
from tecoinfer_modelzoo.text import one_line
from utils.datasets.sharding import RANK, SIZE, rank_and_size
from utils.pipeline.launch.exit_status import Stopped
from utils.pipeline.launch.mpi import LAUNCHED
from utils.pipeline.launch.parts import Part, hosts, merge, part_of
from utils.pipeline.launch.serialization import SCRIPT
from utils.pipeline.launch.share import take_cores

if TYPE_CHECKING:
    from utils.pipeline.report.report import Report

RETRIES = 3
"""How often a part is computed again before the run fails."""

_SETTINGS = ("MAX_ENGINE_NUMS", "SDAA_", "TECO_")
"""Prefixes of the environment variables that workers take from the driver."""
_PATIENCE = 30.0
"""Seconds without a message after which a line reports workers that wait for free cores."""
_LOOK = 1.0
"""Seconds between two checks of the workers without a message."""
_STORE = 2**27
"""Bytes of shared memory of a local cluster; parts have a few kilobytes."""


class Refused(NamedTuple):
    """A :class:`TecoInferError` of a worker: its class and its message."""

    kind: str
    text: str


class _Place(NamedTuple):
    """Where a worker runs."""

    node: str
    host: str
    pid: int


@dataclass(slots=True)
class _Worker:
    """The actor that computes a part, and its place."""

    rank: int
    actor: Any
    place: _Place | None = None
    slot: int = 0


@dataclass(slots=True)
class _Run:
    """A run on a cluster: the pending workers and the finished parts."""

    ray: Any
    make: Callable[[], Any]
    function: str
    args: tuple[Any, ...]
    size: int
    slots: dict[str, int]
    pending: dict[Any, _Worker] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    lost: Counter[int] = field(default_factory=Counter)
    stopped: Stopped = field(init=False)
    reported: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.stopped = Stopped(self._here)

    def _here(self) -> list[int]:
        """Return the process ids of the workers on this machine."""
        host = socket.gethostname()
        places = [worker.place for worker in self.pending.values()]
        return [place.pid for place in places if place is not None and place.host == host]


def launch(
    function: Callable[..., Report],
    args: tuple[Any, ...],
    workers: int,
    say: Callable[[str], None],
    *,
    samples: int | None = None,
) -> Report:
    """Evaluate a data set with workers on a Ray cluster (of ``RAY_ADDRESS``, else on this machine); return the merged
    report.

    Args:
        function: evaluates the part of the data set given by :func:`utils.datasets.sharding.rank_and_size`; a plain
            function of an importable module.
        args: its arguments; they are pickled. workers: number of workers, each with its share of the cluster's cores.
        say: prints a line. samples: size of the data set if known, the largest number of workers.

    Raises ConfigError: Ray is missing or cannot be reached, or a number is invalid; EngineError: the worker of a part
    died more than :data:`RETRIES` times; TecoInferError: an error of a worker.
    """
    if workers < 1:
        raise ConfigError(f"--num_workers {workers} must be at least 1")
    if rank_and_size()[1] > 1:
        raise ConfigError(f"--launcher ray does not go with several ranks ({SIZE} is set); leave out one of them")
    if samples is not None and workers > max(samples, 1):
        say(f"{max(samples, 1)} workers instead of {workers}: the data set has {samples} samples")
        workers = max(samples, 1)
    with joined_cluster() as ray:
        sys.modules.setdefault(SCRIPT, sys.modules["__main__"])
        nodes = {node["NodeID"]: node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]}
        cpus = cpus_each(list(nodes.values()), workers)
        actor = ray.remote(num_cpus=cpus, max_restarts=0)(_worker_class())
        run = _Run(
            ray,
            make=actor.remote,
            function=f"{function.__module__}:{function.__qualname__}",
            args=args,
            size=workers,
            slots={node: max(1, int(cores / cpus)) for node, cores in nodes.items()},
        )
        return _finish(run, say)


def worker_settings() -> dict[str, str]:
    """Return the environment variables that workers take from this process."""
    return {name: value for name, value in os.environ.items() if name.startswith(_SETTINGS)}


def cpus_each(nodes: Sequence[float], workers: int) -> float:
    """Return the largest number of cores per worker for which all workers fit; below 1 with fewer cores than workers.

    ``nodes``: cores of each machine.
    """
    if not sum(nodes) >= 1:
        raise ConfigError("the Ray cluster has no cores; start its machines with --num-cpus")
    for cpus in range(int(sum(nodes)) // workers, 0, -1):
        if sum(int(cores // cpus) for cores in nodes) >= workers:
            return cpus
    crowd = 1
    while sum(int(cores) for cores in nodes) * crowd < workers:
        crowd += 1
    return int(1e4 / crowd) / 1e4  # Ray counts in steps of 0.0001


def work_part(function: str, args: tuple[Any, ...], share: tuple[int, int], cores: tuple[int, int]) -> Part | Refused:
    """Compute one part in a worker.

    Args:
        function: ``module:name`` of the function that evaluates. args: its arguments. share: rank, and number of parts.
        cores: this worker's number on its machine, and number of workers on it.
    """
    take_cores(*cores)
    os.environ.update({RANK: str(share[0]), SIZE: str(share[1]), LAUNCHED: str(cores[0])})
    module, _, name = function.partition(":")
    try:
        return part_of(getattr(importlib.import_module(module), name)(*args))
    except TecoInferError as error:
        return Refused(type(error).__name__, str(error))


def _worker_class() -> type:
    """Return the actor's class; as a local class it is pickled by value, for workers that cannot import the zoo yet."""

    class Worker:
        def start(self, folder: str, paths: list[str], settings: dict[str, str]) -> tuple[str, str, int]:
            import os
            import socket
            import sys

            import ray

            os.chdir(folder)
            os.environ.update(settings)
            # In the driver's order, in which the zoo precedes contrib.
            sys.path[:] = [*paths, *(path for path in sys.path if path not in paths)]
            return ray.get_runtime_context().get_node_id(), socket.gethostname(), os.getpid()

        def work(self, *args: Any) -> Any:
            from utils.pipeline.launch.ray_launcher import work_part

            return work_part(*args)

    return Worker


@contextmanager
def joined_cluster() -> Iterator[Any]:
    """Join the cluster of ``RAY_ADDRESS``, or start one on this machine and always shut it down."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's future default; else a warning
    try:
        import ray
    except ImportError as error:
        raise ConfigError(f"--launcher ray needs Ray ({error}); run: {install_command('ray')}") from error
    address = os.environ.get("RAY_ADDRESS")
    own = {} if address else {"num_cpus": usable_cores(), "include_dashboard": False, "object_store_memory": _STORE}
    if own:
        _set_token()
    try:
        try:
            with _uninterrupted():
                ray.init(log_to_driver=False, logging_level="error", **own)
        except Exception as error:  # of any class: Ray raises a plain Exception if it starts too slowly
            where = f"the cluster at RAY_ADDRESS={address}" if address else "a cluster on this machine"
            reason = str(error).strip().partition("\n")[0]
            fix = "check it with `ray status`, and RAY_AUTH_MODE=token where it asks for a token"
            raise ConfigError(f"Ray cannot use {where}: {reason}; {fix}") from error
        yield ray
    finally:
        with _uninterrupted():
            ray.shutdown()


def _set_token() -> None:
    """Set a token for a local cluster in the environment; Ray would write one into the user's home folder."""
    home = home_folder()
    given = any(os.environ.get(name) for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    if not given and (home is None or not (home / ".ray" / "auth_token").exists()):
        os.environ["RAY_AUTH_TOKEN"] = uuid.uuid4().hex


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C to the end of the block: an interrupted start or end of Ray crashes and leaves processes behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, _frame: asked.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if asked:
        raise KeyboardInterrupt


def _finish(run: _Run, say: Callable[[str], None]) -> Report:
    """Start all workers, replace lost ones, and merge the parts."""
    for rank in range(run.size):
        _start(run, rank)
    with _progress(run.size, say) as done:
        try:
            while run.pending:
                _next(run, say, done)
        except KeyboardInterrupt:
            say(f"interrupted with {len(run.parts)} of {run.size} parts done")
            raise
        except run.ray.exceptions.RayTaskError:
            raise
        except run.ray.exceptions.RayError as error:
            had = f"with {len(run.parts)} of {run.size} parts done"
            raise EngineError(f"the Ray cluster was lost {had}: {one_line(error)}; see `ray status`") from error
    recomputed = sum(run.lost.values())
    say(f"merged from {hosts(run.parts)}{f', {recomputed} lost and recomputed' if recomputed else ''}")
    return merge(run.parts, recomputed=recomputed)


def _start(run: _Run, rank: int) -> None:
    worker = _Worker(rank, run.make())
    settings = worker_settings()
    folders = [os.path.abspath(path or ".") for path in sys.path]
    run.pending[worker.actor.start.remote(str(Path.cwd()), folders, settings)] = worker


def _look(run: _Run, say: Callable[[str], None]) -> None:
    """End a stopped worker, which Ray does not detect; report waiting workers from time to time."""
    if (pid := run.stopped()) is not None:
        say(f"worker process {pid} is stopped; ending it")
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    if time.monotonic() - run.reported > _PATIENCE:
        run.reported = time.monotonic()
        if waiting := sum(worker.place is None for worker in run.pending.values()):
            say(f"{waiting} of {run.size} workers wait for free cores of the Ray cluster")


def _next(run: _Run, say: Callable[[str], None], done: Callable[[Part], object]) -> None:
    """Wait for the next message of a worker, and handle it."""
    ready, _ = run.ray.wait(list(run.pending), num_returns=1, timeout=_LOOK)
    if not ready:
        _look(run, say)
        return
    run.reported = time.monotonic()
    worker = run.pending.pop(ready[0])
    lost = run.ray.exceptions
    try:
        news = run.ray.get(ready[0])
    except lost.RayTaskError as error:  # a bug in the script is raised unchanged
        if worker.place is None or isinstance(error.cause, ModuleNotFoundError):
            fix = "the zoo and the data must lie at the same path on every machine"
            raise ConfigError(f"a worker cannot start: {error.cause}; {fix}") from error
        raise
    except lost.RayError as error:  # its process, its machine or its result is lost
        _replace(run, worker, error, say)
        return
    if isinstance(news, Refused):
        raise _raised(news)
    if isinstance(news, Part):
        run.parts.append(news)
        run.ray.kill(worker.actor)  # a replacement may wait for its cores
        done(news)
        return
    _set_to_work(run, worker, _Place(*news))


def _set_to_work(run: _Run, worker: _Worker, place: _Place) -> None:
    """Give a started worker its part, and the first free share of its machine's cores."""
    worker.place = place
    taken = {other.slot for other in run.pending.values() if other.place and other.place.node == place.node}
    slots = run.slots.setdefault(place.node, 1)
    worker.slot = next(slot for slot in range(run.size + 1) if slot not in taken)
    share, cores = (worker.rank, run.size), (worker.slot, slots)
    run.pending[worker.actor.work.remote(run.function, run.args, share, cores)] = worker


def _replace(run: _Run, worker: _Worker, error: Exception, say: Callable[[str], None]) -> None:
    run.lost[worker.rank] += 1
    part = f"part {worker.rank + 1} of {run.size}"
    if run.lost[worker.rank] > RETRIES:
        reason = one_line(error)
        fix = "use fewer workers, or a smaller batch"
        raise EngineError(f"the worker of {part} died {run.lost[worker.rank]} times ({reason}); {fix}") from error
    where = f" on {worker.place.host}" if worker.place else ""
    say(f"{part}: its worker{where} died (killed, out of memory, or a crash in native code); computing it again")
    run.ray.kill(worker.actor)  # it may only be unreachable
    _start(run, worker.rank)


def _raised(refused: Refused) -> TecoInferError:
    kind = getattr(engine, refused.kind, EngineError)
    raised: TecoInferError = kind(refused.text)
    return raised


@contextmanager
def _progress(size: int, say: Callable[[str], None]) -> Iterator[Callable[[Part], object]]:
    """Yield a function that reports a finished part: by a progress bar on a terminal, else by a line."""

    def line(part: Part) -> None:
        report = part.report
        say(f"part {part.rank + 1} of {size}: {report.samples} samples in {report.e2e_time:.2f} s on {part.host}")

    if not sys.stderr.isatty():
        yield line
        return
    from tqdm import tqdm

    with tqdm(total=size, unit="part") as bar:
        yield lambda _part: bar.update()
