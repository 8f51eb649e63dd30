"""What bounds a run, in one line, from the same spans as every other figure."""

from __future__ import annotations

from collections.abc import Mapping

_CORES_FULL = 0.85
"""Share of the cores' time from which on more threads cannot help."""

_ADVICE = {
    "disk": "keep the pictures on a faster disk, or in memory",
    "decode": "--decode reduced, or more cores",
    "preprocess": "--decode fused, or more cores",
    "engine": "--target cpu --dtype int8, where the metric allows it",
    "postprocess": "a larger --batch_size",
}


def bottleneck(
    busy: Mapping[str, float], waits: Mapping[str, float], wall: float, core_share: float, simulated: bool
) -> str:
    """Return one line: the stage that bounds the run, how busy each was, and what would help most.

    Where the cores are full, the stage that used most of them bounds the run; else it is what the loop waited for.

    Args:
        busy: seconds at work by stage (``disk``, ``decode``, ``preprocess``, ``engine``, ``postprocess``), summed over
            threads.
        waits: wall seconds the loop waited for ``preprocess`` and ``engine``, or spent on ``postprocess``.
        wall: wall seconds of the run.
        core_share: CPU seconds over wall seconds times cores.
        simulated: the engine is a simulated device, which the host computes.
    """
    front = {stage: busy.get(stage, 0.0) for stage in ("disk", "decode", "preprocess")}
    if core_share >= _CORES_FULL:
        bound = max(busy, key=lambda stage: busy[stage])
    else:
        waited = max(waits, key=lambda stage: waits[stage])
        bound = max(front, key=lambda stage: front[stage]) if waited == "preprocess" else waited
    shares = ", ".join(f"{stage} {seconds / wall:.0%}" for stage, seconds in busy.items())
    advice = _ADVICE[bound]
    if bound == "engine" and simulated:
        advice = "a real card: this host computes what the simulated one would"
    elif bound in front and core_share < _CORES_FULL:
        advice = "more --workers" if bound != "disk" else advice
    return f"bound by {bound} (busy, of the wall time: {shares}; cores {core_share:.0%}); helps most: {advice}"
