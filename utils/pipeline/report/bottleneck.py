"""The stage that bounds a run, in one line, computed from the timeline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from utils.pipeline.report.advice import Course, OwnAdvice, helps_most

_BEFORE_ENGINE = ("disk", "decode", "preprocess")
"""The stages before the engine."""

_CORES_FULL = 0.85
"""Share of the cores' time from which more threads do not help."""

_ONE_CORE = 0.6, 1.3
"""Number of busy cores where threads wait for the interpreter lock: about one."""

_IDLE = 0.5
"""Share of the wall time below which a stage counts as idle."""

_BLOCK = 2048
"""Bytes per sample below which files came from the page cache; the disk is read in blocks of 4096 bytes or more."""


def bottleneck(
    busy: Mapping[str, float],
    waits: Mapping[str, float],
    wall: float,
    core_share: float,
    simulated: bool,
    *,
    cores: int,
    samples: int,
    disk_bytes: int | None = None,
    own: OwnAdvice | None = None,
) -> str:
    """Return one line: the stage that bounds the run, how busy each stage was, and the most effective advice, if any.

    If all cores are busy, the stage that used most of their time bounds the run; else the stage the loop waited for,
    unless that was idle. A span of the disk includes the time its thread waited for a core or the interpreter lock, so
    the disk is considered only with idle cores and bytes fetched from storage.

    Args:
        busy, core_share, simulated, disk_bytes: as of :class:`~utils.pipeline.report.report.Report`.
        waits: wall seconds the loop waited for ``preprocess`` and ``engine``, or spent on ``postprocess``.
        wall: wall seconds of the run. cores: number of cores of ``core_share``. samples: run in that time.
        own: the task's advice by stage, and the flags in use.
    """
    full = core_share >= _CORES_FULL
    no_disk = full or (disk_bytes is not None and disk_bytes < _BLOCK * samples)
    candidates = dict(busy)
    if no_disk:
        candidates.pop("disk", None)
    waited = max(waits, key=lambda stage: waits[stage])
    # An idle stage that the loop waits for waits for a core itself: then the stage that uses the cores bounds the run.
    if not full and _working(busy, waited) >= _IDLE * wall:
        candidates = {stage: seconds for stage, seconds in candidates.items() if stage in _behind(waited)}
    bound = max(candidates, key=lambda stage: candidates[stage], default=waited)
    used = core_share * cores
    # Preprocessing threads wait for one another: more seconds of work than CPU time of one core.
    turns = _ONE_CORE[0] <= used <= _ONE_CORE[1] and _working(busy, "preprocess") > 1.3 * used * wall
    shares = ", ".join(f"{stage} {seconds / wall:.0%}" for stage, seconds in busy.items())
    own = own or OwnAdvice()
    run = Course(wall, samples, cores, full, turns, simulated, own.in_use)
    helps = helps_most(bound, run, own.words)
    line = f"bound by {bound} (busy, of the wall time: {shares}; cores {core_share:.0%})"
    return f"{line}; helps most: {helps}" if helps else line


def _behind(waited: str) -> tuple[str, ...]:
    """Return the stages that the loop waits for under one name; all stages before the engine are one."""
    return _BEFORE_ENGINE if waited == "preprocess" else (waited,)


def _working(busy: Mapping[str, float], waited: str) -> float:
    """Return the seconds of work of the stages that the loop waits for under one name."""
    return sum(busy.get(stage, 0.0) for stage in _behind(waited))


def fetched_bytes() -> int | None:
    """Return the bytes this process has fetched from storage; ``None`` if the system does not report it."""
    try:
        text = Path("/proc/self/io").read_text(encoding="ascii")
    except OSError:  # not Linux, or not allowed
        return None
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("read_bytes:")), None)
