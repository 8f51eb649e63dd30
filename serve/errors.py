"""Errors that a request is answered with, with their HTTP status and gRPC code."""

from __future__ import annotations

from typing import NamedTuple

from tecoinfer_modelzoo.errors import TecoInferError


class Kind(NamedTuple):
    """How a kind of error is answered: HTTP status, and name of the gRPC status code."""

    status: int
    code: str


KINDS = {
    "invalid": Kind(400, "INVALID_ARGUMENT"),
    "unauthenticated": Kind(401, "UNAUTHENTICATED"),
    "forbidden": Kind(403, "PERMISSION_DENIED"),
    "unknown": Kind(404, "NOT_FOUND"),
    "slow": Kind(408, "DEADLINE_EXCEEDED"),
    "large": Kind(413, "RESOURCE_EXHAUSTED"),
    "media": Kind(415, "INVALID_ARGUMENT"),
    "full": Kind(429, "RESOURCE_EXHAUSTED"),
    "failed": Kind(500, "INTERNAL"),
    "unsupported": Kind(400, "UNIMPLEMENTED"),
    "unavailable": Kind(503, "UNAVAILABLE"),
    "late": Kind(504, "DEADLINE_EXCEEDED"),
    "memory": Kind(507, "RESOURCE_EXHAUSTED"),
}
"""Kinds of errors by name; ``slow``: the client did not send its body in time, ``late``: no answer in time."""


class ServeError(TecoInferError):
    """A request that is answered with an error; ``kind``: a key of :data:`KINDS`, the text is one line."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind

    @property
    def status(self) -> int:
        """HTTP status."""
        return KINDS[self.kind].status

    @property
    def code(self) -> str:
        """Name of the gRPC status code."""
        return KINDS[self.kind].code


def invalid(text: str) -> ServeError:
    """Return the error of a request that cannot be understood, or does not fit the model."""
    return ServeError("invalid", text)
