"""The served models: loading, unloading, and the ways to ask one of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError
from serve.access_log import AccessLog
from serve.batching.queue import Batcher, Job
from serve.batching.workers import StartWorkers, WorkerPool, Workers, WorkerSettings
from serve.errors import ServeError
from serve.metrics import Metrics, ModelState
from serve.protocol.request import DEFAULT_PRIORITY, InferRequest, InSequence, Signature
from serve.sequences import OpenSequences
from serve.settings import ServeSettings
from serve.source import ModelSource
from tecoinfer_modelzoo.text import one_line
from utils.tasks.prepared import SequenceState

VERSION = "1"
"""The only version of a model."""


Admit = Callable[["ServedModel", Mapping[str, Any]], None]
"""Takes a model and its new description; raises ServeError if the card has no room for it."""


@dataclass(slots=True)
class Timing:
    """Where the time of a request went, in seconds; ``batch``: rows of the batch it was computed in."""

    queue_s: float = 0.0
    compute_s: float = 0.0
    batch: int = 0

    @classmethod
    def of(cls, job: Job) -> Timing:
        """Return the times of a finished job."""
        return cls(job.started - job.queued, max(0.0, job.finished - job.started), job.batch)


class ServedModel:
    """A model of the repository.

    Attributes:
        source: where it comes from. state: ``READY``, ``LOADING``, ``UNLOADING`` or ``UNAVAILABLE``, with ``reason``.
        description: by its engine process, while it is loaded. networks: tensors of each by name.
        steps: tensors of a request of a sequence; ``None``: it has none. sequences: the open ones.
    """

    def __init__(
        self, source: ModelSource, settings: ServeSettings, metrics: Metrics, admit: Admit, workers: StartWorkers
    ) -> None:
        self.source, self._settings, self._metrics, self._admit = source, settings, metrics, admit
        self._new_workers = workers
        self.batcher = Batcher(settings.batching, metrics.of(source.name))
        self.state, self.reason = "UNAVAILABLE", "not loaded"
        self.description: Mapping[str, Any] = {}
        self.networks: Mapping[str, Signature] = {}
        self.steps: Signature | None = None
        self.sequences = OpenSequences(settings.limits.sequences, settings.limits.sequence_seconds)
        self._changing = asyncio.Lock()

    @property
    def name(self) -> str:
        """Its name in URLs."""
        return self.source.name

    @property
    def workers(self) -> WorkerPool | None:
        """Its engine processes, while it is loaded."""
        return self.batcher.workers

    @property
    def is_ready(self) -> bool:
        """Whether it answers requests."""
        return self.state == "READY" and self.workers is not None and not self.workers.failure

    async def load(self) -> None:
        """Open the model; a loaded one is opened again, and answers until the new one is ready.

        Raises TecoInferError if it cannot be opened; a loaded one stays as it was.
        """
        async with self._changing:
            before = self.batcher.workers
            self.state = "READY" if before is not None else "LOADING"
            batching = self._settings.batching
            given = (batching.workers, max(batching.workers, batching.most_workers), batching.call_seconds)
            settings = WorkerSettings(self._settings.limits, *given)
            workers = self._new_workers(self.source, settings, self.batcher.pump)
            try:
                description = await workers.start()
                self._admit(self, description)
            except BaseException as error:
                await workers.end()
                if before is None:
                    self.state, self.reason = "UNAVAILABLE", one_line(error)
                raise
            self.description = description
            self.networks = {name: Signature.from_json(one) for name, one in description["networks"].items()}
            steps = description["sequences"]
            self.steps = None if steps is None else Signature.from_json(steps)
            self.sequences.clear()  # whose states are those of the model before
            self.batcher.workers = workers
            self.state, self.reason = "READY", ""
            self.batcher.pump()
            if before is not None:
                await before.finished()
                await before.end()

    async def unload(self) -> None:
        """Answer the accepted requests, and end the engine processes."""
        async with self._changing:
            workers = self.batcher.workers
            if workers is None:
                return
            self.state, self.reason = "UNLOADING", "it is being unloaded"
            await self.batcher.drained()
            self.batcher.workers = None
            await workers.end()
            self.sequences.clear()
            self.state, self.reason = "UNAVAILABLE", "unloaded"

    @property
    def figures(self) -> ModelState:
        """Its state as the metrics show it."""
        workers = self.workers
        running, replaced = (0, 0) if workers is None else (len(workers.running), workers.replaced)
        return ModelState(self.name, self.is_ready, self.batcher.waiting, running, replaced, len(self.sequences))

    def check_ready(self) -> None:
        """Raise ServeError if the model does not take requests."""
        if self.state != "READY":
            raise ServeError("unavailable", f"model {self.name} is not ready: {self.reason}")
        if self.workers is not None and self.workers.failure:
            raise ServeError("unavailable", f"model {self.name} is not ready: {self.workers.failure}")

    async def infer(self, request: InferRequest, network: str) -> tuple[list[Array], Timing]:
        """Return the outputs of a request to a network, in its order."""
        self.check_ready()
        call = self.networks[network].arrange(request)
        job = Job(
            "infer",
            call.arrays,
            self._deadline(request.timeout),
            {"network": network},
            rows=call.rows,
            key=None if call.key is None else (network, call.key),
            priority=request.priority,
        )
        _, outputs = await self.batcher.submit(job)
        timing = self._timing(job)
        return outputs, timing

    async def infer_next(self, request: InferRequest, asked: InSequence) -> tuple[list[Array], Timing]:
        """Return the outputs of a request of a sequence."""
        self.check_ready()
        if self.steps is None:
            raise ServeError("unsupported", f"parameter sequence_id: model {self.name} has no sequences")
        call, deadline = self.steps.arrange(request), self._deadline(request.timeout)
        async with self.sequences.turn(asked) as turn:
            values, arrays = (None, []) if turn.state is None else turn.state
            header = {"state": values, "last": asked.end}
            job = Job("sequence", [*call.arrays, *arrays], deadline, header, priority=request.priority)
            result, found = await self.batcher.submit(job)
            count = len(self.steps.outputs)
            turn.state = SequenceState(result["state"], found[count:])
        return found[:count], self._timing(job)

    async def answer(self, content: bytes, ending: str, *, rendered: bool = False) -> tuple[dict[str, Any], Timing]:
        """Return the task's answers to the samples of a body, with the name and the timing."""
        self._check_task()
        array = np.frombuffer(content, np.uint8)
        job = Job(
            "answer",
            [array],
            self._deadline(None),
            {"ending": ending, "rendered": rendered},
            key="rows" if self.description["rows_of_answers"] else None,
            priority=DEFAULT_PRIORITY,
        )
        result, _ = await self.batcher.submit(job)
        return result["reply"], self._timing(job)

    async def complete(self, request: Mapping[str, Any]) -> AsyncGenerator[str | dict[str, Any], None]:
        """Yield the continuation of a prompt piece by piece, and last its summary."""
        self._check_task()
        if not self.description["streams"]:
            raise ServeError("unsupported", f"model {self.name} does not continue texts")
        pieces: asyncio.Queue[str | None] = asyncio.Queue()
        job = Job("complete", [], self._deadline(None), request, priority=DEFAULT_PRIORITY, part=pieces.put_nowait)
        running = asyncio.create_task(self.batcher.submit(job))
        running.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            while (piece := await pieces.get()) is not None:
                yield piece
            result, _ = await running
            self._timing(job)
            yield result["reply"]
        finally:
            running.cancel()

    def _check_task(self) -> None:
        self.check_ready()
        if self.description["task"] is None:
            raise ServeError("unsupported", f"model {self.name} is a file without a task; it takes tensors only")

    def _deadline(self, asked: float | None) -> float:
        most = self._settings.batching.timeout
        return time.monotonic() + (most if asked is None else min(asked, most))

    def _timing(self, job: Job) -> Timing:
        timing = Timing.of(job)
        self._metrics.waited(self.name, timing.queue_s)
        return timing


class ServedNetwork(NamedTuple):
    """A network of a model; ``network``: its name there, empty: the model has several, and none was named."""

    model: ServedModel
    network: str

    @property
    def name(self) -> str:
        """Its name in URLs."""
        return self.model.name if len(self.model.networks) <= 1 or not self.network else self._full_name

    @property
    def _full_name(self) -> str:
        return f"{self.model.name}.{self.network}"

    def tensors(self, request: InferRequest | None = None) -> Signature:
        """Return the tensors of its requests, or of a request of a sequence."""
        if request is not None and request.sequence is not None and self.model.steps is not None:
            return self.model.steps
        return self.model.networks.get(self.network, Signature((), ()))

    async def infer(self, request: InferRequest) -> tuple[list[Array], Timing]:
        """Return the outputs of a request, in the order of :meth:`tensors`."""
        self.model.check_ready()
        if request.sequence is not None:
            return await self.model.infer_next(request, request.sequence)
        if not self.network:
            names = ", ".join(f"{self.model.name}.{one}" for one in self.model.networks)
            raise ServeError("unsupported", f"model {self.model.name} has several networks; ask one of them: {names}")
        return await self.model.infer(request, self.network)


@dataclass
class Repository:
    """All models of a server.

    Attributes:
        models: by name. metrics, log: of the server.
        closing: whether the server is shutting down and not ready any more.
    """

    settings: ServeSettings
    metrics: Metrics
    log: AccessLog
    models: dict[str, ServedModel] = field(default_factory=dict)
    closing: bool = False

    @classmethod
    def of(
        cls,
        sources: Sequence[ModelSource],
        settings: ServeSettings,
        metrics: Metrics,
        log: AccessLog,
        workers: StartWorkers = Workers,
    ) -> Repository:
        """Return a repository of models that are not loaded yet. Raises ConfigError if two have one name."""
        found = cls(settings, metrics, log)
        for source in sources:
            if source.name in found.models:
                raise ConfigError(f"two models have the name {source.name}; name one of them: NEW={source.file}")
            found.models[source.name] = ServedModel(source, settings, metrics, found.admit, workers)
        return found

    def admit(self, model: ServedModel, description: Mapping[str, Any]) -> None:
        """Raise ServeError if a card cannot hold a model beside the others; each of its processes has a copy.

        While a model is loaded again, the card holds the old and the new one. Replicas on a Ray cluster are not
        counted: they may be on other machines.
        """
        if self.settings.launcher == "ray":
            return
        count, limit = self.settings.batching.workers, description["memory_limit"]
        held = [
            one.description["memory"] for one in self.models.values() if one.workers is not None and one.description
        ]
        total = count * (sum(held) + description["memory"])
        if description["memory"] and total > limit:
            raise ServeError(
                "memory",
                f"model {model.name} does not fit: the models of this server would need {total} bytes of each SPA's "
                f"{limit}; serve fewer models, or lower --max_batch or --workers",
            )

    @property
    def is_ready(self) -> bool:
        """Whether all loaded models answer requests."""
        return not self.closing and all(model.is_ready for model in self.models.values() if model.reason != "unloaded")

    def find(self, name: str, version: str = "") -> ServedModel:
        """Return a model. Raises ServeError if there is none of this name and version."""
        if name not in self.models:
            raise ServeError("unknown", f"unknown model {name[:100]!r}; the models are: {', '.join(self.models)}")
        if version not in ("", VERSION):
            raise ServeError("unknown", f"model {name} has no version {version[:20]!r}; its only version is {VERSION}")
        return self.models[name]

    def find_network(self, name: str, version: str = "") -> ServedNetwork:
        """Return a network: ``NAME`` of a model with one, ``NAME.NETWORK`` of a model with several.

        Raises ServeError if there is none of this name and version, or a model with several is named without one.
        """
        if name in self.models:
            model = self.find(name, version)
            return ServedNetwork(model, next(iter(model.networks)) if len(model.networks) == 1 else "")
        head, _, network = name.rpartition(".")
        found = self.models.get(head)
        if found is None or (found.networks and (len(found.networks) == 1 or network not in found.networks)):
            raise ServeError("unknown", f"unknown model {name[:100]!r}; the models are: {', '.join(self._names())}")
        self.find(head, version)
        return ServedNetwork(found, network)

    def _names(self) -> Iterator[str]:
        for model in self.models.values():
            yield model.name
            if len(model.networks) > 1:
                yield from (f"{model.name}.{network}" for network in model.networks)

    def index(self, ready_only: bool = False) -> list[dict[str, str]]:
        """Return name, version, state and reason of each model."""
        return [
            {"name": model.name, "version": VERSION, "state": _state(model), "reason": model.reason}
            for model in self.models.values()
            if model.is_ready or not ready_only
        ]

    async def load(self) -> None:
        """Load all models, at the same time. Raises the first error, after the others have ended."""
        results = await asyncio.gather(*(model.load() for model in self.models.values()), return_exceptions=True)
        failed = next((one for one in results if isinstance(one, BaseException)), None)
        if failed is not None:
            await self.end()
            raise failed

    async def drain(self, seconds: float) -> bool:
        """Wait until accepted requests are answered, at most so long; return whether they all are."""
        waits = [asyncio.ensure_future(model.batcher.drained()) for model in self.models.values()]
        _, pending = await asyncio.wait(waits, timeout=seconds) if waits else ((), ())
        for one in pending:
            one.cancel()
        return not pending

    async def end(self) -> None:
        """End all engine processes."""
        found = [model.workers for model in self.models.values() if model.workers is not None]
        await asyncio.gather(*(workers.end() for workers in found))


def _state(model: ServedModel) -> str:
    return "UNAVAILABLE" if model.state == "READY" and not model.is_ready else model.state
