"""Prepared samples of a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from engine import Array, TensorSpec


class Prepared(NamedTuple):
    """Samples prepared by ``prepare``.

    Attributes:
        arrays: for each input of the model an array with the samples along its batch axis, or a list with one array per
            sample, without the batch axis, if their sizes differ (``collate`` pads them).
        contexts: one object per sample for ``decode`` and the metric (a letterbox to undo, a question's text);
            ``None``: nothing is needed.
        padding: value with which ``collate`` pads the lists of an input, by name; default 0.
    """

    arrays: Sequence[Array | list[Array]]
    contexts: list[Any] | None = None
    padding: Mapping[str, float] | None = None


class NoAnswer(NamedTuple):
    """Returned by ``decode`` for a sample without an answer, such as an image without a face.

    The sample is listed as one that could not be run, and left out of the metric.
    """

    reason: str  # printed after the sample's name


class Streamed(NamedTuple):
    """Returned by ``stream`` when the text is complete."""

    text: str  # the whole continuation
    prompt_tokens: int  # number of tokens of the prompt
    tokens: int  # number of new tokens
    complete: bool  # it ended by itself or at a stop string, not at the limit of tokens


class SequenceState(NamedTuple):
    """State of a sequence of requests between two of them: ``values`` in JSON types, and arrays."""

    values: dict[str, Any]
    arrays: list[Array]


class Sequences(Protocol):
    """Computes sequences of requests, of which each needs the state that the one before has left."""

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """Arrays of a request."""

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """Arrays of its answer."""

    def step(self, arrays: list[Array], state: SequenceState | None, last: bool) -> tuple[list[Array], SequenceState]:
        """Return the outputs of a request, and the state after it.

        Args:
            arrays: the inputs. state: after the request before; ``None``: it is the first one. last: no more follow.
        """
        ...


class Shards(list[list[Array]]):
    """One list of arrays per SPA, returned by a ``collate`` whose samples cannot be split by rows."""
