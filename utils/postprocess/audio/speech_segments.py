"""Segments of speech from probabilities per chunk, also as a stream.

The rules are those of Silero's ``get_speech_timestamps`` (version 6, without its maximum duration), implemented anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from engine import ConfigError


@dataclass(frozen=True)
class Rules:
    """Conditions for the start and end of speech.

    Attributes:
        rate: in Hz. chunk: samples per probability.
        threshold: minimum probability of speech. low: below it speech may end; ``None``: 0.15 below the threshold, at
            least 0.01. Between the two, the state does not change.
        min_speech: milliseconds; segments that are not longer are dropped.
        min_silence: milliseconds from the first chunk below ``low`` to the end of the speech.
        pad: milliseconds added before and after; a gap of less than twice that is divided between its two segments.
    """

    rate: int = 16000
    chunk: int = 512
    threshold: float = 0.5
    low: float | None = None
    min_speech: float = 250.0
    min_silence: float = 100.0
    pad: float = 30.0

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1:
            raise ConfigError(f"--threshold {self.threshold:g} must be above 0 and below 1")
        if self.low is not None and not 0 <= self.low <= self.threshold:
            raise ConfigError(f"--low_threshold {self.low:g} must be from 0 to --threshold {self.threshold:g}")
        for name in ("min_speech", "min_silence", "pad"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"--{name} {getattr(self, name)} must be milliseconds, 0 or more")

    @property
    def lower(self) -> float:
        """Probability below which speech may end."""
        return max(self.threshold - 0.15, 0.01) if self.low is None else self.low

    def samples(self, milliseconds: float) -> float:
        """Convert a duration to samples."""
        return self.rate * milliseconds / 1000


class Segmenter:
    """Finds segments of speech in a stream of probabilities."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._at = 0
        self._start: int | None = None
        self._quiet: int | None = None
        self._open: list[int] = []
        """Start (padded) and end (not padded) of the last segment, while its end may still change."""

    @property
    def speaking(self) -> bool:
        """Whether there is speech now."""
        return self._start is not None

    def saved(self) -> list[Any]:
        """Return the state in JSON types."""
        return [self._at, self._start, self._quiet, self._open]

    def restore(self, state: list[Any]) -> None:
        """Continue after the state that :meth:`saved` has returned."""
        self._at, self._start, self._quiet, found = state
        self._open = list(found)

    def feed(self, probabilities: Iterable[float]) -> list[tuple[int, int]]:
        """Process the next chunks; return the segments that are final now, as (first, last + 1) samples."""
        done: list[tuple[int, int]] = []
        for probability in probabilities:
            self._hear(float(probability), done)
            self._at += self._rules.chunk
            self._settle(done)
        return done

    def finish(self, samples: int) -> list[tuple[int, int]]:
        """Return the remaining segments at the end of a recording with this number of samples."""
        done: list[tuple[int, int]] = []
        if self._start is not None and samples - self._start > self._rules.samples(self._rules.min_speech):
            self._add(self._start, samples, done)
        if self._open:
            start, end = self._open
            done.append((start, int(min(samples, end + self._rules.samples(self._rules.pad)))))
        self._start, self._open = None, []
        return done

    def _hear(self, probability: float, done: list[tuple[int, int]]) -> None:
        rules = self._rules
        if probability >= rules.threshold:
            self._quiet = None
            if self._start is None:
                self._start = self._at
        elif probability < rules.lower and self._start is not None:
            self._quiet = self._at if self._quiet is None else self._quiet
            if self._at - self._quiet >= rules.samples(rules.min_silence):
                if self._quiet - self._start > rules.samples(rules.min_speech):
                    self._add(self._start, self._quiet, done)
                self._start = self._quiet = None

    def _add(self, start: int, end: int, done: list[tuple[int, int]]) -> None:
        """Add a segment; if the gap before it is short, it is divided between both."""
        pad = self._rules.samples(self._rules.pad)
        begin = int(max(0, start - pad))
        if self._open:
            before, last = self._open
            silence = start - last
            shared = silence // 2 if silence < 2 * pad else pad
            done.append((before, int(last + shared)))
            begin = int(max(0, start - shared))
        self._open = [begin, end]

    def _settle(self, done: list[tuple[int, int]]) -> None:
        """Return the last segment once later chunks cannot change it."""
        if not self._open:
            return
        begin, end = self._open
        pad = self._rules.samples(self._rules.pad)
        if (self._at if self._start is None else self._start) - end >= 2 * pad:
            done.append((begin, int(end + pad)))
            self._open = []


def speech_segments(probabilities: Iterable[float], rules: Rules, samples: int) -> list[tuple[int, int]]:
    """Return the first sample of each segment of speech in a whole recording, and the one after its last.

    There is a probability per chunk; the last chunk may extend beyond the recording.
    """
    segmenter = Segmenter(rules)
    return segmenter.feed(probabilities) + segmenter.finish(samples)
