"""The queue of a model: it forms batches of what waits whenever an engine process is free."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine import Array
from serve.batching.process import ProcessLostError
from serve.batching.workers import Worker, WorkerPool
from serve.engines.wire import Message
from serve.errors import ServeError
from serve.settings import BatchSettings

TRIES = 3
"""Calls that a request may be part of, if the process ends each time, until it is answered with an error. The first end
may be caused by another request of the same call, and a second one by a process that was ended from outside."""

AHEAD = 2
"""Calls that a process may hold: it finds the next one when one ends. A second one must be a full batch."""


@dataclass(eq=False)
class Job:
    """A request in the queue.

    Attributes:
        kind: ``infer``, ``sequence``, ``answer`` or ``complete``.
        arrays: of the request. header: what its message says of it.
        rows: samples of the request, as far as they count for the size of a batch.
        key: of jobs that may be computed together; ``None``: with no other.
        priority: a smaller number is served earlier. deadline: end of its time (``time.monotonic``).
        part: takes pieces of the result as they arrive.
        done: result: its entry of ``results``, and its arrays.
        tries: number of calls it was part of. queued, started, finished: times (``time.monotonic``).
        batch: rows of the batch it was computed in.
    """

    kind: str
    arrays: list[Array]
    deadline: float
    header: Mapping[str, Any] = field(default_factory=dict)
    rows: int = 1
    key: Hashable | None = None
    priority: int = 0
    part: Callable[[str], None] | None = None
    done: asyncio.Future[tuple[dict[str, Any], list[Array]]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    tries: int = 0
    queued: float = field(default_factory=time.monotonic)
    started: float = 0.0
    finished: float = 0.0
    batch: int = 0
    number: int = 0

    def __lt__(self, other: Job) -> bool:
        return (self.priority, self.number) < (other.priority, other.number)

    def fail(self, error: Exception) -> None:
        """Answer with an error, unless it has an answer."""
        if not self.done.done():
            self.done.set_exception(error)


@dataclass(slots=True)
class _Group:
    """Waiting jobs that may be computed together: a heap, the most urgent first; ``rows``: of all of them."""

    jobs: list[Job] = field(default_factory=list)
    rows: int = 0

    def add(self, job: Job) -> None:
        heapq.heappush(self.jobs, job)
        self.rows += job.rows

    def take(self) -> Job:
        job = heapq.heappop(self.jobs)
        self.rows -= job.rows
        return job


class Observer(Protocol):
    """Takes figures of batches."""

    def batch(self, rows: int, requests: int, seconds: float) -> None:
        """Note a computed batch; seconds: of the engine process."""

    def counts(self, pid: int, counts: Mapping[str, int]) -> None:
        """Note what a process reports of joined calls."""


class Batcher:
    """Forms batches of one model's requests.

    A free process takes the requests of the key whose first one is the most urgent: at most ``rows`` rows, by
    priority and then by arrival. With a delay it waits until the oldest of them has waited that long or a batch is
    full. A process that computes already gets a second batch only if that is full.
    """

    def __init__(self, settings: BatchSettings, observer: Observer) -> None:
        self._settings, self._observer = settings, observer
        self.workers: WorkerPool | None = None
        self._groups: dict[Hashable, _Group] = {}
        self._useful: dict[Hashable, int] = {}
        self._waiting = 0
        self._has_answered = False  # whether jobs in the queue are to be removed
        self._is_due = False  # whether the event loop is going to call `pump`
        self._running: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def waiting(self) -> int:
        """Number of requests in the queue."""
        return self._waiting

    @property
    def computing(self) -> int:
        """Number of calls that engine processes hold."""
        return len(self._running)

    async def submit(self, job: Job) -> tuple[dict[str, Any], list[Array]]:
        """Queue a job; return its result.

        Raises ServeError: the queue is full (``full``), the time is over (``late``), the model has no process any more
        (``unavailable``), or the job failed.
        """
        self._drop_answered()
        if self._waiting >= self._settings.queue and self._is_due:
            self.pump()
        if self._waiting >= self._settings.queue:
            raise ServeError("full", f"{self._waiting} requests wait already; try again later")
        if self.workers is None or self.workers.failure:
            raise ServeError("unavailable", "the model is not loaded" if self.workers is None else self.workers.failure)
        job.number = next(self._numbers)
        self._add(job)
        self._pump_soon()
        timer = job.done.get_loop().call_later(max(0.0, job.deadline - time.monotonic()), self._expire, job)
        try:
            return await job.done
        finally:
            timer.cancel()
            if job.done.cancelled():  # its client is gone
                self._forget_answered()

    def _expire(self, job: Job) -> None:
        job.fail(ServeError("late", f"no answer within {job.deadline - job.queued:g} s"))
        self._forget_answered()

    def _forget_answered(self) -> None:
        self._has_answered = True
        self._pump_soon()

    def _pump_soon(self) -> None:
        """Call :meth:`pump` after what the event loop has ready now: requests that arrive together share a batch."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self.pump)

    async def drained(self) -> None:
        """Wait until nothing waits or is computed."""
        await self._idle.wait()

    def give_up(self, reason: str) -> None:
        """Answer all waiting jobs with an error."""
        for group in self._groups.values():
            for job in group.jobs:
                job.fail(ServeError("unavailable", reason))
        self._groups.clear()
        self._waiting = 0
        self._note_idle()

    def pump(self) -> None:
        """Give batches to free processes; called whenever something changes."""
        self._is_due = False
        workers = self.workers
        if workers is None:
            self._drop_answered()
            return
        if workers.failure:
            self.give_up(workers.failure)
            return
        self._drop_answered()
        while self._groups:
            process = workers.free(AHEAD)
            if process is None:
                return
            batch = self._next(full_only=process.held > 0)
            if not batch:
                return
            process.held += 1
            task = asyncio.create_task(self._compute(process, batch))
            self._running.add(task)
            task.add_done_callback(self._computed)

    # ------------------------------------------------------------------------------------------------------- the queue

    def _add(self, job: Job) -> None:
        key = ("alone", job.number) if job.key is None else ("together", job.kind, job.key)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group()
        group.add(job)
        self._waiting += 1
        self._idle.clear()

    def _drop_answered(self) -> None:
        """Remove jobs whose clients are gone, or whose time is over."""
        if not self._has_answered:
            return
        self._has_answered = False
        for key, group in list(self._groups.items()):
            left = [job for job in group.jobs if not job.done.done()]
            if len(left) < len(group.jobs):
                self._waiting -= len(group.jobs) - len(left)
                heapq.heapify(left)
                self._groups[key] = _Group(left, sum(job.rows for job in left))
            if not left:
                del self._groups[key]
        self._note_idle()

    def _next(self, full_only: bool) -> list[Job]:
        """Return the next batch; empty if none is ready yet, with a timer for the time when one is."""
        now, ready = time.monotonic(), list[tuple[Job, Hashable]]()
        earliest, delay = float("inf"), self._settings.delay
        for key, group in self._groups.items():
            first = group.jobs[0]
            if group.rows >= self._most(key):
                ready.append((first, key))
            elif not full_only:
                waits = delay > 0 and first.key is not None
                at = min(job.queued for job in group.jobs) + delay if waits else now
                if at <= now:
                    ready.append((first, key))
                earliest = min(earliest, at)
        if not ready:
            if earliest < float("inf"):
                self._wake_at(earliest - now)
            return []
        return self._take(min(ready)[1])

    def _most(self, key: Hashable) -> int:
        return min(self._settings.rows, self._useful.get(key, self._settings.rows))

    def _take(self, key: Hashable) -> list[Job]:
        group, batch, rows, most = self._groups[key], list[Job](), 0, self._most(key)
        while group.jobs and (not batch or rows + group.jobs[0].rows <= most):
            if batch and (batch[0].tries or group.jobs[0].tries):  # a job whose process was lost is computed alone
                break
            job = group.take()
            self._waiting -= 1
            batch.append(job)
            rows += job.rows
        if not group.jobs:
            del self._groups[key]
        return batch

    def _wake_at(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, seconds), self.pump)

    # --------------------------------------------------------------------------------------------------------- a batch

    async def _compute(self, process: Worker, batch: list[Job]) -> None:
        first, rows, now = batch[0], sum(job.rows for job in batch), time.monotonic()
        for job in batch:
            job.started, job.batch, job.tries = now, rows, job.tries + 1
        header = {"kind": first.kind, **_header(batch)}
        arrays = [array for job in batch for array in job.arrays]
        call = process.call(header, arrays, self._settings.call_seconds, first.part)
        try:
            message = await (self._cancellable(first, call) if first.part is not None else call)
        except ProcessLostError:
            self._again(batch)
        except ServeError as error:
            for job in batch:
                job.fail(error)
        except asyncio.CancelledError:
            for job in batch:
                job.fail(ServeError("unavailable", "the server is shutting down"))
            raise
        else:
            self._finish(batch, message, process, rows)
        finally:
            process.held -= 1

    async def _cancellable(self, job: Job, call: Any) -> Message:
        """Await a call that is stopped when the client of its job is gone."""
        running = asyncio.ensure_future(call)
        await asyncio.wait((running, job.done), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            running.cancel()
            try:
                await running
            except asyncio.CancelledError:
                raise ServeError("unavailable", "the client has gone") from None
        found: Message = running.result()
        return found

    def _again(self, batch: Sequence[Job]) -> None:
        """Queue the jobs of a lost process once more, each alone, so that the one that ended it does not take others
        along; after :data:`TRIES`, or if a part of the answer was sent, it is answered with an error."""
        for job in batch:
            if job.tries >= TRIES or job.part is not None:
                job.fail(ServeError("failed", "the engine process ended during this request; it was replaced"))
            elif not job.done.done():
                self._add(job)

    def _finish(self, batch: Sequence[Job], message: Message, process: Worker, rows: int) -> None:
        header, now = message.header, time.monotonic()
        if "error" in header:
            for job in batch:
                job.finished = now
                job.fail(ServeError(header["error"]["kind"], header["error"]["text"]))
            return
        self._observer.batch(rows, len(batch), header["seconds"])
        if "useful" in header:
            self._learn(batch[0], header["useful"])
            self._observer.counts(
                header.get("pid", process.pid), {key: header[key] for key in ("shared", "alone", "refused")}
            )
        arrays = iter(message.arrays)
        for job, result in zip(batch, header["results"], strict=True):
            job.finished = now
            mine = list(itertools.islice(arrays, result.get("outputs", 0)))
            if "error" in result:
                job.fail(ServeError(result["error"]["kind"], result["error"]["text"]))
            elif not job.done.done():
                job.done.set_result((result, mine))

    def _learn(self, job: Job, useful: int) -> None:
        """Remember the most rows worth joining for a key."""
        if job.key is None:
            return
        if len(self._useful) > 4 * self._settings.queue:
            self._useful.clear()
        self._useful["together", job.kind, job.key] = useful

    def _computed(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            task.get_loop().call_exception_handler({"message": "a batch failed", "exception": task.exception()})
        self.pump()
        self._note_idle()

    def _note_idle(self) -> None:
        if not self._waiting and not self._running:
            self._idle.set()


def _header(batch: Sequence[Job]) -> dict[str, Any]:
    """Return the part of the message's header that depends on the kind of the jobs."""
    kind = batch[0].kind
    if kind == "infer":
        return {"requests": len(batch), **batch[0].header}
    if kind == "sequence":
        return dict(batch[0].header)
    return {"bodies": [job.header for job in batch]} if kind == "answer" else {"request": batch[0].header}
