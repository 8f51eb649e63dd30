"""What a task makes of samples, on the way to an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from engine import Array


class Prepared(NamedTuple):
    """What ``prepare`` makes of some samples.

    Attributes:
        arrays: for each input of the model an array with the samples along its batch axis, or a list with one array per
            sample, without the batch axis, where their sizes differ (``collate`` pads them).
        contexts: one object per sample that travels to ``decode`` and the metric (a letterbox to undo, a question's
            text); ``None`` where nothing is kept.
        padding: what ``collate`` pads the lists of an input with, by its name; 0 where it is not named.
    """

    arrays: Sequence[Array | list[Array]]
    contexts: list[Any] | None = None
    padding: Mapping[str, float] | None = None


class NoAnswer(NamedTuple):
    """What ``decode`` returns for a sample that only the model shows to be none, such as a picture without a face.

    The run goes on; the sample is counted and named as one that could not be run, and is in no metric.

    Attributes:
        reason: part of a sentence behind the sample's name.
    """

    reason: str


class Shards(list[list[Array]]):
    """What each SPA gets, one list of arrays per SPA: made by a ``collate`` whose samples cannot be split by rows."""
