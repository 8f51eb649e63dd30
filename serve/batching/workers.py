"""The engine processes of one model: each is replaced when it ends."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine import Array, TecoInferError
from serve.batching.process import EngineProcess
from serve.engines.wire import Message
from serve.settings import Limits
from serve.source import ModelSource

_log = logging.getLogger("serve")

MOST_FAILURES = 5
"""Starts that fail one after the other until a model without any process is given up."""

_TICK = 0.02  # seconds between looks at processes that are to end
_PAUSE = 0.2  # seconds before the second try; doubled for each further one


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How the workers of a model are started.

    Attributes:
        limits: of their requests. count: number of them; on a Ray cluster the least, and ``most`` the most.
        call_seconds: after which a call that has not returned is ended.
    """

    limits: Limits
    count: int
    most: int
    call_seconds: float


class Worker(Protocol):
    """What computes calls of a model: an engine process, or room for the calls of a replica.

    Attributes:
        pid: of the process, if it is one. held: number of batches that it was given and has not returned.
    """

    held: int

    @property
    def pid(self) -> int:
        """Identifier of the process."""

    async def call(
        self,
        header: Mapping[str, Any],
        arrays: Sequence[Array],
        seconds: float,
        part: Callable[[str], None] | None = None,
    ) -> Message:
        """Compute a call and return its results (:meth:`serve.batching.process.EngineProcess.call`)."""


class WorkerPool(Protocol):
    """The workers of a model.

    Attributes:
        running: those that take calls. replaced: number of lost ones. failure: why there are none any more.
    """

    replaced: int
    failure: str

    @property
    def running(self) -> Sequence[Worker]:
        """Workers that take calls."""

    async def start(self) -> dict[str, Any]:
        """Start the workers; return the description of the model. Raises TecoInferError if it cannot be opened."""

    def free(self, depth: int) -> Worker | None:
        """Return the worker that holds the fewest batches, if these are fewer than ``depth``."""

    async def finished(self) -> None:
        """Wait until no worker holds a batch; the caller gives them no more calls."""

    async def end(self) -> None:
        """End the workers."""


StartWorkers = Callable[[ModelSource, WorkerSettings, Callable[[], None]], WorkerPool]
"""Returns the workers of a model, not started; the function is called when one starts or ends."""


class Workers:
    """Keeps a number of engine processes running.

    Attributes:
        running: the processes that take calls. replaced: number of processes that were replaced.
        failure: why no process can be started any more; empty: it can.
        changed: called when a process starts or ends, or the model is given up.
    """

    def __init__(self, source: ModelSource, settings: WorkerSettings, changed: Callable[[], None]) -> None:
        self._source, self._limits, self._count = source, settings.limits, settings.count
        self.changed = changed
        self.running: list[EngineProcess] = []
        self.replaced = 0
        self.failure = ""
        self._keepers: list[asyncio.Task[None]] = []
        self._all: set[EngineProcess] = set()

    async def start(self) -> dict[str, Any]:
        """Start all processes; return the description of the model. Raises TecoInferError if it cannot be opened."""
        first = await self._started()
        self._keep(first)
        others = await asyncio.gather(*(self._started() for _ in range(self._count - 1)), return_exceptions=True)
        for one in others:
            if isinstance(one, EngineProcess):
                self._keep(one)
        failed = next((one for one in others if isinstance(one, BaseException)), None)
        if failed is not None:
            await self.end()
            raise failed
        return first.description

    def free(self, depth: int) -> EngineProcess | None:
        """Return the process that holds the fewest batches, if these are fewer than ``depth``."""
        usable = (one for one in self.running if not one.ended.is_set())
        found = min(usable, key=lambda one: one.held, default=None)
        return found if found is not None and found.held < depth else None

    async def finished(self) -> None:
        """Wait until no process holds a batch; the caller gives them no more calls."""
        while any(one.held for one in self.running):
            await asyncio.sleep(_TICK)

    async def end(self) -> None:
        """End all processes."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        self.running.clear()
        await asyncio.gather(*(one.end() for one in self._all))
        self._all.clear()

    async def _started(self) -> EngineProcess:
        found = await EngineProcess.start(self._source, self._limits)
        self._all.add(found)
        return found

    def _keep(self, process: EngineProcess) -> None:
        self.running.append(process)
        self._keepers.append(asyncio.create_task(self._keeping(process), name=f"keep {self._source.name}"))

    async def _keeping(self, process: EngineProcess) -> None:
        """Replace a process whenever it ends."""
        while True:
            await process.ended.wait()
            self.running.remove(process)
            self.changed()
            await process.end()
            self._all.discard(process)
            _log.warning("model %s: engine process %d ended; it is replaced", self._source.name, process.pid)
            found = await self._again()
            if found is None:
                return
            process = found
            self.replaced += 1
            self.running.append(process)
            self.changed()

    async def _again(self) -> EngineProcess | None:
        """Start a new process, after some tries if necessary; ``None``: none is left, and the model is given up."""
        for number in itertools.count():
            if number:
                await asyncio.sleep(_PAUSE * 2 ** min(number, MOST_FAILURES))
            try:
                return await self._started()
            except TecoInferError as error:
                _log.warning("model %s: %s", self._source.name, error)
                if number + 1 >= MOST_FAILURES and not self.running:
                    self.failure = str(error)
                    self.changed()
                    return None
        raise AssertionError  # of an endless loop
