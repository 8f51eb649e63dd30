"""Chrome trace of a profile, with lanes for framework, runtime and device, for Perfetto or chrome://tracing."""

from __future__ import annotations

from typing import Any

from toolkit.profile.record import Launch, Profile

LANES = {"framework": 1, "runtime": 2, "device": 3}  # lane -> number, from the caller down to the device
_THREAD = 1


def chrome_trace(profile: Profile) -> dict[str, Any]:
    """Return one run as a Chrome trace (JSON types; times in microseconds).

    framework: the call, and the source modules of the steps. runtime: copies and launches, on the host whole nodes.
    device: the work of every step. Steps are in graph order; the remaining time of the call is at its end.
    """
    now = profile.copy_in
    works: list[dict[str, Any]] = []
    for step in profile.steps:
        # On the card the work follows its launch; on the host a node is measured as a whole.
        launch = max(step.seconds - step.roof, 0.0) if profile.simulated else 0.0
        shown = launch if profile.simulated else step.seconds
        works.append(_span("runtime", f"launch {step.name}" if launch else step.name, now, now + shown, {}))
        works.append(_span("device", step.name, now + launch, now + step.seconds, _facts(step)))
        now += step.seconds
    end = max(now + profile.copy_out, profile.call)
    if profile.simulated:
        works.insert(0, _span("runtime", "copy in", 0.0, profile.copy_in, {}))
        works.append(_span("runtime", "copy out", now, end, {}))
    call = _span("framework", f"{profile.model}, batch {profile.batch}", 0.0, end, {"kind": profile.kind})
    return {"displayTimeUnit": "ms", "traceEvents": [*_lanes(profile.kind), call, *_modules(profile), *works]}


def _lanes(kind: str) -> list[dict[str, Any]]:
    """Return the events that name and order the lanes."""
    return [
        {"name": what, "ph": "M", "pid": lane, "tid": _THREAD, "ts": 0, "args": {key: value}}
        for name, lane in LANES.items()
        for what, key, value in (
            ("process_name", "name", f"{name} ({kind})"),
            ("process_sort_index", "sort_index", lane),
            ("thread_name", "name", name),
        )
    ]


def _modules(profile: Profile) -> list[dict[str, Any]]:
    """Return a span for each sequence of steps of one module."""
    now, spans = profile.copy_in, []
    start, module = now, ""
    for step in (*profile.steps, None):
        here = step.module if step else ""
        if here != module:
            if module:
                spans.append(_span("framework", module, start, now, {}))
            start, module = now, here
        now += step.seconds if step else 0.0
    return spans


def _facts(step: Launch) -> dict[str, Any]:
    return {
        "operator": step.op_type,
        "nodes": list(step.nodes),
        "flops": step.flops,
        "bytes": step.bytes,
        "intensity": step.intensity,
        "share of the roof": step.roof_share,
        "bound": step.bound,
    }


def _span(lane: str, name: str, start: float, end: float, args: dict[str, Any]) -> dict[str, Any]:
    # Rounded to nanoseconds, so that adjacent spans do not overlap by a rounding error.
    first, last = round(start * 1e9), round(end * 1e9)
    place = {"pid": LANES[lane], "tid": _THREAD, "ts": first / 1e3, "dur": (last - first) / 1e3}
    return {"name": name, "ph": "X", **place, "args": args}
