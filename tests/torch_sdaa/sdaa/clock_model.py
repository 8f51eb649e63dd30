"""The model of csrc/clock.h in Python: the reference of the property test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Device:
    """Times at which a device's engines and streams are free, in simulated seconds."""

    engines: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("compute", "in", "out"), 0.0))
    streams: dict[int, float] = field(default_factory=dict)
    slow: float = 1.0


class ClockModel:
    """One host thread and several devices."""

    def __init__(self, devices: int, host: float, starts: list[Device]) -> None:
        self.host, self.devices = host, starts
        self.events: dict[Any, float] = {}
        self.spans: list[tuple[int, float, float]] = []

    def launch(self, device: int, stream: int, engine: str, seconds: float, waits: bool = False) -> None:
        """Schedule a launch after its stream and its engine."""
        d = self.devices[device]
        start = max(self.host, d.streams.get(stream, 0.0), d.engines[engine])
        end = start + seconds * d.slow
        d.streams[stream] = d.engines[engine] = end
        self.spans.append((device, start, end))
        if waits:
            self.host = max(self.host, end)

    def between(self, source: tuple[int, int], to: tuple[int, int], seconds: float) -> None:
        """Copy from a device's stream to another's: both are busy."""
        s, d = self.devices[source[0]], self.devices[to[0]]
        ends = (s.streams.get(source[1], 0.0), d.streams.get(to[1], 0.0), s.engines["out"], d.engines["in"])
        start = max(self.host, *ends)
        end = start + seconds * max(s.slow, d.slow)
        s.streams[source[1]] = d.streams[to[1]] = s.engines["out"] = d.engines["in"] = end
        self.spans += [(source[0], start, end), (to[0], start, end)]

    def record(self, event: Any, device: int, stream: int) -> None:
        """Record the current end of a stream."""
        self.events[event] = max(self.host, self.devices[device].streams.get(stream, 0.0))

    def wait(self, event: Any, device: int, stream: int) -> None:
        """Make a stream wait for an event; one that was never recorded is complete."""
        d = self.devices[device]
        d.streams[stream] = max(d.streams.get(stream, 0.0), self.events.get(event, 0.0))

    def sync_event(self, event: Any) -> None:
        """Let the host wait for an event."""
        self.host = max(self.host, self.events.get(event, 0.0))

    def sync_stream(self, device: int, stream: int) -> None:
        """Let the host wait for a stream."""
        self.host = max(self.host, self.devices[device].streams.get(stream, 0.0))

    def sync_device(self, device: int) -> None:
        """Let the host wait for all streams of a device."""
        self.host = max([self.host, *self.devices[device].streams.values()])
