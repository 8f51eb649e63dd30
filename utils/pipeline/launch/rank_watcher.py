"""A program that watches a rank of ``mpirun`` and ends it if it hangs.

MPI's calls at the start and the end of a rank hold Python's lock, and a rank that is stopped by a signal runs no code.
So this file runs as a separate process, from before ``MPI_Init`` until the rank's process ends: it ends stopped ranks
of its machine, and its own rank if not all ranks start in time. ``mpirun`` then ends the job. It imports only the
standard library, so that it starts quickly.

    python -I -S rank_watcher.py PID RANK SIZE LOOKS START JOB

PID and RANK are those of its rank, SIZE is the number of ranks, LOOKS the number of consecutive checks, one per second,
that must find a process stopped, START the number of checks in which all ranks must have started, and JOB an entry of
the environment that is equal for all processes of the job (empty: none). From standard input it reads a line
``PID:RANK PID:RANK ...`` of the ranks on its machine each time all ranks have met, and an empty line when they are to
meet again. It ends with its rank.

A stopped process is ignored while the process that started it is stopped too: the job was stopped as a whole, and will
be continued as a whole. Ranks on other machines have their own watchers; if ``mpirun`` is stopped, no rank is ended.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress

LOOK = 1.0
"""Seconds between two checks."""
_LATER = 3
"""Further checks until a stopped rank is ended after all ranks have met: the rank that waits for its part ends the job
first, with its own line and exit code."""
_MOST_APART = 10
"""Largest difference, in checks, between the watchers of different ranks, so that they do not act at the same time."""


def is_stopped(pid: int) -> bool:
    """Return whether a process of this machine is stopped by a signal; false if it has ended, or without ``/proc``."""
    return _stat(pid)[:1] in ([b"T"], [b"t"])


def _stat(pid: int) -> list[bytes]:
    """Return the fields of ``/proc/PID/stat`` from the state on: state, parent, process group; empty if missing."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return []
    return stat[stat.rindex(b")") + 2 :].split()


class Watcher:
    """The state of the watcher; arguments as in the module's docstring."""

    def __init__(self, pid: int, rank: int, size: int, looks: int, start: int, job: str) -> None:
        self._pid, self._rank, self._size, self._looks = pid, rank, size, looks
        self._limit = start + min(rank, _MOST_APART)  # rank 0 first, so that the line is printed once
        self._left = self._limit
        self._job = b"\0" + job.encode(errors="surrogateescape") + b"\0" if job else b""
        self._ranks = {pid: rank}
        self._seen: dict[int, int] = {}
        self._late = 0
        self._above = _above(pid)

    def take(self, line: str) -> None:
        """Take a line of standard input: the ranks of this machine, or empty if all ranks are to meet again."""
        if not line.strip():
            self._left = self._limit
            return
        pairs = (word.split(":") for word in line.split())
        self._ranks = {int(pid): int(rank) for pid, rank in pairs}
        self._left, self._job, self._late = -1, b"", _LATER

    def look(self) -> None:
        """Check once, and end processes that hang."""
        if any(map(is_stopped, self._above)):
            self._seen = {}
            return
        stopped = {**self._of_job(), **self._ranks}
        # State T only: a process held by a debugger (t) is left alone.
        self._seen = {pid: self._seen.get(pid, 0) + 1 for pid in stopped if _stat(pid)[:1] == [b"T"]}
        for pid, count in list(self._seen.items()):
            # The rank's own watcher acts first, then one after the other, so that the line is printed once.
            if count >= self._looks + self._late + (0 if pid == self._pid else 2 + min(self._rank, _MOST_APART)):
                self._end(
                    pid,
                    f"rank {stopped[pid]}: process {pid} is stopped and so ended; let all ranks run, or start fewer",
                )
        if self._left > 0 and not is_stopped(self._pid):
            self._left -= 1
            if not self._left:
                which = "see which process hangs, has ended or is stopped"
                self._end(
                    self._pid, f"rank {self._rank}: not all {self._size} ranks have come in {self._limit} s; {which}"
                )

    def _of_job(self) -> dict[int, int]:
        """Return stopped processes of the job, found by their environment, with their ranks."""
        if not self._job:
            return {}
        found = {}
        for name in os.listdir("/proc"):
            if name.isdecimal() and is_stopped(int(name)):
                try:
                    with open(f"/proc/{name}/environ", "rb") as file:
                        environment = b"\0" + file.read()
                except OSError:  # it has ended, or belongs to another user
                    continue
                rank = environment.partition(b"\0OMPI_COMM_WORLD_RANK=")[2].partition(b"\0")[0]
                if self._job in environment and rank.isdigit():
                    found[int(name)] = int(rank)
        return found

    def _end(self, pid: int, line: str) -> None:
        try:
            os.kill(pid, 0)
            os.write(2, f"{line}\n".encode())
            os.kill(pid, signal.SIGKILL)
        except OSError:  # it has ended, or stderr is closed
            self._seen.pop(pid, None)


def _above(pid: int) -> list[int]:
    """Return the ancestors of a process that are in other process groups."""
    found: list[int] = []
    group = _stat(pid)[2:3]
    while len(fields := _stat(pid)) > 2 and (pid := int(fields[1])) > 1 and pid not in found:
        if _stat(pid)[2:3] != group:
            found.append(pid)
    return found


def watch(watcher: Watcher, pid: int) -> None:
    """Check once per second until the rank ends."""
    try:
        gone = os.pidfd_open(pid)
    except (AttributeError, OSError):  # an old kernel, another system, or it has ended
        gone = -1
    line, files = b"", [0, *([gone] if gone >= 0 else [])]
    while True:
        end = time.monotonic() + LOOK
        while (left := end - time.monotonic()) > 0:
            ready = select.select(files, [], [], left)[0]
            if gone in ready or os.getppid() != pid:
                return
            if 0 not in ready:
                continue
            read = os.read(0, 1 << 16)
            line += read
            if not read:  # the rank has closed the pipe, or has ended
                return
            *whole, line = line.split(b"\n")
            for one in whole:
                watcher.take(one.decode())
        watcher.look()


def main(argv: list[str]) -> int:
    """Run the program described in the module's docstring."""
    with suppress(OSError):  # already a group leader
        os.setsid()  # signals to the rank's process group do not reach this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pid, rank, size, looks, start = map(int, argv[:5])
    watch(Watcher(pid, rank, size, looks, start, argv[5]), pid)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
