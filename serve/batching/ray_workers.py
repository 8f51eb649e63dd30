"""Replicas of one model on a Ray cluster, deployed by Ray Serve in place of engine processes of this machine.

The server keeps the queue and forms the batches; Ray Serve starts, replaces and updates the replicas, and adds some
while more calls are in flight than replicas compute. A call whose replica is lost is made again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine import Array, ConfigError, ModelError
from serve.batching.process import ProcessLostError
from serve.batching.workers import WorkerSettings
from serve.engines.wire import Message
from serve.errors import ServeError
from serve.source import ModelSource
from tecoinfer_modelzoo import install_command
from tecoinfer_modelzoo.text import one_line
from utils.pipeline.launch.ray_launcher import joined_cluster, worker_settings

_log = logging.getLogger("serve")

DEPTH, LOAD = 2, 1.5
"""Calls that a replica may hold, and the number for each on average from which Ray Serve adds replicas."""

_LOOK = 1.0  # seconds between looks at the number of replicas
_CHECK = 5.0  # seconds between Ray Serve's looks at the health of a replica
_TRIES = 2  # starts of a replica until its model counts as one that cannot be opened
_DELAYS = {"upscale_delay_s": 5.0, "downscale_delay_s": 60.0, "look_back_period_s": 15.0}
_NAME = "Model"  # of the deployment in the application of a model

_CURRENT: dict[str, RayWorkers] = {}
"""The deployed version of each application; an older one must not delete it."""


@contextmanager
def ray_serve() -> Iterator[None]:
    """Join the cluster of ``RAY_ADDRESS``, or start one on this machine, and start Ray Serve there without proxies.

    Raises ConfigError if Ray Serve is not installed, or the cluster cannot be used.
    """
    with joined_cluster():
        try:
            from ray import serve
        except ImportError as error:
            raise ConfigError(f"--launcher ray needs Ray Serve ({error}); run: {install_command('ray')}") from error
        logging.getLogger("ray.serve").setLevel(logging.ERROR)
        serve.start(proxy_location="Disabled", logging_config={"log_level": "ERROR"})
        yield


class RaySlot:
    """Room for the calls of one replica; Ray Serve chooses which one computes a call.

    Attributes:
        pid: 0; answers have that of the process. held: number of batches given and not returned.
        ended: never set: lost replicas are replaced by Ray Serve.
    """

    def __init__(self, workers: RayWorkers) -> None:
        self._workers = workers
        self.pid = self.held = 0
        self.ended = asyncio.Event()

    async def call(
        self,
        header: Mapping[str, Any],
        arrays: Sequence[Array],
        seconds: float,
        part: Callable[[str], None] | None = None,
    ) -> Message:
        """Compute a call; as :meth:`serve.batching.process.EngineProcess.call`."""
        from ray import exceptions
        from ray.serve.exceptions import DeploymentUnavailableError, ReplicaUnavailableError, RequestCancelledError

        lost = (exceptions.RayError, DeploymentUnavailableError, ReplicaUnavailableError, RequestCancelledError)
        handle, given = self._workers.handle, {**header, "call": 0}
        response = handle.call.remote(given, list(arrays)) if part is None else _stream(handle, given)
        try:
            if part is not None:
                return await asyncio.wait_for(_parts(response, part), seconds)
            found, results = await asyncio.wait_for(_awaited(response), seconds)
            return Message(found, results)
        except asyncio.TimeoutError as error:
            response.cancel()
            raise ServeError("late", f"the engine did not return within {seconds:g} s") from error
        except asyncio.CancelledError:
            response.cancel()
            raise
        except lost as error:
            self._workers.note_lost(error)
            raise ProcessLostError from error


def _stream(handle: Any, header: dict[str, Any]) -> Any:
    return handle.options(stream=True, method_name="stream").remote(header)


async def _awaited(response: Any) -> Any:
    return await response


async def _parts(response: Any, part: Callable[[str], None]) -> Message:
    async for found in response:
        if found["kind"] == "done":
            return Message(found, [])
        part(found["piece"])
    raise ProcessLostError


class RayWorkers:
    """The replicas of a model; as :class:`serve.batching.workers.Workers`.

    Attributes:
        running: a slot for each running replica, at least one. replaced: number of calls whose replica was lost.
        failure: always empty: calls wait for replicas until their time is over.
        handle: of the deployment.
    """

    def __init__(self, source: ModelSource, settings: WorkerSettings, changed: Callable[[], None]) -> None:
        self._source, self._settings = source, settings
        self.changed = changed
        self.running: list[RaySlot] = []
        self.replaced = 0
        self.failure = ""
        self.handle: Any = None
        self._app: Any = None
        self._looker: asyncio.Task[None] | None = None

    @property
    def _name(self) -> str:
        return f"teco-{self._source.name}"

    async def start(self) -> dict[str, Any]:
        """Deploy the model; replicas of an older version are replaced one after the other. Return its description.

        Raises ModelError if it cannot be opened, which is tried first: an older version stays as it is.
        """
        before, arguments = _CURRENT.get(self._name), self._arguments()
        description = await asyncio.to_thread(_tried, *arguments)
        if isinstance(description, str):
            raise ModelError(f"{self._source.name}: {description}")
        self._app = self._bound(*arguments)
        try:
            self.handle = await asyncio.to_thread(_deploy, self._app, self._name)
        except RuntimeError as error:  # Ray Serve's; a replica was not opened
            if before is None:
                await asyncio.to_thread(_delete, self._name)
            raise ModelError(f"{self._source.name}: its replicas do not start: {one_line(error)}") from error
        _CURRENT[self._name] = self
        self.running = [RaySlot(self) for _ in range(self._settings.count)]
        self._looker = asyncio.create_task(self._look(), name=f"look {self._source.name}")
        return description

    def _arguments(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return where a replica finds the zoo, and what it opens."""
        limits = self._settings.limits
        folders = [os.path.abspath(path or ".") for path in sys.path]
        model = (self._source.to_json(), limits.pixels, limits.samples, self._settings.call_seconds)
        return (str(Path.cwd()), folders, worker_settings()), model

    def _bound(self, place: tuple[Any, ...], model: tuple[Any, ...]) -> Any:
        """Return the application; a new argument makes it a new version, whose replicas replace those of the last."""
        from ray import serve

        given = self._settings
        scaling = {"min_replicas": given.count, "max_replicas": given.most, "target_ongoing_requests": LOAD, **_DELAYS}
        count = {"num_replicas": given.count} if given.most == given.count else {"autoscaling_config": scaling}
        deployment = serve.deployment(
            _replica_class(),
            name=_NAME,
            max_ongoing_requests=DEPTH,
            max_constructor_retry_count=_TRIES,
            health_check_period_s=_CHECK,
            graceful_shutdown_timeout_s=given.call_seconds,
            ray_actor_options={"num_cpus": 1},
            **count,
        )
        return deployment.bind(uuid.uuid4().hex, place, model)

    def free(self, depth: int) -> RaySlot | None:
        """Return a slot that holds the fewest batches, if these are fewer than ``depth``."""
        found = min(self.running, key=lambda one: one.held, default=None)
        return found if found is not None and found.held < depth else None

    def note_lost(self, error: Exception) -> None:
        """Note that a replica was lost during a call."""
        self.replaced += 1
        _log.warning("model %s: a replica was lost: %s", self._source.name, one_line(error)[:200])

    async def finished(self) -> None:
        """Wait until no replica holds a batch; the caller gives them no more calls."""
        while any(one.held for one in self.running):
            await asyncio.sleep(0.02)

    async def end(self) -> None:
        """Delete the deployment, unless a newer version has replaced it."""
        if self._looker is not None:
            self._looker.cancel()
            await asyncio.gather(self._looker, return_exceptions=True)
        self.running.clear()
        if _CURRENT.get(self._name) is self:
            del _CURRENT[self._name]
            await asyncio.to_thread(_delete, self._name)

    async def _look(self) -> None:
        """Follow the number of replicas, which Ray Serve changes."""
        while True:
            await asyncio.sleep(_LOOK)
            count = max(1, await asyncio.to_thread(_replicas, self._name))
            if count < len(self.running):
                idle = [one for one in self.running if not one.held][: len(self.running) - count]
                self.running = [one for one in self.running if one not in idle]
            elif count > len(self.running):
                self.running += [RaySlot(self) for _ in range(count - len(self.running))]
                self.changed()


def _deploy(app: Any, name: str) -> Any:
    from ray import serve

    return serve.run(app, name=name, route_prefix=None)


def _delete(name: str) -> None:
    from ray import serve

    serve.delete(name)


def _replicas(name: str) -> int:
    """Return how many replicas of an application run."""
    from ray import serve

    found = serve.status().applications.get(name)
    deployment = None if found is None else found.deployments.get(_NAME)
    return 0 if deployment is None else deployment.replica_states.get("RUNNING", 0)


def _tried(place: tuple[Any, ...], model: tuple[Any, ...]) -> dict[str, Any] | str:
    """Open a model once on the cluster; return its description, or why that is not possible."""
    import ray

    task = ray.remote(num_cpus=0, max_retries=0, max_calls=1)(_opener())  # in a process that ends with it
    try:
        found: dict[str, Any] | str = ray.get(task.remote(place, model))
    except ray.exceptions.RayError as error:
        return f"its process ended while it opened the model ({one_line(error)})"
    return found


def _opener() -> Callable[..., Any]:
    """Return a function that opens a model; as a local one it is pickled by value, for workers that cannot import the
    zoo yet."""

    def opener(place: tuple[Any, ...], model: tuple[Any, ...]) -> Any:
        import os
        import sys

        folder, paths, settings = place
        os.chdir(folder)
        os.environ.update(settings)
        sys.path[:] = [*paths, *(path for path in sys.path if path not in paths)]
        from serve.engines.replica import tried

        return tried(*model)

    return opener


def _replica_class() -> type:
    """Return the class of replicas; as a local class it is pickled by value, as the function above."""

    class Model:
        def __init__(self, version: str, place: tuple[Any, ...], model: tuple[Any, ...]) -> None:
            import os
            import sys

            folder, paths, settings = place
            os.chdir(folder)
            os.environ.update(settings)
            sys.path[:] = [*paths, *(path for path in sys.path if path not in paths)]
            from serve.engines.replica import Replica

            self._replica = Replica(*model)

        def call(self, header: Any, arrays: Any) -> Any:
            return self._replica.call(header, arrays)

        def stream(self, header: Any) -> Any:
            yield from self._replica.stream(header)

        def check_health(self) -> None:
            self._replica.check_health()

    return Model
