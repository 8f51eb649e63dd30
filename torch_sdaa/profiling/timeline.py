"""The collected data as a Chrome trace for Perfetto or chrome://tracing: three host layers, and each device.

Host rows start at 0 and are measured; device rows also start at 0, in simulated time. The axes are independent: events
at the same position did not happen at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch_sdaa.cost.prices import COPIES
from torch_sdaa.cost.rings import PREFIX as COLLECTIVE
from torch_sdaa.profiling.collect import LAUNCH, RUNTIME, Collected
from torch_sdaa.profiling.record import ENGINES, shapes, window_begin

FRAMEWORK_ROW, RUNTIME_ROW, LAUNCH_ROW, DEVICE_ROW = 1, 2, 3, 10
"""Process numbers of the trace; ``sdaa:1`` is ``DEVICE_ROW + 1``."""

_HOST = {FRAMEWORK_ROW: "framework", RUNTIME_ROW: "runtime", LAUNCH_ROW: "launch"}
_COLLECTIVES = len(ENGINES)


def chrome_trace(
    found: Collected, host: bool = True, runtime: bool = True, devices: bool = True, collectives: bool = True
) -> dict[str, Any]:
    """Return a trace (JSON types; times in microseconds).

    Args:
        found: the collected data. host, runtime, devices, collectives: layers to include.
    """
    events: list[dict[str, Any]] = []
    if host:
        events += _host(found, runtime)
    if devices:
        events += _devices(found, collectives)
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _host(found: Collected, runtime: bool) -> Iterator[dict[str, Any]]:
    threads = {found.thread: "main thread"}
    for row, name in _HOST.items():
        if runtime or row == FRAMEWORK_ROW:
            yield from _named(row, f"{name} (host, measured)", row)
    yield _span(FRAMEWORK_ROW, found.thread, "training", 0, found.end - found.begin, {})
    for one in found.host:
        row = {RUNTIME: RUNTIME_ROW, LAUNCH: LAUNCH_ROW}.get(one.doing, FRAMEWORK_ROW)
        if row != FRAMEWORK_ROW and not runtime:
            continue
        threads.setdefault(one.thread, "autograd" if one.worker else f"thread {one.thread}")
        args: dict[str, Any] = {}
        if one.line >= 0:
            file, function, line = found.lines[one.line]
            args = {"source": f"{file}:{line}", "function": function}
        if one.module >= 0:
            args["module"] = found.modules[one.module]
        if one.doing == LAUNCH:
            args["launch"] = one.at
        begin, end = max(one.begin, found.begin), min(one.end, found.end)
        if end >= begin:
            name = found.names[one.name]
            yield _span(row, one.thread, name, begin - found.begin, end - found.begin, args)
    for number, name in threads.items():
        for row in _HOST if runtime else (FRAMEWORK_ROW,):
            yield _label("thread_name", row, number, {"name": name})


def _devices(found: Collected, collectives: bool) -> Iterator[dict[str, Any]]:
    for i in sorted(found.clocks):
        row, began = DEVICE_ROW + i, window_begin(found, i)
        yield from _named(row, f"sdaa:{i} (simulated time)", row)
        for number, engine in enumerate((*ENGINES[:4], "", "collectives")):
            if engine:
                yield _label("thread_name", row, number, {"name": engine})
        for one in found.device:
            signature = found.signatures[one.signature]
            ring = signature.op.startswith(COLLECTIVE)
            if one.device != i or (ring and not collectives):
                continue
            args: dict[str, Any] = {"time": "simulated", "launch": one.at, "stream": one.stream}
            args |= {"inputs": shapes(signature.inputs), "outputs": shapes(signature.outputs)}
            if signature.op not in COPIES:
                args["flops"] = signature.flops if signature.flops >= 0 else None
            thread = _COLLECTIVES if ring else min(one.what, 3)
            start, end = ((time - began) * 1e9 for time in (one.start, one.end))
            yield _span(row, thread, signature.op, round(start), round(end), args)


def _named(row: int, name: str, place: int) -> Iterator[dict[str, Any]]:
    yield _label("process_name", row, 0, {"name": name})
    yield _label("process_sort_index", row, 0, {"sort_index": place})


def _label(what: str, row: int, thread: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": row, "tid": thread, "ts": 0, "args": args}


def _span(row: int, thread: int, name: str, begin: int, end: int, args: dict[str, Any]) -> dict[str, Any]:
    place = {"pid": row, "tid": thread, "ts": begin / 1e3, "dur": (end - begin) / 1e3}
    return {"name": name, "ph": "X", "cat": "simulated" if row >= DEVICE_ROW else "host", **place, "args": args}
