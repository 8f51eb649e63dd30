"""Several processes under ``mpirun``: every rank evaluates its part, rank 0 gets the merged report.

A rank that fails must not leave the others waiting for it, so it ends the whole job. One that is stopped by a signal,
or waits in MPI for a rank that does not come, is ended by a process beside it (``rank_watcher.py``). MPI is called by
the main thread only, and waits by sleeping: Open MPI's own blocking calls spin, which takes a core from those who still
compute.
"""

from __future__ import annotations

import io
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from engine import ConfigError, DataError, EngineError, TecoInferError
from tecoinfer_modelzoo import install_command
from utils.datasets.sharding import SIZE, rank_and_size
from utils.pipeline.launch import rank_watcher
from utils.pipeline.launch.exit_status import Stopped
from utils.pipeline.launch.parts import Part, hosts, merge, part_of
from utils.pipeline.launch.share import take_cores

if TYPE_CHECKING:
    from types import FrameType

    from utils.pipeline.report.report import Report

LAUNCHED = "OMPI_COMM_WORLD_LOCAL_RANK"
"""Set by ``mpirun`` in every process it starts; who sets rank and size by hand does not set it."""

_PART, _SAID = 1, 2
"""Message tags: a finished part; "I have said what is wrong"."""
_LOOKS, _START = "_TECO_STOPPED_LOOKS", "_TECO_START_LOOKS"
"""Environment variables of the tests: after how many seconds a stopped rank is ended (20), and in how many all ranks
must have come to where they begin together (120)."""
_JOB = "PMIX_NAMESPACE"
"""Set by ``mpirun``: what all ranks of a job have in common."""
_POLL = 0.01
"""Seconds between two looks for a message."""
_RANK_0_FIRST = 0.5
"""Seconds by which rank 0 speaks before the others: what all ranks meet (no such model) is then said once."""
_PATIENCE = 3.0
"""Seconds the others wait for word of rank 0, which may be late on a busy machine, before they speak themselves."""
_TERMINATED = 128 + signal.SIGTERM

_watcher: list[int] = []
"""The pipe that this process's watcher reads, which stays open until the process ends."""

_log = logging.getLogger(__name__)


def gather(work: Callable[[], Report], say: Callable[[str], None], *, resume: Path | None = None) -> Report | None:
    """Do this process's part of the work and bring all parts together.

    Where rank and size were set by hand there is nobody to merge with: the result is this process's part, and that is
    said.

    Args:
        work: evaluates this process's part of the data set; it prints on rank 0 only, and on the others its errors
            begin with their rank.
        say: takes a line for the user.
        resume: the journal's folder, to say how to go on after a process died.

    Returns:
        The merged report on rank 0, ``None`` on the other ranks, which have nothing more to do.

    Raises:
        ConfigError: mpi4py is missing; raised before any work.
        DataError: no process could run a sample.
    """
    rank, size = rank_and_size()
    if size == 1:
        return work()
    comm = None
    if LAUNCHED in os.environ:
        _watch(rank, size)  # before MPI, which may never come back
        try:
            comm = _world(rank, size)
        finally:
            if comm is None:
                os.close(_watcher.pop())
    if comm is None:
        return _alone(work, say, rank, size)
    with _quiet(rank), _fate_shared(comm, resume):
        _share_cores(comm)
        others = _all_have_come(comm)
        parts = _collect(comm, part_of(work()), others)
    if rank:
        return None
    say(f"merged from {hosts(parts)}")
    return merge(parts)


def _alone(work: Callable[[], Report], say: Callable[[str], None], rank: int, size: int) -> Report:
    say(f"rank {rank} of {size}: the metric covers this process's part only")
    report = work()
    if not report.samples:
        raise DataError(f"rank {rank} of {size} has no sample that can be evaluated; use fewer processes")
    return report


def _world(rank: int, size: int) -> Any:
    """Start MPI and return its communicator; ``None`` where no launcher started the other processes."""
    try:
        import mpi4py

        mpi4py.rc.thread_level = "funneled"  # the pipeline's threads do not call MPI
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py is there, the MPI library is not
        time.sleep(_RANK_0_FIRST if rank else 0)
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"{SIZE}={size}: merging the parts of several processes needs mpi4py ({reason}); "
            f"run: {install_command('mpi')}"
        ) from error
    return MPI.COMM_WORLD if MPI.COMM_WORLD.size == size else None


def _share_cores(comm: Any) -> None:
    """Divide the cores among the ranks of this machine that may use the same ones: those mpirun binds to no core."""
    from mpi4py import MPI

    if not hasattr(os, "sched_getaffinity"):
        return
    local = comm.Split_type(MPI.COMM_TYPE_SHARED)
    mine = sorted(os.sched_getaffinity(0))
    same = [rank for rank, cores in enumerate(local.allgather(mine)) if cores == mine]
    take_cores(same.index(local.rank), len(same))
    local.Free()


def _watch(rank: int, size: int) -> None:
    """Start the process that watches this one to its end, or tell it that all ranks are to come together again."""
    if _watcher:
        _tell_watcher("")
        return
    reading, writing = os.pipe()
    _watcher.append(writing)
    numbers = (os.getpid(), rank, size, os.environ.get(_LOOKS, "20"), os.environ.get(_START, "120"))
    job = f"{_JOB}={os.environ[_JOB]}" if _JOB in os.environ else ""
    # Nothing of the job is in its environment, so that nobody takes it for a rank.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_", "PYTHON"))}
    try:
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", rank_watcher.__file__, *map(str, numbers), job],
            environment,
            file_actions=[(os.POSIX_SPAWN_DUP2, reading, 0), (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
        )
    except OSError as error:  # the run goes on unwatched
        _log.warning("ranks that are stopped are not noticed: %s", error)
    finally:
        os.close(reading)


def _tell_watcher(line: str) -> None:
    with suppress(BrokenPipeError):  # it could not be started, or has been ended
        os.write(_watcher[0], f"{line}\n".encode())


def _all_have_come(comm: Any) -> dict[int, int]:
    """Tell the watcher that all ranks have come; return process number -> rank of the others on this machine."""
    host = socket.gethostname()
    known = enumerate(comm.allgather((host, os.getpid())))
    here = {pid: rank for rank, (where, pid) in known if where == host}
    _tell_watcher(" ".join(f"{pid}:{rank}" for pid, rank in here.items()))
    return {pid: rank for pid, rank in here.items() if rank != comm.rank}


def _collect(comm: Any, part: Part, others: dict[int, int]) -> list[Part]:
    """Send the part to rank 0; there, return all of them."""
    stopped = Stopped(lambda: others)
    if comm.rank:
        request = comm.isend(part, dest=0, tag=_PART)
        _wait(request.Test, stopped, others)
        return [part]
    parts = [part]
    for rank in range(1, comm.size):
        _wait(partial(comm.iprobe, source=rank, tag=_PART), stopped, others)
        parts.append(comm.recv(source=rank, tag=_PART))
    return parts


def _wait(ready: Callable[[], bool], stopped: Stopped, others: dict[int, int]) -> None:
    """Wait for a message.

    Raises:
        EngineError: a rank of this machine is stopped, and stays so.
    """
    while not ready():
        time.sleep(_POLL)
        if (pid := stopped()) is not None:
            raise EngineError(f"rank {others[pid]} (process {pid}) is stopped; let all ranks run, or start fewer")


@contextmanager
def _quiet(rank: int) -> Iterator[None]:
    """Let rank 0 alone write to stdout; what the others have to say on stderr begins with their rank."""
    if not rank:
        yield
        return
    with redirect_stdout(_Nowhere()), redirect_stderr(cast("TextIO", _Prefixed(f"rank {rank}: ", sys.stderr))):
        yield


class _Nowhere(io.TextIOBase):
    def write(self, text: str) -> int:
        return len(text)


class _Prefixed(io.TextIOBase):
    """Writes whole lines, each with a prefix."""

    def __init__(self, prefix: str, stream: TextIO) -> None:
        self._prefix, self._stream, self._rest = prefix, stream, ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        self._stream.write("".join(f"{self._prefix}{line}\n" for line in lines if line.strip()))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()


@contextmanager
def _fate_shared(comm: Any, resume: Path | None) -> Iterator[None]:
    """End the whole job where this process fails; say how to go on where the job is ended because another one did."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        if not _said(comm):
            _say_stopped(comm.rank, resume)
        raise SystemExit(_TERMINATED)

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except SystemExit as error:
        if error.code != _TERMINATED:
            _abort(comm, error)
        os._exit(_TERMINATED)  # MPI's own end would wait for the process that is gone
    except BaseException as error:
        _abort(comm, error)
        raise
    finally:
        signal.signal(signal.SIGTERM, previous)


def _said(comm: Any, patience: float = 0.1) -> bool:
    """Whether another rank has said what is wrong; its message may take a moment, or ``patience`` seconds."""
    end = time.monotonic() + patience
    while not (said := comm.iprobe(tag=_SAID)) and time.monotonic() < end:
        time.sleep(_POLL)
    return bool(said)


def _say_stopped(rank: int, resume: Path | None) -> None:
    """Say at once, as mpirun kills after a second, what happened; rank 1 says it too, as rank 0 may have died."""
    go_on = f"run the same command again to go on from {resume}" if resume else "--resume DIR lets a run go on"
    line = f"rank {rank}: stopped by mpirun, as it does on Ctrl-C and when a process dies; {go_on}\n"
    if rank <= 1:
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, line.encode())


def _abort(comm: Any, error: BaseException) -> None:
    """Say what is wrong, once, and end every process of the job; does not return."""
    if not _said(comm, _PATIENCE if comm.rank else _POLL):
        for rank in range(comm.size):
            comm.isend(None, dest=rank, tag=_SAID)
        sys.stdout.flush()
        sys.stderr.write(f"{_text(error)}\n")
        sys.stderr.flush()
    comm.Abort(_code(error))


def _text(error: BaseException) -> str:
    if isinstance(error, TecoInferError):
        return f"error: {error}"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    from utils.pipeline.report.unforeseen import line_of, show_calls

    show_calls(error)
    return line_of(error)


def _code(error: BaseException) -> int:
    return 130 if isinstance(error, KeyboardInterrupt) else 2  # an orderly end leaves the others without this part too
