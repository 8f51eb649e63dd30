"""Streams and events of torch on this device; their times are simulated."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _unchanged() -> Iterator[None]:
    yield
    for device in reversed(range(4)):
        torch.sdaa.set_stream(torch.sdaa.default_stream(device))
    assert torch.sdaa.current_device() == 0


def test_events_are_torch_events() -> None:
    start, end = torch.sdaa.Event(enable_timing=True), torch.Event("sdaa", enable_timing=True)
    x = torch.ones(300, 300, device="sdaa")
    start.record()
    x @ x
    end.record()
    torch.sdaa.synchronize()

    assert type(start) is torch.Event
    assert isinstance(start, torch.sdaa.Event)
    assert isinstance(end, torch.sdaa.Event)
    assert not isinstance(torch.Event("cpu"), torch.sdaa.Event)
    assert start.query()
    assert start.elapsed_time(end) > 0
    assert end.elapsed_time(start) == -start.elapsed_time(end)


def test_simulated_time_grows_with_the_work() -> None:
    x = torch.ones(400, 400, device="sdaa")
    events = [torch.sdaa.Event(enable_timing=True) for _ in range(3)]
    events[0].record()
    x @ x
    events[1].record()
    for _ in range(10):
        x @ x
    events[2].record()
    torch.sdaa.synchronize()
    once, ten = events[0].elapsed_time(events[1]), events[1].elapsed_time(events[2])

    assert ten == pytest.approx(10 * once)


def test_an_event_without_timing_is_an_error() -> None:
    timed = torch.sdaa.Event(enable_timing=True)
    untimed = torch.sdaa.Event()
    untimed.record()
    with pytest.raises(ValueError, match="enable_timing=True"):
        untimed.elapsed_time(untimed)
    with pytest.raises(ValueError, match="must be recorded"):
        timed.elapsed_time(timed)
    with pytest.raises(NotImplementedError, match="interprocess=False"):
        torch.sdaa.Event(interprocess=True)


def test_streams_are_torch_streams() -> None:
    mine, other = torch.sdaa.Stream(), torch.sdaa.Stream("sdaa:2", priority=-1)

    assert type(mine) is torch.Stream
    assert isinstance(mine, torch.sdaa.Stream)
    assert isinstance(torch.sdaa.current_stream(), torch.sdaa.Stream)
    assert not isinstance(torch.Stream("cpu"), torch.sdaa.Stream)
    assert other.device == torch.device("sdaa:2")
    assert mine != other
    assert torch.sdaa.current_stream() == torch.sdaa.default_stream()
    assert not torch.sdaa.is_current_stream_capturing()


def test_a_stream_is_the_threads_in_its_context() -> None:
    stream = torch.sdaa.Stream(1)
    with torch.sdaa.stream(stream):
        assert torch.sdaa.current_stream() == stream
        assert torch.sdaa.current_device() == 1
        with torch.sdaa.StreamContext(None):
            assert torch.sdaa.current_stream() == stream
    assert torch.sdaa.current_stream(1) == torch.sdaa.default_stream(1)
    with stream:
        assert torch.sdaa.current_stream() == stream
    with torch.sdaa.device(1):
        torch.sdaa.set_stream(stream)
        torch.sdaa.set_stream(None)
        assert torch.accelerator.current_stream() == stream


def test_one_stream_waits_for_another() -> None:
    x = torch.ones(500, 500, device="sdaa")
    torch.sdaa.synchronize()
    begin, first, second = (torch.sdaa.Event(enable_timing=True) for _ in range(3))
    one, two = torch.sdaa.Stream(), torch.sdaa.Stream()
    begin.record()
    with torch.sdaa.stream(one):
        x @ x
        first.record()
    two.wait_event(first)
    two.wait_stream(one)
    second = two.record_event(second)
    two.synchronize()
    torch.sdaa.current_stream().synchronize()
    x.record_stream(two)

    assert two.query()
    assert begin.elapsed_time(second) >= begin.elapsed_time(first) > 0
