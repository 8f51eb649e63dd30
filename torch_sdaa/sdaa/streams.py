"""Streams and events; their times are simulated."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch

from torch_sdaa.sdaa.devices import Device, index_of


class Stream(torch.Stream):
    """A queue of a device's work; ``Stream(device=None, priority=0)``."""

    def __new__(cls, device: Device = None, priority: int = 0, **ids: Any) -> Stream:  # noqa: PYI034
        if ids:  # torch makes one of a stream's numbers
            return super().__new__(cls, priority=priority, **ids)
        return super().__new__(cls, torch.device("sdaa", index_of(device)), priority=priority)


class Event(torch.Event):
    """A point in a stream's work; with ``enable_timing`` :meth:`elapsed_time` gives simulated milliseconds."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Event:  # noqa: PYI034
        return super().__new__(cls, "sdaa", enable_timing=enable_timing, blocking=blocking)


def current_stream(device: Device = None) -> torch.Stream:
    """Return the thread's stream on a device."""
    return torch.accelerator.current_stream(torch.device("sdaa", index_of(device)))


def default_stream(device: Device = None) -> torch.Stream:
    """Return a device's first stream."""
    index = index_of(device)
    return torch.Stream(stream_id=0, device_index=index, device_type=torch._C._autograd.DeviceType.PrivateUse1.value)


def set_stream(stream: torch.Stream | None) -> None:
    """Make a stream the thread's on its device; ``None`` changes nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


class stream:  # noqa: N801 -- as torch.cuda.stream
    """A context in which a stream is the thread's; ``None`` changes nothing."""

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
