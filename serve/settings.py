"""Settings of a server: addresses, batching, limits, security."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from engine import ConfigError

MEBI = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a request may use.

    Attributes:
        body: bytes of a request's body, also after decompression.
        tensor: bytes of one tensor of a request.
        pixels: pixels of a decoded image.
        samples: samples of a body for ``answer``.
        sequences: open sequences of a model.
        sequence_seconds: seconds without a request after which a sequence is closed.
        header: bytes of the headers of an HTTP request.
        body_seconds: seconds in which a body must arrive.
        idle_seconds: seconds after which an idle connection is closed.
    """

    body: int = 64 * MEBI
    tensor: int = 64 * MEBI
    pixels: int = 50_000_000
    samples: int = 64
    sequences: int = 1000
    sequence_seconds: float = 60.0
    header: int = 64 << 10
    body_seconds: float = 30.0
    idle_seconds: float = 75.0

    def __post_init__(self) -> None:
        flags = {"body_seconds": "--body_timeout", "sequence_seconds": "--sequence_timeout"}
        for name, value in vars(self).items():
            if not 0 < value < 1 << 40:  # NaN too
                raise ConfigError(f"{flags.get(name, f'--max_{name}')} {value} must be above 0")


@dataclass(frozen=True, kw_only=True)
class BatchSettings:
    """How requests of one model are joined.

    Attributes:
        rows: most rows of a call of the engine; 1: requests are not joined.
        delay: seconds that the oldest request waits for others while a batch is not full.
        queue: most requests that wait; further ones are refused.
        timeout: seconds from arrival to answer, unless a request asks for less.
        workers: engine processes of a model, or the fewest replicas on a Ray cluster.
        most_workers: the most replicas on a Ray cluster; 0: as many as ``workers``.
        call_seconds: seconds after which a call that has not returned is ended, with its process.
    """

    rows: int = 32
    delay: float = 0.0
    queue: int = 256
    timeout: float = 30.0
    workers: int = 1
    most_workers: int = 0
    call_seconds: float = 300.0

    def __post_init__(self) -> None:
        for flag, value in (("max_batch", self.rows), ("max_queue", self.queue), ("workers", self.workers)):
            if value < 1:
                raise ConfigError(f"--{flag} {value} must be at least 1")
        if self.most_workers and self.most_workers < self.workers:
            raise ConfigError(f"--max_workers {self.most_workers} must be at least --workers {self.workers}")
        for flag, seconds in (("timeout", self.timeout), ("call_timeout", self.call_seconds)):
            if not 0 < seconds < 1e9:
                raise ConfigError(f"--{flag} {seconds:g} must be a number of seconds above 0")
        if not 0 <= self.delay < 3600:
            raise ConfigError(f"--queue_delay {self.delay * 1e3:g} must be milliseconds of at least 0")


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Settings of a server.

    Attributes:
        host: address to listen at. http_port, grpc_port: 0: a free port; ``None`` of ``grpc_port``: without gRPC.
        token: clients must send it as ``Authorization: Bearer TOKEN``; empty: none is asked for.
        certificate, key: PEM files of TLS; both or none.
        access_log: file of a JSON line for each request; ``-``: standard output; ``None``: none.
        launcher: ``process``: engine processes of this machine; ``ray``: replicas on a Ray cluster.
        grace: seconds that accepted requests have to finish after SIGTERM.
    """

    host: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int | None = None
    token: str = ""
    certificate: Path | None = None
    key: Path | None = None
    access_log: Path | None = None
    launcher: str = "process"
    grace: float = 30.0
    batching: BatchSettings = field(default_factory=BatchSettings)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for flag, port in (("http_port", self.http_port), ("grpc_port", self.grpc_port)):
            if port is not None and not 0 <= port < 1 << 16:
                raise ConfigError(f"--{flag} {port} must be from 0, which takes a free port, to 65535")
        if (self.certificate is None) != (self.key is None):
            given, missing = ("tls_cert", "tls_key") if self.key is None else ("tls_key", "tls_cert")
            raise ConfigError(f"--{given} needs --{missing} too; give both files of the certificate, in PEM form")
        if self.batching.most_workers and self.launcher != "ray":
            raise ConfigError("--max_workers needs --launcher ray; the number of engine processes does not change")
        if not 0 <= self.grace < 1e6:
            raise ConfigError(f"--grace {self.grace:g} must be a number of seconds of at least 0")

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")
