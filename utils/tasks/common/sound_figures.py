"""Figures of tasks that listen: how much faster than the sound they are, and how long a call takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine import Timeline
from utils.tasks.base import Notes

SOUND = "sound_seconds"
"""What :func:`sound_amounts` counts."""


def sound_amounts(outputs: Any, contexts: Sequence[Any]) -> dict[str, float]:
    """Return the seconds of sound in a batch: those of its contexts' ``seconds``."""
    return {SOUND: float(sum(context.seconds for context in contexts))}


def sound_figures(timeline: Timeline, samples: int) -> Mapping[str, float]:
    """Return the seconds of sound, and how long they took.

    ``real_time_factor`` is wall seconds per second of sound, everything included, and ``times_real_time`` its inverse;
    ``model_real_time_factor`` counts the model alone.
    """
    sound = timeline.amount(SOUND)
    wall = sum(timeline.seconds(stage) for stage in ("wait", "wait_engine", "postprocess"))
    if not sound or not wall:
        return {}
    return {
        SOUND: sound,
        "real_time_factor": wall / sound,
        "times_real_time": sound / wall,
        "model_real_time_factor": timeline.seconds("inference") / sound,
    }


def stream_figures(timeline: Timeline, samples: int) -> Mapping[str, float]:
    """Return :func:`sound_figures` and how long a chunk takes, for a model that is called once per chunk or window.

    ``chunk_ms_median`` and ``chunk_ms_p99`` are of the newest calls, each of one chunk of every recording of a batch,
    or of as many windows as a batch has samples.
    """
    calls = [span.end - span.start for span in list(timeline.spans) if span.stage.startswith("call ")]
    figures = dict(sound_figures(timeline, samples))
    if calls:
        middle, high = np.quantile(calls, [0.5, 0.99]).tolist()
        figures |= {"chunk_ms_median": 1e3 * middle, "chunk_ms_p99": 1e3 * high}
    return figures


class SoundNotes(Notes):
    """Seconds of sound and :func:`sound_figures`, for a task whose contexts have ``seconds``."""

    def workload(self, outputs: Any, contexts: Any) -> Mapping[str, float]:
        """Return the seconds of sound in a batch."""
        return sound_amounts(outputs, contexts)

    def extra_figures(self, timeline: Timeline, samples: int) -> Mapping[str, float]:
        """Return the seconds of sound, and how long they took."""
        return sound_figures(timeline, samples)


class StreamNotes(SoundNotes):
    """The same with :func:`stream_figures`."""

    def extra_figures(self, timeline: Timeline, samples: int) -> Mapping[str, float]:
        """Return the seconds of sound, how long they took, and how long a chunk takes."""
        return stream_figures(timeline, samples)
