"""Choosing what may be the batch, following the graph for each choice, and saying what came of it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from onnx import GraphProto, ModelProto

from engine.batching.sizes import Size
from engine.batching.trace import Trace, View, view_of
from engine.batching.value import Fault, Rows, Value
from engine.onnx.view import subgraphs
from engine.signature import _MADE_UP as MADE_UP, BatchAxes, Dim
from tecoinfer_modelzoo.errors import ConfigError

_BATCH = re.compile(r"(batch\w*|\w*_batch|bs|b|n|num_?(samples|images|sequences))", re.IGNORECASE)
"""Names of a dimension that is the batch by what its author says."""

_NO_BATCH = re.compile(
    r"t|s|l|h|w|\w*(time|seq|len|frames?|steps?|height|width|tokens?|chars|points|nodes|audio|samples)\w*",
    re.IGNORECASE,
)
"""Names of a dimension that hardly is the batch."""

_TRIES = 16
"""Choices of axes that are tried at most."""

_RECURRENT = frozenset(("RNN", "GRU", "LSTM"))


class _Place(NamedTuple):
    """One dimension of one input, as it is declared."""

    input: int
    axis: int
    dim: Dim


@dataclass(frozen=True, slots=True)
class Choice:
    """Axes to try: one per input, and the symbol or the number that the batch has in declared shapes."""

    axes: tuple[int | None, ...]
    symbol: str | None
    number: int | None


def find_batching(model: ModelProto, axes: Mapping[str, int] | None = None) -> BatchAxes:
    """Find the batch axis of every input and output, and whether the graph keeps samples apart.

    Args:
        model: the model, with its weights (those of a fixed batch may hold a row for each sample).
        axes: batch axis by input name, where the caller knows; the other inputs follow from it.

    Several choices may be tried; the first that is proven is returned, else the first of all, not proven.

    Raises:
        ConfigError: ``axes`` names an input or an axis the model has not.
        ModelError: the graph has a cycle.
    """
    view = view_of(model)
    first: BatchAxes | None = None
    for choice in itertools.islice(_choices(view, axes or {}), _TRIES):
        found = _followed(view, choice)
        if found.independent:
            return found
        first = first or found
    assert first is not None  # noqa: S101 - there is always one choice
    return first


# ------------------------------------------------------------------------------------------------------------- choices


def _choices(view: View, given: Mapping[str, int]) -> Iterator[Choice]:
    """Yield axes to try, the likeliest first, each once."""
    seen: set[Choice] = set()
    leads = [_given_lead(view, given)] if given else _leads(view)
    for lead in leads:
        for choice in _choices_of(view, *lead, _given_axes(view, given)):
            if choice not in seen:
                seen.add(choice)
                yield choice
    if not seen:
        yield Choice((None,) * len(view.inputs), None, None)


def _given_axes(view: View, given: Mapping[str, int]) -> dict[int, int]:
    names = [name for name, _ in view.inputs]
    found = {}
    for name, axis in given.items():
        if name not in names:
            raise ConfigError(f"batch axis of {name!r}: the model has no such input; it has {', '.join(names)}")
        rank = len(view.inputs[names.index(name)][1])
        if not -rank <= axis < rank:
            raise ConfigError(f"batch axis {axis} of {name!r}: that input has {rank} dimensions; pass 0 to {rank - 1}")
        found[names.index(name)] = axis % rank
    return found


def _given_lead(view: View, given: Mapping[str, int]) -> tuple[int, int]:
    return min(_given_axes(view, given).items())


def _leads(view: View) -> list[tuple[int, int]]:
    """Return inputs and axes that may set the batch, the likeliest first."""
    places = [_Place(i, axis, dim) for i, (_, dims) in enumerate(view.inputs) for axis, dim in enumerate(dims)]
    dynamic = [place for place in places if not isinstance(place.dim, int)]
    named = [place for place in dynamic if place.dim is not None and _BATCH.fullmatch(str(place.dim))]
    if named:
        return _once_each(named)
    order = sorted([*dynamic, *_static_leads(places)], key=lambda place: _turn(view, place))
    return [*_once_each(order), *_recurrent_leads(view)]


def _turn(view: View, place: _Place) -> tuple[int, int]:
    """Return what sorts places by how likely each is the batch, none of which says so itself.

    A name that is found often, then a leading dimension without a name or with a number, then any without a name, and
    last the names of other things.
    """
    if isinstance(place.dim, int):
        return 2, 0
    if _is_made_up(place.dim):
        return 3 if place.axis else 1, 0
    return (4, 0) if _is_other(place.dim) else (0, -_count(view, place.dim))


def _is_made_up(dim: Dim) -> bool:
    """Say whether a dynamic dimension has no name, or one that an exporter made up."""
    return dim is None or MADE_UP.match(str(dim)) is not None


def _is_other(dim: Dim) -> bool:
    """Say whether a dynamic dimension has the name of something else than the batch."""
    return dim is not None and _NO_BATCH.fullmatch(str(dim)) is not None


def _static_leads(places: list[_Place]) -> list[_Place]:
    """Return the first leading dimension that is a number; none where an input beside it leads with a symbol."""
    leading = [place for place in places if place.axis == 0]
    if any(not isinstance(place.dim, int) for place in leading):
        return []
    return [place for place in leading if place.dim != 0][:1]


def _once_each(places: list[_Place]) -> list[tuple[int, int]]:
    """Return the first place of each symbol, and every place without one, as input and axis."""
    first: dict[object, tuple[int, int]] = {}
    for i, axis, dim in places:
        first.setdefault(dim if isinstance(dim, str) else (i, axis), (i, axis))
    return list(first.values())


def _count(view: View, dim: Dim) -> int:
    return sum(dim in dims for _, dims in (*view.inputs, *view.outputs))


def _recurrent_leads(view: View) -> list[tuple[int, int]]:
    """Return the batch axes of recurrent layers' inputs, by the operators' own layouts, where the graph has such."""
    if not _has_recurrent(view.graph):
        return []
    first = next(((i, dims) for i, (_, dims) in enumerate(view.inputs) if len(dims) == 3), None)
    return [] if first is None else [(first[0], axis) for axis in (1, 0) if first[1][axis] != 0]


def _has_recurrent(graph: GraphProto) -> bool:
    return any(node.op_type in _RECURRENT or any(map(_has_recurrent, subgraphs(node))) for node in graph.node)


def _choices_of(view: View, lead: int, axis: int, given: Mapping[int, int]) -> Iterator[Choice]:
    """Yield the choices in which one axis of one input sets the batch: every other input may have it or not."""
    dim = view.inputs[lead][1][axis]
    options: list[list[int | None]] = []
    for i, (_, dims) in enumerate(view.inputs):
        own = [given[i]] if i in given else [axis] if i == lead else _options(dims, dim)
        options.append(list(own))
    for axes in itertools.product(*options):
        yield Choice(axes, dim if isinstance(dim, str) else None, dim if isinstance(dim, int) else None)


def _options(dims: list[Dim], lead: Dim) -> list[int | None]:
    """Return the axes of an input that may be the batch beside one that is, the likeliest first; ``None`` for none."""
    if isinstance(lead, str) and lead in dims:
        return [dims.index(lead)]
    if isinstance(lead, int):
        return [*(axis for axis, dim in enumerate(dims) if dim == lead), None]
    free = _is_made_up(lead)
    mine = [(axis, dim) for axis, dim in enumerate(dims) if not isinstance(dim, int) and (free or _is_made_up(dim))]
    likely = [axis for axis, dim in mine if not _is_other(dim)]
    return [*likely, None, *(axis for axis, dim in mine if _is_other(dim))]


# ------------------------------------------------------------------------------------------------------------- outcome


def _followed(view: View, choice: Choice) -> BatchAxes:
    """Return what follows from one choice of axes."""
    trace = Trace(view, choice.symbol, choice.number)
    results = trace.run([_input(trace, n, name, dims, choice) for n, (name, dims) in enumerate(view.inputs)])
    faults = [*_declared_twice(view, choice), *(f for f in map(_fault, results) if f)]
    outputs = tuple(_output_axis(value, dims, choice) for value, (_, dims) in zip(results, view.outputs, strict=True))
    if not faults:
        return BatchAxes(choice.axes, outputs)
    worst = next((fault for fault in faults if fault.depends), faults[0])
    return BatchAxes(choice.axes, outputs, False if worst.depends else None, worst.reason)


def _input(trace: Trace, n: int, name: str, dims: list[Dim], choice: Choice) -> Value:
    axis = choice.axes[n]
    rows = None if axis is None else Rows(axis)
    sizes: list[Size] = [trace.size(name, i, dim) for i, dim in enumerate(dims)]
    if rows is not None:
        sizes[rows.axis] = rows.size
    return Value(name, tuple(sizes), rows)


def _fault(value: Value) -> Fault | None:
    """Return why an output cannot be put together from shards."""
    if value.fault:
        return value.fault
    if value.sized:
        return Fault(f"output '{value.name}' holds the number of samples", True)
    if value.count:
        return Fault(f"output '{value.name}' counts up to the number of samples", True)
    if value.rows and not value.rows.plain:
        return Fault(f"output '{value.name}' has several rows per sample along axis {value.rows.axis}", True)
    return None


def _declared_twice(view: View, choice: Choice) -> list[Fault]:
    """Return the faults of inputs and outputs that have the batch on two axes: they pair samples."""
    if choice.symbol is None:
        return []
    sides = [("input", view.inputs), ("output", view.outputs)]
    return [
        Fault(f"{side} '{name}' has the batch dimension '{choice.symbol}' twice", True)
        for side, infos in sides
        for name, dims in infos
        if dims.count(choice.symbol) > 1
    ]


def _output_axis(value: Value, dims: list[Dim], choice: Choice) -> int | None:
    """Return the batch axis of an output of this declared shape: the one that was found, or else a guess."""
    if value.rows and value.rows.plain:
        return value.rows.axis
    return None if value.shared else _guess(dims, choice)


def _guess(dims: list[Dim], choice: Choice) -> int | None:
    """Return the axis of an output that its declared shape says is the batch, for want of anything better."""
    if choice.symbol is not None and choice.symbol in dims:
        return dims.index(choice.symbol)
    leads = bool(dims) and (not isinstance(dims[0], int) or dims[0] == choice.number)
    return 0 if leads else None
