"""Streams and events; their times are simulated."""

from __future__ import annotations

import torch

from tests.torch_sdaa.hard.check import check, same


@check
def events_on_torchs_own_classes() -> None:
    stream = torch.Stream("sdaa:1")
    event = torch.Event("sdaa:1", enable_timing=True)
    stream.record_event(event)
    event.synchronize()
    stream.synchronize()
    assert event.query()
    assert stream.query()


@check
def times_between_events() -> None:
    start, end = (torch.sdaa.Event(enable_timing=True) for _ in range(2))
    x = torch.ones(256, 256, device="sdaa")
    start.record()
    for _ in range(10):
        x = x @ x
    end.record()
    torch.sdaa.synchronize()
    took = start.elapsed_time(end)
    assert 0 < took < 1000, took
    later = torch.sdaa.Event(enable_timing=True)
    later.record()
    assert start.elapsed_time(later) >= took


@check
def torchs_events_are_the_devices() -> None:
    first, second = torch.Event("sdaa", enable_timing=True), torch.Event("sdaa", enable_timing=True)
    first.record(torch.accelerator.current_stream())
    torch.ones(1000, device="sdaa").exp()
    second.record(torch.accelerator.current_stream())
    torch.accelerator.synchronize()
    assert first.elapsed_time(second) > 0


@check
def a_streams_context() -> None:
    before = torch.sdaa.current_stream()
    stream = torch.sdaa.Stream()
    with torch.sdaa.stream(stream):
        assert torch.sdaa.current_stream() == stream
        x = torch.ones(4, device="sdaa") * 2
    assert torch.sdaa.current_stream() == before
    torch.sdaa.current_stream().wait_stream(stream)
    same(x + 1, torch.full((4,), 3.0))


@check
def streams_of_another_device() -> None:
    stream = torch.sdaa.Stream(device="sdaa:2")
    with torch.sdaa.stream(stream):
        assert torch.sdaa.current_stream(2) == stream
    assert torch.sdaa.current_stream(2) == torch.sdaa.default_stream(2)


@check
def one_stream_waits_for_another() -> None:
    main, side = torch.sdaa.current_stream(), torch.sdaa.Stream()
    ready, done = torch.sdaa.Event(enable_timing=True), torch.sdaa.Event(enable_timing=True)
    x = torch.ones(512, 512, device="sdaa")
    for _ in range(5):
        x = x @ x / 512
    ready.record(main)
    side.wait_event(ready)
    with torch.sdaa.stream(side):
        y = x + 1
        y.record_stream(side)
        done.record()
    main.wait_stream(side)
    torch.sdaa.synchronize()
    assert ready.elapsed_time(done) >= 0
    same(y, x.cpu() + 1)


@check
def an_event_knows_its_stream_is_done() -> None:
    event = torch.sdaa.Event()
    assert event.query()
    event.record()
    event.synchronize()
    event.wait()
    assert event.query()


@check
def the_accelerators_face() -> None:
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("sdaa")
    assert torch.accelerator.device_count() == torch.sdaa.device_count()
    before = torch.accelerator.current_device_index()
    torch.accelerator.set_device_index(1)
    assert torch.sdaa.current_device() == torch.accelerator.current_device_index() == 1
    torch.accelerator.synchronize()
    assert torch.accelerator.current_stream().device.index == 1
    torch.accelerator.set_device_index(before)
    with torch.accelerator.device_index(3):
        assert torch.empty(1, device="sdaa").device.index == 3


@check
def forgotten_events_are_forgotten() -> None:
    for _ in range(200):
        torch.sdaa.Event(enable_timing=True).record()
    torch.sdaa.synchronize()
