"""A profile as a Chrome trace: framework, runtime and device as three lanes, for Perfetto or chrome://tracing."""

from __future__ import annotations

from typing import Any

from toolkit.profile.record import Profile, Step

LANES = {"framework": 1, "runtime": 2, "device": 3}
"""Lane and its number, from the caller's side down."""


def chrome_trace(profile: Profile) -> dict[str, Any]:
    """Return one run as a Chrome trace (JSON types; times in microseconds).

    framework: modules the steps were exported from, within the call. runtime: copies and launches. device: the work of
    every step. On the host, where ONNX Runtime tells no launches apart, runtime shows whole nodes.
    """
    events = [_meta("process_name", lane, f"{name} ({profile.kind})") for name, lane in LANES.items()]
    events += [_meta("process_sort_index", lane, lane) for lane in LANES.values()]
    now = profile.copy_in
    works: list[dict[str, Any]] = []
    for step in profile.steps:
        # On the card a launch and the work after it follow one another; a measured node is work from end to end.
        launch = max(step.seconds - step.roof, 0.0) if profile.simulated else 0.0
        shown = launch if profile.simulated else step.seconds
        works.append(_span("runtime", f"launch {step.name}" if launch else step.name, now, shown, {}))
        works.append(_span("device", step.name, now + launch, step.seconds - launch, _facts(step)))
        now += step.seconds
    if profile.simulated:
        works.append(_span("runtime", "copy in", 0.0, profile.copy_in, {}))
        works.append(_span("runtime", "copy out", now, profile.copy_out, {}))
    call = _span(
        "framework", f"{profile.model}, batch {profile.batch}", 0.0, now + profile.copy_out, {"kind": profile.kind}
    )
    return {"displayTimeUnit": "ms", "traceEvents": [*events, call, *_modules(profile), *works]}


def _modules(profile: Profile) -> list[dict[str, Any]]:
    """Return a span for each stretch of steps that come from one module."""
    now, spans = profile.copy_in, []
    start, module = now, ""
    for step in (*profile.steps, None):
        here = step.module if step else ""
        if here != module or step is None:
            if module:
                spans.append(_span("framework", module, start, now - start, {}))
            start, module = now, here
        now += step.seconds if step else 0.0
    return spans


def _facts(step: Step) -> dict[str, Any]:
    return {
        "operator": step.op_type,
        "nodes": list(step.nodes),
        "flops": step.flops,
        "bytes": step.bytes,
        "intensity": step.intensity,
        "share of the roof": step.roof_share,
        "bound": step.bound,
    }


def _span(lane: str, name: str, start: float, seconds: float, args: dict[str, Any]) -> dict[str, Any]:
    place = {"pid": LANES[lane], "tid": 1, "ts": start * 1e6, "dur": seconds * 1e6}
    return {"name": name, "ph": "X", **place, "args": args}


def _meta(kind: str, lane: int, value: str | int) -> dict[str, Any]:
    key = "sort_index" if kind.endswith("index") else "name"
    return {"name": kind, "ph": "M", "pid": lane, "tid": 0, "args": {key: value}}
