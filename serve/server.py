"""A running server: both protocols on one event loop, and the way it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import uvicorn

from engine import ConfigError
from serve.access_log import AccessLog
from serve.batching.workers import StartWorkers, Workers
from serve.grpc_server import GrpcServer
from serve.http.app import application
from serve.metrics import Metrics
from serve.repository import Repository
from serve.settings import ServeSettings
from serve.source import ModelSource

_log = logging.getLogger("serve")

_BACKLOG = 2048  # connections that the system holds until they are accepted
_LAST = 5.0  # seconds for answers to be written after the engines are done


class _Uvicorn(uvicorn.Server):
    """uvicorn without signal handlers of its own: this module decides when it ends."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        """Leave the signals alone."""
        yield


@dataclass
class Running:
    """A server that answers; ``http_port`` and ``grpc_port`` (``None``: without gRPC) are those it listens at."""

    repository: Repository
    http_port: int
    grpc_port: int | None


@asynccontextmanager
async def running(sources: Sequence[ModelSource], settings: ServeSettings) -> AsyncIterator[Running]:
    """Serve models until the end of the block; then accepted requests are answered, and all processes ended.

    Raises ConfigError if an address or a file of the settings cannot be used, TecoInferError if a model cannot be
    opened.
    """
    with AccessLog(settings.access_log) as log, _workers(settings) as workers:
        repository = Repository.of(sources, settings, Metrics(), log, workers)
        sock = _listening(settings)
        grpc = GrpcServer(repository) if settings.grpc_port is not None else None
        http = _Uvicorn(_config(repository, settings))
        serving = asyncio.create_task(http.serve([sock]), name="http")
        try:
            if grpc is not None:
                await grpc.start()
            while not http.started and not serving.done():
                await asyncio.sleep(0.01)
            if serving.done():
                await _ended(serving)
            await repository.load()  # until then the server is live and not ready
            yield Running(repository, sock.getsockname()[1], None if grpc is None else grpc.port)
        finally:
            repository.closing = True
            http.should_exit = True
            stops = [_ended(serving)] if grpc is None else [_ended(serving), grpc.stop(settings.grace)]
            await asyncio.gather(*stops)
            if not await repository.drain(_LAST):
                _log.warning("requests that took longer than --grace %g s were not answered", settings.grace)
            await repository.end()


@contextlib.contextmanager
def _workers(settings: ServeSettings) -> Iterator[StartWorkers]:
    """Yield what starts the workers of a model."""
    if settings.launcher != "ray":
        yield Workers
        return
    from serve.batching.ray_workers import RayWorkers, ray_serve

    with ray_serve():
        yield RayWorkers


async def _ended(serving: asyncio.Task[None]) -> None:
    try:
        await serving
    except SystemExit as error:  # of uvicorn, for settings that it refuses
        raise ConfigError("the HTTP server could not start; see its message above") from error


def _config(repository: Repository, settings: ServeSettings) -> uvicorn.Config:
    return uvicorn.Config(
        application(repository),
        http="h11",  # which limits the size of headers
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # of wrong requests, the access log has a line
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=int(settings.limits.idle_seconds),
        timeout_graceful_shutdown=max(1, round(settings.grace)),
        h11_max_incomplete_event_size=settings.limits.header,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
    )


def _listening(settings: ServeSettings) -> socket.socket:
    """Return a socket that listens at the address. Raises ConfigError if it cannot."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # With its protocol named: asyncio turns off Nagle's algorithm only then, which delays answers by 40 ms.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((settings.host, settings.http_port))
    except OSError as error:
        sock.close()
        what = f"--host {settings.host} --http_port {settings.http_port}"
        raise ConfigError(f"{what} cannot be used ({error.strerror or error}); choose another address") from error
    return sock


async def serve(sources: Sequence[ModelSource], settings: ServeSettings, started: Callable[[Running], None]) -> None:
    """Serve models until SIGTERM or SIGINT; ``started`` is called when requests are taken."""
    ended, loop, mine = asyncio.Event(), asyncio.get_running_loop(), asyncio.current_task()
    is_running = False

    def end() -> None:
        ended.set()
        if not is_running and mine is not None:  # models are still being opened
            mine.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    try:
        async with running(sources, settings) as server:
            is_running = True
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, end)  # again: joining a Ray cluster may have replaced them
            started(server)
            await ended.wait()
            for number in (signal.SIGTERM, signal.SIGINT):  # a second one ends at once
                loop.remove_signal_handler(number)
    except asyncio.CancelledError:
        if not ended.is_set():
            raise
