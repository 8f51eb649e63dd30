"""The simulated clock: real operators, streams and events against a model in Python; threads, length of the log."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from clock_model import ClockModel, Device
from hypothesis import given, settings, strategies as st

import torch_sdaa  # noqa: F401 -- makes the device
from torch_sdaa.loading.core import C

DEVICES = 2
SIDE = 52
"""Shape of the operands, unique in this file, so that it identifies a launch."""
OPERANDS = [[("Float", 4, sizes)] * count for count in (1, 2, 3) for sizes in ((), (SIDE, SIDE))]
"""Launches of that shape, without those of other tests and dropped ones."""

_ops = st.one_of(
    st.tuples(
        st.sampled_from(["add", "mm", "item", "in", "in_pinned", "out", "view"]), st.integers(0, 1), st.integers(0, 2)
    ),
    st.tuples(st.just("between"), st.integers(0, 1), st.integers(0, 2)),
    st.tuples(st.sampled_from(["record", "wait"]), st.integers(0, 1), st.integers(0, 2), st.integers(0, 2)),
    st.tuples(st.sampled_from(["sync_event", "query"]), st.integers(0, 2)),
    st.tuples(st.just("sync_stream"), st.integers(0, 1), st.integers(0, 2)),
    st.tuples(st.just("sync_device"), st.integers(0, 1)),
    st.tuples(st.just("slow"), st.integers(0, 1), st.sampled_from([1.0, 3.0])),
)


class Real:
    """Operands on both devices, a few streams of each, three events."""

    def __init__(self) -> None:
        self.tensors = [torch.ones(SIDE, SIDE, device=f"sdaa:{d}") for d in range(DEVICES)]
        self.out = [torch.ones(SIDE, SIDE, device=f"sdaa:{d}") for d in range(DEVICES)]
        self.host, self.pinned = torch.ones(SIDE, SIDE), torch.ones(SIDE, SIDE).pin_memory()
        self.streams = [
            [torch.sdaa.default_stream(d), torch.sdaa.Stream(d), torch.sdaa.Stream(d)]  # type: ignore[attr-defined]
            for d in range(DEVICES)
        ]
        self.events = [[torch.Event("sdaa", enable_timing=True) for _ in range(3)] for _ in range(DEVICES)]  # type: ignore[attr-defined]


def _seconds() -> dict[str, float]:
    """Return the cost of each launch of the programs below, by operator."""
    return {op: seconds for (op, inputs, *_), _, seconds, _ in C.signatures() if inputs in OPERANDS}


def _run(real: Real, model: ClockModel, op: tuple[Any, ...], cost: dict[str, float]) -> None:
    kind = op[0]
    if kind in ("sync_event", "query"):
        event = real.events[0][op[1]]
        event.synchronize() if kind == "sync_event" else event.query()
        model.sync_event(op[1])
    elif kind == "slow":
        C.set_slow(op[1], op[2])
        model.devices[op[1]].slow = op[2]
    elif kind == "sync_device":
        torch.sdaa.synchronize(op[1])  # type: ignore[attr-defined]
        model.sync_device(op[1])
    elif kind in ("record", "wait", "sync_stream"):
        _on_stream(real, model, op)
    else:
        with real.streams[op[1]][op[2]]:
            _launch(real, model, op, cost)


def _on_stream(real: Real, model: ClockModel, op: tuple[Any, ...]) -> None:
    kind, device, s = op[:3]
    stream = real.streams[device][s]
    if kind == "sync_stream":
        stream.synchronize()
        model.sync_stream(device, s)
    elif kind == "record":
        if device == 0:  # an event belongs to one device
            real.events[0][op[3]].record(stream)
            model.record(op[3], device, s)
    else:
        real.events[0][op[3]].wait(stream)
        model.wait(op[3], device, s)


def _launch(real: Real, model: ClockModel, op: tuple[Any, ...], cost: dict[str, float]) -> None:
    kind, device, s = op
    x, y = real.tensors[device], real.out[device]
    if kind == "add":
        torch.add(x, x, out=y)
        model.launch(device, s, "compute", cost["aten::add"])
    elif kind == "mm":
        torch.mm(x, x, out=y)
        model.launch(device, s, "compute", cost["aten::mm"])
    elif kind == "item":
        x[0, 0].item()
        model.launch(device, s, "out", cost["aten::_local_scalar_dense"], waits=True)
    elif kind == "in":
        y.copy_(real.host, non_blocking=True)  # from pageable memory: the host waits all the same
        model.launch(device, s, "in", cost["copy_in"], waits=True)
    elif kind == "in_pinned":
        y.copy_(real.pinned, non_blocking=True)
        model.launch(device, s, "in", cost["copy_in"])
    elif kind == "out":
        real.host.copy_(x)
        model.launch(device, s, "out", cost["copy_out"], waits=True)
    elif kind == "between":
        real.out[device].copy_(real.tensors[1 - device])
        model.between((1 - device, 0), (device, s), cost["copy_between"])
    else:
        x.t().t().view(SIDE, SIDE).unsqueeze(0)  # launches nothing


@pytest.fixture(scope="module")
def costs() -> dict[str, float]:
    real = Real()
    for kind in ("add", "mm", "item", "in", "out", "between"):
        _launch(real, ClockModel(2, 0, [Device(), Device()]), (kind, 0, 0), _Any())
    return _seconds()


class _Any(dict):  # type: ignore[type-arg]
    def __missing__(self, key: str) -> float:
        return 0.0


@settings(max_examples=60, deadline=None)
@given(program=st.lists(_ops, min_size=1, max_size=25))
def test_the_clock_agrees_with_the_model(program: list[tuple[Any, ...]], costs: dict[str, float]) -> None:
    real = Real()
    for device in range(DEVICES):
        torch.sdaa.synchronize(device)  # type: ignore[attr-defined]
    C.trace(True)
    torch.add(real.out[0], 1)
    torch.sdaa.synchronize(0)  # type: ignore[attr-defined]
    ((*_, base),), _ = C.trace(True)
    # All that came before is over, and the host is as late as every engine.
    model = ClockModel(DEVICES, base, [Device(), Device()])
    try:
        for op in program:
            _run(real, model, op, costs)
    finally:
        for device in range(DEVICES):
            C.set_slow(device, 1.0)
        spans, dropped = C.trace(False)
    assert dropped == 0
    found = [(device, start, end) for _, _, device, _, _, start, end in spans]
    assert [d for d, *_ in found] == [d for d, *_ in model.spans]
    assert found == [pytest.approx(span, abs=1e-12) for span in model.spans]


def test_events_of_two_devices_have_no_time_between_them() -> None:
    first, second = (torch.Event("sdaa", enable_timing=True) for _ in range(2))  # type: ignore[attr-defined]
    first.record(torch.sdaa.default_stream(0))  # type: ignore[attr-defined]
    second.record(torch.sdaa.default_stream(1))  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"sdaa:0 and sdaa:1"):
        first.elapsed_time(second)


def test_elapsed_time_is_that_of_the_kernels_between() -> None:
    x, square = torch.ones(256, 256, device="sdaa"), [("Float", 4, (256, 256))]
    torch.mm(x, x)
    (seconds,) = [s for (op, inputs, *_), _, s, _ in C.signatures() if op == "aten::mm" and inputs == square]
    first, second = (torch.Event("sdaa", enable_timing=True) for _ in range(2))  # type: ignore[attr-defined]
    first.record()
    for _ in range(5):
        torch.mm(x, x)
    second.record()
    assert second.query()  # never a reason to ask again
    assert first.elapsed_time(second) == pytest.approx(5e3 * seconds)


def test_concurrent_launches_are_all_logged_in_a_bounded_log() -> None:
    x = [torch.ones(4, device=f"sdaa:{d}") for d in range(DEVICES)]
    torch.sdaa.synchronize()  # type: ignore[attr-defined]
    before = C.launches(), [C.times(d)["launches"] for d in range(DEVICES)]

    def work(device: int) -> None:
        for _ in range(2000):
            x[device].add_(1)

    threads = [threading.Thread(target=work, args=(n % DEVICES,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    C.settle()
    assert C.launches() - before[0] == 8000
    assert [C.times(d)["launches"] - n for d, n in enumerate(before[1])] == [4000, 4000]
    assert C.log_length() == 0


def test_a_worker_of_autograd_waits_for_the_thread_that_called_it() -> None:
    x = torch.ones(64, 64, device="sdaa", requires_grad=True)
    waited = []
    x.register_hook(lambda grad: waited.append(grad.sum().item()))
    (x @ x).sum().backward()
    end = C.times(0)["host"]
    C.trace(True)
    with torch.sdaa.stream(torch.sdaa.Stream()):  # type: ignore[attr-defined]
        torch.add(x.detach(), 1)
    ((*_, start, _),), _ = C.trace(False)
    assert waited
    assert start >= C.times(0)["host"] >= end > 0


def test_a_stream_pool_is_round_robin() -> None:
    numbers = {torch.sdaa.Stream(1).stream_id for _ in range(100)}  # type: ignore[attr-defined]
    assert numbers == set(range(1, 33))
