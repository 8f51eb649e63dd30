"""Protobuf messages of the protocol, from the compiled ``open_inference.proto``.

They are in a pool of their own: a client library that brings its own copies of the same messages can be imported in the
same process.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

COMPILED = Path(__file__).with_name("open_inference.binpb")
"""A ``FileDescriptorSet``, written by ``python -m serve.protocol.compile``."""

SERVICE = "inference.GRPCInferenceService"


class Messages:
    """Classes of the messages by name, and the calls of the service."""

    def __init__(self, compiled: bytes) -> None:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        self._pool: Any = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(compiled).file:
            self._pool.Add(file)
        self._class_of: Any = message_factory.GetMessageClass
        self.calls: dict[str, Any] = dict(self._pool.FindServiceByName(SERVICE).methods_by_name)

    def __getattr__(self, name: str) -> Any:
        """Return the class of a message, such as ``ModelInferRequest``."""
        try:
            found = self._class_of(self._pool.FindMessageTypeByName(f"inference.{name}"))
        except KeyError as error:
            raise AttributeError(name) from error
        setattr(self, name, found)
        return found


@cache
def messages() -> Messages:
    """Return the messages of the protocol."""
    return Messages(COMPILED.read_bytes())
