"""Figures of audio tasks: real-time factors, and the time of a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine import Timeline
from utils.tasks import Notes

SOUND = "sound_seconds"
"""Key of the seconds of audio."""


class SoundNotes(Notes):
    """Seconds of audio and real-time factors, for a task whose contexts have ``seconds``."""

    def workload(self, outputs: Any, contexts: Any) -> Mapping[str, float]:
        """Return the seconds of audio in a batch: the sum of the contexts' ``seconds``."""
        return {SOUND: float(sum(context.seconds for context in contexts))}

    def extra_figures(self, timeline: Timeline, samples: int) -> Mapping[str, float]:
        """Return the seconds of audio and real-time factors.

        ``real_time_factor`` is wall seconds per second of audio, ``times_real_time`` its inverse;
        ``model_real_time_factor`` includes the model only.
        """
        sound = timeline.amount(SOUND)
        wall = sum(timeline.seconds(stage) for stage in ("wait", "wait_engine", "postprocess"))
        if not sound or not wall:
            return {}
        factors = {"real_time_factor": wall / sound, "times_real_time": sound / wall}
        return {SOUND: sound, **factors, "model_real_time_factor": timeline.seconds("inference") / sound}


class StreamNotes(SoundNotes):
    """The same with the time of a chunk, for a model that is called once per chunk or window."""

    def extra_figures(self, timeline: Timeline, samples: int) -> Mapping[str, float]:
        """Return the seconds of audio, real-time factors, and the time of a chunk.

        ``chunk_ms_median`` and ``chunk_ms_p99`` are of the newest calls, each with one chunk of every recording of a
        batch, or with as many windows as a batch has samples.
        """
        figures = dict(super().extra_figures(timeline, samples))
        calls = [span.end - span.start for span in list(timeline.spans) if span.stage.startswith("call ")]
        if calls:
            middle, high = np.quantile(calls, [0.5, 0.99]).tolist()
            figures |= {"chunk_ms_median": 1e3 * middle, "chunk_ms_p99": 1e3 * high}
        return figures
