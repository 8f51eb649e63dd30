"""Several processes under ``mpirun``: every rank evaluates its part, rank 0 merges the reports.

A rank that fails ends the whole job, as the others would wait for it. A rank that is stopped by a signal, or waits in
MPI for a missing rank, is ended by its watcher process (``rank_watcher.py``). MPI is called by the main thread only,
and polled with sleeps: Open MPI's blocking calls spin, which would take a core from ranks that still compute.
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
"""Set by ``mpirun`` in every process it starts; missing if rank and size are set by hand."""

_PART, _REPORTED = 1, 2
"""Message tags: a finished part; the sender has printed the error."""
_LOOKS, _START = "_TECO_STOPPED_LOOKS", "_TECO_START_LOOKS"
"""Environment variables of the tests: seconds until a stopped rank is ended (20), and in which all ranks must have
started (120)."""
_JOB = "PMIX_NAMESPACE"
"""Set by ``mpirun``, equal for all ranks of a job."""
_POLL = 0.01
"""Seconds between two checks for a message."""
_RANK_0_FIRST = 0.5
"""Seconds by which rank 0 reports before the others, so that an error of all ranks is printed once."""
_PATIENCE = 3.0
"""Seconds the others wait for rank 0, which may be late on a busy machine, before they print an error themselves."""
_TERMINATED = 128 + signal.SIGTERM

_watcher: list[int] = []
"""The pipe to this process's watcher, open until the process ends."""

_log = logging.getLogger(__name__)


def gather(work: Callable[[], Report], say: Callable[[str], None], *, resume: Path | None = None) -> Report | None:
    """Evaluate this process's part and merge all parts; return the merged report on rank 0, ``None`` on other ranks.

    If rank and size were set by hand, the result is this process's part alone, and a line is printed.

    Args:
        work: evaluates this process's part of the data set; its output is printed on rank 0 only, and its errors on
            other ranks begin with their rank.
        say: prints a line. resume: the journal's folder, for the message after a process died.

    Raises:
        ConfigError: mpi4py is missing; raised before any work. DataError: no process could run a sample.
    """
    rank, size = rank_and_size()
    if size == 1:
        return work()
    comm = None
    if LAUNCHED in os.environ:
        _watch(rank, size)  # before MPI, whose start may hang
        try:
            comm = _world(rank, size)
        finally:
            if comm is None:
                os.close(_watcher.pop())
    if comm is None:
        return _alone(work, say, rank, size)
    with _quiet(rank), _abort_together(comm, resume):
        _share_cores(comm)
        others = _meet(comm)
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
    """Start MPI and return its communicator; ``None`` if no launcher started the other processes."""
    try:
        import mpi4py

        mpi4py.rc.thread_level = "funneled"  # the pipeline's threads do not call MPI
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py without an MPI library
        time.sleep(_RANK_0_FIRST if rank else 0)
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"{SIZE}={size}: merging the parts of several processes needs mpi4py ({reason}); "
            f"run: {install_command('mpi')}"
        ) from error
    return MPI.COMM_WORLD if MPI.COMM_WORLD.size == size else None


def _share_cores(comm: Any) -> None:
    """Divide the cores among the ranks of this machine with the same affinity, which mpirun does not bind to a core."""
    from mpi4py import MPI

    if not hasattr(os, "sched_getaffinity"):
        return
    local = comm.Split_type(MPI.COMM_TYPE_SHARED)
    mine = sorted(os.sched_getaffinity(0))
    same = [rank for rank, cores in enumerate(local.allgather(mine)) if cores == mine]
    take_cores(same.index(local.rank), len(same))
    local.Free()


def _watch(rank: int, size: int) -> None:
    """Start the watcher of this process, or notify it that all ranks will meet again."""
    if _watcher:
        _notify_watcher("")
        return
    reading, writing = os.pipe()
    _watcher.append(writing)
    numbers = (os.getpid(), rank, size, os.environ.get(_LOOKS, "20"), os.environ.get(_START, "120"))
    job = f"{_JOB}={os.environ[_JOB]}" if _JOB in os.environ else ""
    # Its environment has no variables of the job, so that other watchers do not take it for a rank.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_", "PYTHON"))}
    try:
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", rank_watcher.__file__, *map(str, numbers), job],
            environment,
            file_actions=[(os.POSIX_SPAWN_DUP2, reading, 0), (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
        )
    except OSError as error:  # the run continues without a watcher
        _log.warning("stopped ranks are not detected: %s", error)
    finally:
        os.close(reading)


def _notify_watcher(line: str) -> None:
    with suppress(BrokenPipeError):  # the watcher could not be started, or has ended
        os.write(_watcher[0], f"{line}\n".encode())


def _meet(comm: Any) -> dict[int, int]:
    """Wait for all ranks, and notify the watcher; return process id -> rank of the others on this machine."""
    host = socket.gethostname()
    ranks = enumerate(comm.allgather((host, os.getpid())))
    here = {pid: rank for rank, (where, pid) in ranks if where == host}
    _notify_watcher(" ".join(f"{pid}:{rank}" for pid, rank in here.items()))
    return {pid: rank for pid, rank in here.items() if rank != comm.rank}


def _collect(comm: Any, part: Part, others: dict[int, int]) -> list[Part]:
    """Send the part to rank 0; return all parts there."""
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
    """Wait for a message; raise EngineError if a rank of this machine stays stopped."""
    while not ready():
        time.sleep(_POLL)
        if (pid := stopped()) is not None:
            raise EngineError(f"rank {others[pid]} (process {pid}) is stopped; let all ranks run, or start fewer")


@contextmanager
def _quiet(rank: int) -> Iterator[None]:
    """Discard stdout of ranks other than 0, and prefix their lines on stderr with the rank."""
    if not rank:
        yield
        return
    with redirect_stdout(_Null()), redirect_stderr(cast("TextIO", _Prefixed(f"rank {rank}: ", sys.stderr))):
        yield


class _Null(io.TextIOBase):
    def write(self, text: str) -> int:
        return len(text)


class _Prefixed(io.TextIOBase):
    """Writes complete lines, each with a prefix."""

    def __init__(self, prefix: str, stream: TextIO) -> None:
        self._prefix, self._stream, self._rest = prefix, stream, ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        self._stream.write("".join(f"{self._prefix}{line}\n" for line in lines if line.strip()))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()


@contextmanager
def _abort_together(comm: Any, resume: Path | None) -> Iterator[None]:
    """End the whole job if this process fails; if another process ended the job, print how to resume."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        if not _was_reported(comm):
            _report_stopped(comm.rank, resume)
        raise SystemExit(_TERMINATED)

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except SystemExit as error:
        if error.code != _TERMINATED:
            _abort(comm, error)
        os._exit(_TERMINATED)  # MPI's finalization would wait for the process that ended
    except BaseException as error:
        _abort(comm, error)
        raise
    finally:
        signal.signal(signal.SIGTERM, previous)


def _was_reported(comm: Any, patience: float = 0.1) -> bool:
    """Return whether another rank has printed the error; wait up to ``patience`` seconds for its message."""
    end = time.monotonic() + patience
    while not (found := comm.iprobe(tag=_REPORTED)) and time.monotonic() < end:
        time.sleep(_POLL)
    return bool(found)


def _report_stopped(rank: int, resume: Path | None) -> None:
    """Print the reason immediately, as mpirun kills after a second; rank 1 prints it too, as rank 0 may have died."""
    go_on = f"run the same command again to go on from {resume}" if resume else "--resume DIR lets a run go on"
    line = f"rank {rank}: stopped by mpirun, as it does on Ctrl-C and when a process dies; {go_on}\n"
    if rank <= 1:
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, line.encode())


def _abort(comm: Any, error: BaseException) -> None:
    """Print the error, once for all ranks, and end every process of the job; does not return."""
    if not _was_reported(comm, _PATIENCE if comm.rank else _POLL):
        for rank in range(comm.size):
            comm.isend(None, dest=rank, tag=_REPORTED)
        sys.stdout.flush()
        sys.stderr.write(f"{_text(error)}\n")
        sys.stderr.flush()
    comm.Abort(130 if isinstance(error, KeyboardInterrupt) else 2)  # also after SystemExit(0), as this part is missing


def _text(error: BaseException) -> str:
    if isinstance(error, TecoInferError):
        return f"error: {error}"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    from utils.pipeline.report.unforeseen import line_of, show_calls

    show_calls(error)
    return line_of(error)
