"""Rows in processes of their own, so that a crash or a hang is one combination's finding and not the end."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from sweep.judge import FINDING

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 300.0
"""Seconds one combination may take."""

Outcome = dict[str, Any]
Done = Callable[[str, list[Outcome]], None]


def run_all(names: Sequence[str], done: Done, jobs: int, folder: Path, longest: float = LONGEST) -> None:
    """Run rows, ``jobs`` at a time.

    Args:
        names: of the rows. done: called for every finished row, in any thread, one at a time.
        folder: for caches and what the workers print. longest: seconds one combination may take.
    """
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        waiting.put(name)
    lock, failed = threading.Lock(), []

    def work(number: int) -> None:
        try:
            with Worker(folder / f"worker-{number}.log", folder, longest) as worker:
                while not failed:
                    name = waiting.get_nowait()
                    outcomes = worker.run(name)
                    with lock:
                        done(name, outcomes)
        except queue.Empty:
            return
        except BaseException as error:  # noqa: BLE001 - raised again below, in the thread that waits
            failed.append(error)

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(min(jobs, len(names)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


class Worker:
    """A process that runs rows; it is replaced where it dies.

    Args:
        log: what it prints. folder: for the zoo's cache. longest: seconds it may be silent.
        command: what is run; tests run something else.
    """

    def __init__(self, log: Path, folder: Path, longest: float, command: Sequence[str] = ()) -> None:
        self.log, self.folder, self.longest = log, folder, longest
        self.command = list(command) or [sys.executable, "-m", "sweep.worker"]
        self.process: subprocess.Popen[str] | None = None
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def run(self, name: str) -> list[Outcome]:
        """Run a row and return all its outcomes; where the process dies, the combination at work is a finding."""
        outcomes: list[Outcome] = []
        while True:
            at = ""
            self._ask({"row": name, "done": [one["combination"] for one in outcomes]})
            for message in self._messages():
                if "finished" in message:
                    return outcomes
                at = message.get("start", at)
                if "outcome" in message:
                    outcomes.append(message["outcome"])
                    at = ""
            reason = self._end()
            outcomes.append(_finding(name, at or "(between combinations)", reason))
            if not at:
                return outcomes

    def _ask(self, question: dict[str, Any]) -> None:
        if self.process is None:
            self._start()
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()

    def _start(self) -> None:
        path = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])
        own = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TECO_CACHE_DIR": str(self.folder / "cache"),
               "HF_HUB_OFFLINE": "1"}  # fmt: skip
        with self.log.open("a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self.folder,
                env={**os.environ, **own},
            )  # fmt: skip
        self.lines = queue.SimpleQueue()
        assert self.process.stdout is not None
        self.reader = threading.Thread(target=_read, args=(self.process.stdout, self.lines), daemon=True)
        self.reader.start()

    def _messages(self) -> Iterator[dict[str, Any]]:
        """Yield what the process says, until it dies or says nothing for too long, and is killed."""
        while True:
            try:
                line = self.lines.get(timeout=self.longest)
            except queue.Empty:
                if self.process is not None:
                    self.process.kill()
                return
            if not line:
                return
            yield json.loads(line)

    def _end(self) -> str:
        """End the process and return how it ended."""
        process, self.process = self.process, None
        if process is None:
            return "it never ran"
        assert process.stdin is not None
        try:
            process.stdin.close()
            code = process.wait(timeout=10)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            process.kill()
            code = process.wait()
        self.reader.join()
        if code == -signal.SIGKILL:
            return f"no answer within {self.longest:g} s, or killed for want of memory"
        if code < 0:
            return f"the process was ended by signal {-code}"
        said = self.log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
        return f"the process ended with exit code {code}" + (f": {said}" if code and said else "")


def _read(stream: IO[str], lines: queue.SimpleQueue[str]) -> None:
    with stream:
        for line in stream:
            lines.put(line)
    lines.put("")


def _finding(row: str, combination: str, reason: str) -> Outcome:
    verdict = {"status": FINDING, "error": None, "peer": None, "reason": reason}
    nothing: Outcome = {"seconds": 0.0, "batching": "", "warned": [], "half": "", "parameters": 0}
    return {"row": row, "combination": combination, "verdict": verdict, **nothing}
