"""Rules of operators that select or write elements by index."""

from __future__ import annotations

from engine.batching.elementwise import combine
from engine.batching.value import Call, Value, is_flat


def gather(call: Call) -> list[Value]:
    """Rule of Gather."""
    data, picks = call.need(0), call.need(1)
    axis, width = call.axis(call.attribute("axis", 0)), call.rank(1)
    if data.rows and data.rows.axis == axis:
        raise call.fault(f"picks rows of the batch axis of '{data.name}'", depends=True)
    if data.rows and picks.rows:
        raise call.pairs([data, picks])
    rows = picks.rows and picks.rows.at(axis + picks.rows.axis)
    if data.rows:
        rows = data.rows.at(data.rows.axis + (width - 1 if data.rows.axis > axis else 0))
    sizes = None if data.dims is None else [*data.dims[:axis], *call.dims(1), *data.dims[axis + 1 :]]
    return [call.out(rows, sizes)]


def gather_elements(call: Call) -> list[Value]:
    """Rule of GatherElements: data and indices correspond along all axes but one."""
    data, picks, rank = call.need(0), call.need(1), call.rank(1)
    axis = call.axis(call.attribute("axis", 0), 1)
    if data.rows and data.rows.axis == axis:
        raise call.fault(f"picks rows of the batch axis of '{data.name}'", depends=True)
    if data.rows is None and picks.rows and picks.rows.axis == axis:
        return [call.out(picks.rows, picks.dims)]  # all rows of indices read the same data
    if data.rows != picks.rows or call.rank() != rank:
        return [_narrower(call, data, picks)]
    return [call.out(picks.rows, picks.dims)]


def _narrower(call: Call, data: Value, picks: Value) -> Value:
    """Return the result if only one of data and indices is per sample, and the other is the same for each."""
    rows, other = (data.rows, picks) if data.rows else (picks.rows, data)
    if rows is None or (data.rows and picks.rows):
        raise call.pairs([data, picks])
    fits = other.dims is not None and other.dims[rows.axis] == call.fill(rows.size)
    if not fits or not is_flat(other, rows.axis):
        raise call.by_position(other, depends=True)
    return call.out(rows, picks.dims)


def gather_nd(call: Call) -> list[Value]:
    """Rule of GatherND."""
    data, picks, lead = call.need(0), call.need(1), call.attribute("batch_dims", 0)
    last, depth = call.rank(1) - 1, call.dims(1)[-1]
    if data.rows and picks.rows:
        if data.rows != picks.rows or data.rows.axis >= lead:
            raise call.pairs([data, picks])
        return [call.out(data.rows)]
    if picks.rows:
        if picks.rows.axis == last or picks.rows.axis < lead:
            raise call.unknown()
        return [call.out(picks.rows)]
    if data.rows is None or not isinstance(depth, int):
        raise call.unknown()
    if data.rows.axis < lead + depth:
        raise call.fault(f"picks rows of the batch axis of '{data.name}'", depends=data.rows.axis >= lead)
    return [call.out(data.rows.at(data.rows.axis - lead - depth + last))]


def scatter_elements(call: Call) -> list[Value]:
    """Rule of ScatterElements: data, indices and updates correspond along the batch axis."""
    data, picks, updates = call.need(0), call.need(1), call.need(2)
    axis = call.axis(call.attribute("axis", 0), 0)
    if data.rows and data.rows.axis == axis:
        raise call.mixes(data)
    if data.rows is None or not (data.rows == picks.rows == updates.rows):
        raise call.unknown()
    return [call.out(data.rows, data.dims)]


def scatter_nd(call: Call) -> list[Value]:
    """Rule of ScatterND: shared indices write to axes before the batch axis."""
    data, picks, updates = call.need(0), call.need(1), call.need(2)
    depth = call.dims(1)[-1]
    if data.rows is None or picks.rows or not isinstance(depth, int):
        raise call.unknown()
    if data.rows.axis < depth:
        raise call.fault(f"writes into single rows of the batch axis of '{data.name}'", depends=True)
    if updates.rows != data.rows.at(data.rows.axis - depth + call.rank(1) - 1):
        raise call.unknown()
    return [call.out(data.rows, data.dims)]


def one_hot(call: Call) -> list[Value]:
    """Rule of OneHot: a new axis."""
    value, rank = call.need(0), call.rank()
    axis = call.attribute("axis", -1)
    axis += rank + 1 if axis < 0 else 0
    if value.rows is None or not call.need(1).shared or not call.need(2).shared:
        raise call.unknown()
    return [call.out(value.rows.at(value.rows.axis + (axis <= value.rows.axis)), rank=rank + 1)]


def reverse_sequence(call: Call) -> list[Value]:
    """Rule of ReverseSequence."""
    value, lengths = call.need(0), call.need(1)
    along, over_ = call.attribute("time_axis", 0), call.attribute("batch_axis", 1)
    if value.rows and value.rows.axis == along:
        raise call.mixes(value)
    rank = call.rank()
    keeps = [axis for axis in range(rank) if axis != along]
    return [combine(call, [(value, range(rank)), (lengths, [over_])], range(rank), keeps)]
