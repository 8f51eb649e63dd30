"""A process beside each rank of ``mpirun``, which ends the rank where that can do nothing itself.

MPI's own calls at the start and the end of a rank hold Python's lock, and a rank that is stopped by a signal runs no
code at all. So this file runs as a program, from before ``MPI_Init`` until the rank's process is gone: it ends ranks of
its machine that are stopped, and its own rank where not all come to the start in time. ``mpirun`` then ends the job. It
imports the standard library alone, and nothing of the zoo, so that it is there at once.

    python -I -S rank_watcher.py PID RANK SIZE LOOKS START JOB

PID and RANK are those of its rank, SIZE the number of ranks, LOOKS how many looks in a row, one a second, must find a
process stopped, START how many looks all ranks have to come together, and JOB an entry of the environment that the
job's processes have in common (empty: there is none). From standard input it reads a line whenever all ranks have come
together, ``PID:RANK`` of those on its machine, and an empty one when they are to come together again. It ends with its
rank.

A process is left alone while what started it is stopped too: then the job was stopped as a whole, and goes on as one.
Ranks on other machines are watched there, by their own watchers; nothing is done where ``mpirun`` itself is stopped.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress

LOOK = 1.0
"""Seconds between two looks."""
_LATER = 3
"""Looks more after which a stopped rank is ended once all have come: a rank that waits for its part ends the job first,
with its own line and exit code."""
_MOST_APART = 10
"""Looks by which the watchers of different ranks are apart at most where all of them see the same."""


def is_stopped(pid: int) -> bool:
    """Say whether a process of this machine is stopped by a signal; false where it is gone or there is no ``/proc``."""
    return _stat(pid)[:1] in ([b"T"], [b"t"])


def _stat(pid: int) -> list[bytes]:
    """Return the fields of ``/proc/PID/stat`` from the state on: state, parent, process group; empty without one."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return []
    return stat[stat.rindex(b")") + 2 :].split()


class Watcher:
    """What is known of the job, and what to do about it.

    Args:
        pid: of the watched rank. rank: its number. size: ranks of the job. looks: after which a stopped one is ended.
        start: looks that all ranks have to come together. job: see the module's text.
    """

    def __init__(self, pid: int, rank: int, size: int, looks: int, start: int, job: str) -> None:
        self._pid, self._rank, self._size, self._looks = pid, rank, size, looks
        self._limit = start + min(rank, _MOST_APART)  # rank 0 first, so that the line is written once
        self._left = self._limit
        self._job = b"\0" + job.encode(errors="surrogateescape") + b"\0" if job else b""
        self._ranks = {pid: rank}
        self._seen: dict[int, int] = {}
        self._late = 0
        self._above = _above(pid)

    def take(self, line: str) -> None:
        """Take the ranks of this machine, ``PID:RANK PID:RANK``: all have come; without any, they are to come again."""
        if not line.strip():
            self._left = self._limit
            return
        pairs = (word.split(":") for word in line.split())
        self._ranks = {int(pid): int(rank) for pid, rank in pairs}
        self._left, self._job, self._late = -1, b"", _LATER

    def look(self) -> None:
        """Look once, and end what is to be ended."""
        if any(map(is_stopped, self._above)):
            self._seen = {}
            return
        stopped = {**self._of_job(), **self._ranks}
        # Not what a debugger holds, which is its user's business.
        self._seen = {pid: self._seen.get(pid, 0) + 1 for pid in stopped if _stat(pid)[:1] == [b"T"]}
        for pid, count in list(self._seen.items()):
            # That of the rank itself comes first, then one after the other: the line is written once.
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
        """Return stopped processes of the job by their environment, with their ranks; they may have no watcher yet."""
        if not self._job:
            return {}
        found = {}
        for name in os.listdir("/proc"):
            if name.isdecimal() and is_stopped(int(name)):
                try:
                    with open(f"/proc/{name}/environ", "rb") as file:
                        environment = b"\0" + file.read()
                except OSError:  # it is gone, or another user's
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
        except OSError:  # it has gone meanwhile, or nobody reads stderr
            self._seen.pop(pid, None)


def _above(pid: int) -> list[int]:
    """Return what started a process, and what started that, as far as they are of other process groups."""
    found: list[int] = []
    group = _stat(pid)[2:3]
    while len(fields := _stat(pid)) > 2 and (pid := int(fields[1])) > 1 and pid not in found:
        if _stat(pid)[2:3] != group:
            found.append(pid)
    return found


def watch(watcher: Watcher, pid: int) -> None:
    """Look once a second until the rank is gone."""
    try:
        gone = os.pidfd_open(pid)
    except (AttributeError, OSError):  # an old kernel, another system, or it is gone
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
            if not read:  # the rank has closed it: it wants none, or it is gone
                return
            *whole, line = line.split(b"\n")
            for one in whole:
                watcher.take(one.decode())
        watcher.look()


def main(argv: list[str]) -> int:
    """Run as the program that the module's text describes."""
    with suppress(OSError):  # it leads a group already
        os.setsid()  # what is sent to the rank's process group is not for this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pid, rank, size, looks, start = map(int, argv[:5])
    watch(Watcher(pid, rank, size, looks, start, argv[5]), pid)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
