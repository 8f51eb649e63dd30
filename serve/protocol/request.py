"""Requests and answers of inference, as both protocols read and write them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine import Array, TensorSpec
from engine.batching import batch_of, fits
from engine.signature import tensor_from_json
from serve.errors import invalid
from serve.protocol.datatypes import datatype_of

DEFAULT_PRIORITY = 1 << 16
"""Priority of requests that ask for none, or for 0; a smaller number is served earlier."""

MOST_PRIORITY = (1 << 32) - 1

MOST_ID = 128
"""Most characters of the id of a sequence."""


@dataclass(frozen=True, slots=True)
class WantedOutput:
    """An output that a request asks for; ``classes``: number of best classes to return as texts, 0: the tensor."""

    name: str
    binary: bool = False
    classes: int = 0


@dataclass(frozen=True, slots=True)
class InSequence:
    """The place of a request in a sequence; ``id``: a text or a number, ``start``, ``end``: first and last one."""

    id: str | int
    start: bool = False
    end: bool = False


@dataclass(slots=True)
class InferRequest:
    """A request of inference.

    Attributes:
        model: name. id: returned with the answer.
        inputs: tensors by name, in the order of the request.
        outputs: wanted outputs; empty: all. binary: whether other outputs are returned as bytes.
        priority: a smaller number is served earlier. timeout: seconds, or ``None``.
        sequence: the sequence that it belongs to, if any.
    """

    model: str
    id: str = ""
    inputs: dict[str, Array] = field(default_factory=dict)
    outputs: list[WantedOutput] = field(default_factory=list)
    binary: bool = False
    priority: int = DEFAULT_PRIORITY
    timeout: float | None = None
    sequence: InSequence | None = None

    def take_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Set priority, timeout (in microseconds) and sequence from the parameters; others are ignored.

        Raises ServeError if a value is invalid.
        """
        priority, timeout = parameters.get("priority", 0), parameters.get("timeout", 0)
        for name, value in (("priority", priority), ("timeout", timeout)):
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_PRIORITY << 20:
                raise invalid(f"parameter {name} must be a whole number of at least 0")
        if priority > MOST_PRIORITY:
            raise invalid(f"parameter priority must be at most {MOST_PRIORITY}")
        self.sequence = _sequence_of(parameters)
        self.priority = priority or DEFAULT_PRIORITY
        self.timeout = timeout / 1e6 if timeout else None


def _sequence_of(parameters: Mapping[str, Any]) -> InSequence | None:
    """Return the place in a sequence; an id of 0 or an empty text is none, as Triton's clients send it."""
    found = parameters.get("sequence_id")
    if found is None or found in (0, ""):
        return None
    is_number = isinstance(found, int) and not isinstance(found, bool) and 0 < found < 1 << 64
    if not is_number and not (isinstance(found, str) and len(found) <= MOST_ID):
        raise invalid(f"parameter sequence_id must be a number above 0, or a text of at most {MOST_ID} characters")
    marks = [parameters.get(f"sequence_{name}", False) for name in ("start", "end")]
    if not all(isinstance(mark, bool) for mark in marks):
        raise invalid("parameters sequence_start and sequence_end must be true or false")
    return InSequence(found, *marks)


@dataclass(frozen=True, slots=True)
class Signature:
    """What a network takes and gives.

    Attributes:
        inputs, outputs: tensors in the order of a call.
        joins: whether several requests may be computed in one call: the rows are proven independent of one another.
        reason: why not. labels: names of its classes, if the model stores them.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    joins: bool = False
    reason: str = ""
    labels: Sequence[str] | None = None

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Signature:
        """Read the description that an engine process sends."""
        inputs, outputs = (tuple(map(tensor_from_json, entry[key])) for key in ("inputs", "outputs"))
        return cls(inputs, outputs, bool(entry.get("joins")), str(entry.get("reason", "")), entry.get("labels"))

    def arrange(self, request: InferRequest) -> Call:
        """Return the arrays of a request in the order of a call. Raises ServeError if they do not fit the model."""
        names = [spec.name for spec in self.inputs]
        missing = [name for name in names if name not in request.inputs]
        unknown = [name for name in request.inputs if name not in names]
        if missing or unknown:
            what = f"input {(missing or unknown)[0]!r} is {'missing' if missing else 'unknown'}"
            raise invalid(f"{what}; the inputs are: {', '.join(names)}")
        arrays = [_checked(request.inputs[spec.name], spec) for spec in self.inputs]
        counts = {
            int(a.shape[s.batch_axis]) for a, s in zip(arrays, self.inputs, strict=True) if s.batch_axis is not None
        }
        if len(counts) > 1:
            raise invalid(f"the inputs have different numbers of samples: {', '.join(map(str, sorted(counts)))}")
        self.check_outputs(request.outputs)
        return Call(arrays, batch_of(arrays, self.inputs), self.key(arrays) if self.joins else None)

    def check_outputs(self, wanted: Sequence[WantedOutput]) -> None:
        """Raise ServeError if a wanted output does not exist."""
        names = [spec.name for spec in self.outputs]
        unknown = next((one.name for one in wanted if one.name not in names), None)
        if unknown is not None:
            raise invalid(f"output {unknown!r} is unknown; the outputs are: {', '.join(names)}")

    def key(self, arrays: Sequence[Array]) -> Hashable:
        """Return what must be equal for two requests to share a call: all sizes except the batch."""
        pairs = zip(arrays, self.inputs, strict=True)
        return tuple(
            a.shape if s.batch_axis is None else (*a.shape[: s.batch_axis], *a.shape[s.batch_axis + 1 :])
            for a, s in pairs
        )


@dataclass(frozen=True, slots=True)
class Call:
    """The arrays of a request; ``rows``: samples; ``key``: of requests that may share a call, ``None``: of none."""

    arrays: list[Array]
    rows: int
    key: Hashable | None


def _checked(array: Array, spec: TensorSpec) -> Array:
    if array.dtype != spec.dtype:
        raise invalid(
            f"input {spec.name!r} has datatype {datatype_of(array.dtype)}, the model takes {datatype_of(spec.dtype)}"
        )
    if not fits(array.shape, spec):
        raise invalid(f"input {spec.name!r} has shape {list(array.shape)}, the model takes {list(open_shape(spec))}")
    return array


def open_shape(spec: TensorSpec) -> tuple[int, ...]:
    """Return a tensor's shape as the protocol writes it: -1 for the batch and for other dimensions of any size."""
    return tuple(-1 if size is None or axis == spec.batch_axis else size for axis, size in enumerate(spec.shape))


def best_classes(array: Array, count: int, labels: Sequence[str] | None) -> Array:
    """Return the best classes of each row of scores, as Triton's clients read them.

    Args:
        array: scores, N x C or C. count: number of classes. labels: names of the classes, if known.

    Returns:
        Texts ``score:class`` or ``score:class:label``, N x count or count, best first. Raises ServeError if the output
        is not of real numbers.
    """
    if array.dtype.kind not in "fiu" or array.ndim == 0 or array.shape[-1] == 0:
        raise invalid(
            f"classification: an output of {datatype_of(array.dtype)} {list(array.shape)} has no scores of classes"
        )
    rows = array.reshape(-1, array.shape[-1])
    best = np.argsort(-rows.astype(np.float64), axis=1, kind="stable")[:, :count]
    texts = [
        [f"{row[place]:f}:{place}{_label(labels, place)}" for place in places]
        for row, places in zip(rows.tolist(), best.tolist(), strict=True)
    ]
    found = np.empty(best.shape, np.object_)
    found[...] = texts
    return found.reshape(*array.shape[:-1], best.shape[1])


def _label(labels: Sequence[str] | None, place: int) -> str:
    return f":{labels[place]}" if labels is not None and place < len(labels) else ""
