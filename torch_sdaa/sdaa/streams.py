"""Streams and events with simulated times."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch

from torch_sdaa.sdaa.devices import Device, index_of


class _Made(type):
    """Metaclass for classes that stand for torch's objects on this device, because torch refuses subclasses of them."""

    def __instancecheck__(cls, instance: Any) -> bool:
        kind: Any = cls.__base__
        return isinstance(instance, kind) and getattr(instance.device, "type", None) == "sdaa"


class Stream(torch.Stream, metaclass=_Made):
    """Queue of a device; ``Stream(device=None, priority=0)`` returns a :class:`torch.Stream`."""

    def __new__(cls, device: Device = None, priority: int = 0, **ids: Any) -> torch.Stream:
        """Return a new stream of a device."""
        if ids:  # called by torch with a stream's ids
            return torch.Stream(priority=priority, **ids)
        return torch.Stream(torch.device("sdaa", index_of(device)), priority=priority)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the lowest and the highest priority: the card has only one."""
        return 0, 0


class Event(torch.Event, metaclass=_Made):
    """A point in a stream; with ``enable_timing``, ``elapsed_time`` returns simulated milliseconds.

    ``Event(enable_timing=False, blocking=False)`` returns a :class:`torch.Event`.

    Raises:
        NotImplementedError: ``interprocess`` is set.
    """

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> torch.Event:
        """Return a new event."""
        if interprocess:
            raise NotImplementedError(
                "events of sdaa belong to one process: record another one there (interprocess=False)"
            )
        return torch.Event("sdaa", enable_timing=enable_timing, blocking=blocking)


def current_stream(device: Device = None) -> torch.Stream:
    """Return the thread's current stream on a device."""
    return torch.accelerator.current_stream(torch.device("sdaa", index_of(device)))


def default_stream(device: Device = None) -> torch.Stream:
    """Return a device's default stream."""
    index = index_of(device)
    return torch.Stream(stream_id=0, device_index=index, device_type=torch._C._autograd.DeviceType.PrivateUse1.value)


def set_stream(stream: torch.Stream | None) -> None:
    """Set the thread's current stream on its device, and its current device; ``None`` changes nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


def is_current_stream_capturing() -> bool:
    """Return ``False``: the card does not capture graphs."""
    return False


class StreamContext:
    """Context with a current stream; ``None`` changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> torch.Stream | None:
        if self.stream is not None:
            self.stream.__enter__()
        return self.stream

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.stream is not None:
            self.stream.__exit__(kind, error, trace)


def stream(stream: torch.Stream | None) -> Any:
    """Return a context with a current stream; ``None`` changes nothing."""
    if stream is not None and torch.compiler.is_compiling():
        return stream  # dynamo supports a stream as the context, but not StreamContext
    return StreamContext(stream)
