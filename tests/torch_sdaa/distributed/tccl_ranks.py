"""Ranks for tests: real processes, forked from a process that has imported torch and not used the device.

Importing torch takes seconds; a fork of who has done so takes none. ``python tccl_ranks.py`` is that process: it reads
one job a line, runs it in so many children, and answers with a line.
"""

from __future__ import annotations

import atexit
import faulthandler
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent


class Outcome(NamedTuple):
    """How a rank ended: its exit code (negative: the signal), the result of its function, its stderr."""

    code: int
    value: Any
    said: str


class Host:
    """The process that ranks are forked from.

    Args:
        folder: for what ranks write. env: variables that are read when torch_sdaa is imported.
    """

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._folder, self._jobs = folder, 0
        words = [sys.executable, str(HERE / "tccl_ranks.py")]
        where = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join((str(HERE.parents[2]), str(HERE))),
            **env,
        }
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=where, text=True)

    def __call__(
        self, size: int, function: str, *args: Any, timeout: float = 120, env: Mapping[str, str] | None = None
    ) -> list[Outcome]:
        """Run ``module:function`` as ranks 0 to ``size`` - 1 and return how each ended; a rank that hangs is killed."""
        self._jobs += 1
        folder = self._folder / f"job{self._jobs}"
        folder.mkdir(parents=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = {
            "size": size,
            "function": function,
            "args": args,
            "folder": str(folder),
            "timeout": timeout,
            "env": dict(env or {}),
        }
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        codes = json.loads(self._process.stdout.readline())
        found = []
        for rank, code in enumerate(codes):
            value = folder / f"{rank}.json"
            said = (folder / f"{rank}.err").read_text(encoding="utf-8")
            found.append(Outcome(code, json.loads(value.read_text()) if value.exists() else None, said))
        return found

    def values(self, size: int, function: str, *args: Any, timeout: float = 120) -> list[Any]:
        """The same for ranks that must all succeed; returns their results."""
        found = self(size, function, *args, timeout=timeout)
        assert [one.code for one in found] == [0] * size, "\n".join(one.said for one in found)
        return [one.value for one in found]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def hosted(folder: Path, env: Mapping[str, str] | None = None) -> Iterator[Host]:
    """Keep a host for as long as the context lasts."""
    host = Host(folder, env or {})
    try:
        yield host
    finally:
        host.close()


def join(backend: str | None = "tccl", *, select: bool = True, **options: Any) -> tuple[int, int]:
    """Add this rank to its job's group, over a store of rank 0 on a port that the system selected.

    ``select``: make the rank's device the current one before.
    """
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    rank, size, port = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), Path("port")
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, size, True, wait_for_workers=False)
        Path("port.new").write_text(str(store.port))
        Path("port.new").rename(port)
    else:
        while not port.exists():
            time.sleep(0.002)
        store = dist.TCPStore("127.0.0.1", int(port.read_text()), size, False, wait_for_workers=False)
    if select:
        torch.sdaa.set_device(rank % torch.sdaa.device_count())
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=size, **{"timeout": timedelta(seconds=60), **options}
    )
    return rank, size


# ---------------------------------------------------------------------------------------------------- the process


def _rank(job: Mapping[str, Any], rank: int) -> None:
    """Run one rank to the end; never returns."""
    os.chdir(job["folder"])
    errors = os.open(f"{rank}.err", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(errors, 2)
    os.dup2(errors, 1)
    size = str(job["size"])
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=size, LOCAL_WORLD_SIZE=size)
    faulthandler.enable(2)  # a rank that hangs is ended by SIGABRT
    code = 1
    try:
        module, _, name = job["function"].partition(":")
        value = getattr(importlib.import_module(module), name)(*job["args"])
        Path(f"{rank}.json").write_text(json.dumps(value))
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001 -- as the interpreter would
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _codes(pids: Sequence[int], timeout: float) -> list[int]:
    until, codes = time.monotonic() + timeout, dict.fromkeys(pids, 0)
    left = set(pids)
    while left:
        for pid in list(left):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                codes[pid] = os.waitstatus_to_exitcode(status)
                left.discard(pid)
        if left and time.monotonic() > until:
            for pid in left:
                os.kill(pid, signal.SIGABRT)
            until = float("inf")
        time.sleep(0.005)
    return list(codes.values())


def main() -> None:
    """Serve jobs until stdin ends."""
    import torch
    import torch.distributed.checkpoint
    import torch.distributed.fsdp

    import torch_sdaa  # noqa: F401 -- what each rank needs

    assert torch.sdaa.device_count()
    answers = os.fdopen(os.dup(1), "w")
    while line := sys.stdin.readline():
        job = json.loads(line)
        pids = []
        for rank in range(job["size"]):
            pid = os.fork()
            if not pid:
                _rank(job, rank)
            pids.append(pid)
        answers.write(json.dumps(_codes(pids, job["timeout"])) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
