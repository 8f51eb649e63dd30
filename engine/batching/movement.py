"""Rules of operators that move, pick, join or repeat elements."""

from __future__ import annotations

from collections.abc import Sequence

from engine.batching.elementwise import combine, right_aligned
from engine.batching.sizes import (
    BATCH,
    Number,
    Size,
    Term,
    bound,
    has_batch,
    only_batch,
    over,
    product,
    replaced,
    solved,
    symbol,
    times,
)
from engine.batching.value import Call, Rows, Sizes, Value

_END = 2**31 - 1
"""From this end on a slice goes to the end of its axis."""

# ------------------------------------------------------------------------------------------------------------- reshape


def reshape(call: Call) -> list[Value]:
    """Rule of Reshape."""
    value, target = call.need(0), call.content(1)
    if call.node.input[1:2] == []:
        target = call.attribute("shape")
    if target is None or any(isinstance(number, float) for number in target):
        raise call.fault("has a target shape that is not known beforehand", depends=False)
    sizes = [number for number in target if not isinstance(number, float)]
    if not call.attribute("allowzero", 0):
        copied = call.dims() if 0 in sizes else ()
        sizes = [copied[i] if size == 0 else size for i, size in enumerate(sizes)]
    return [regroup(call, value, sizes)]


def flatten(call: Call) -> list[Value]:
    """Rule of Flatten."""
    raw = call.attribute("axis", 1)
    if call.need(0).rank is None and call.need(0).rows == Rows(0) and raw == 1:
        return [call.out(Rows(0), rank=2)]
    dims, axis = call.dims(), call.axis(raw)
    return [regroup(call, call.need(0), [product(dims[:axis]), product(dims[axis:])])]


def regroup(call: Call, value: Value, target: list[Size]) -> Value:
    """Return a tensor with its elements, in their order, in another shape; one size of it may be -1."""
    rows = value.rows
    if value.dims is None or rows is None:
        if rows is None:
            return call.out(None, _opened(call, _fill(target, product(value.dims or ()) if value.dims else None)))
        if rows == Rows(0) and target[:1] == [BATCH]:
            return call.out(rows, _opened(call, _fill(target, None)))
        raise call.fault(f"reads '{value.name}', whose rank is not known", depends=False)
    before = times(product(value.dims[: rows.axis]), rows.outer)
    after = times(rows.inner, product(value.dims[rows.axis + 1 :]))
    before, after, target = _equated(before, after, target)
    filled = _fill(target, times(times(before, BATCH), after))
    found = _find(before, BATCH, after, filled, rows.axis)
    number = call.tracer.number
    if found is None and number is not None:
        before, after = bound(before, number), bound(after, number)
        filled = _fill([bound(size, number) for size in target], times(times(before, number), after))
        found = _find(before, number, after, filled, rows.axis)
    if found is None:
        known = all(only_batch(size) for size in (before, after, *filled) if size is not None)
        raise call.fault(f"reshapes '{value.name}' across the batch axis", depends=known)
    return call.out(found, _opened(call, filled))


def _equated(before: Size, after: Size, target: list[Size]) -> tuple[Size, Size, list[Size]]:
    """Return the same sizes with one symbol less where only that makes both sides have as many elements.

    A tracing exporter may have written the number that a dynamic size had; the model then runs with that alone.
    """
    if -1 in target:
        return before, after, target
    found = solved(times(times(before, BATCH), after), product(target))
    if found is None:
        return before, after, target
    return replaced(before, *found), replaced(after, *found), [replaced(size, *found) for size in target]


def _fill(target: Sequence[Size], total: Size | None) -> list[Size | None]:
    """Return a target shape with -1 replaced by what is left; ``None`` where that cannot be told."""
    rest = None if total is None else over(total, product(size for size in target if size != -1))
    return [rest if size == -1 else size for size in target]


def _opened(call: Call, sizes: Sequence[Size | None]) -> list[Size]:
    return [symbol(f"{call.node.output[0]}.{n}") if size is None else size for n, size in enumerate(sizes)]


def _find(before: Size, batch: Size, after: Size, target: Sequence[Size | None], prefer: int) -> Rows | None:
    """Return where the samples are after a reshape: which axis takes in the whole of the batch, and what beside it.

    In row-major order the elements are ``before`` times ``batch`` times ``after``. An axis holds the samples where the
    sizes before it divide ``before`` and its own is the rest of that, times ``batch``, times a divisor of ``after``.
    """
    found: list[Rows] = []
    for axis, size in enumerate(target):
        heads, tails = target[:axis], target[axis + 1 :]
        outer = over(before, product(s for s in heads if s is not None)) if None not in heads else None
        inner = over(after, product(s for s in tails if s is not None)) if None not in tails else None
        if size is None or (outer is None and None not in heads):
            continue
        if outer is not None:
            rest = over(size, times(outer, batch))
            if rest is not None and (inner is None or inner == rest):
                found.append(Rows(axis, outer, rest))
        elif inner is not None:
            rest = over(size, times(inner, batch))
            if rest is not None:
                found.append(Rows(axis, rest, inner))
    return min(found, key=lambda rows: (not rows.plain, rows.axis != prefer, rows.axis), default=None)


# -------------------------------------------------------------------------------------------------------- single axes


def transpose(call: Call) -> list[Value]:
    """Rule of Transpose."""
    value = call.need(0)
    order = call.attribute("perm") or list(reversed(range(call.rank())))
    sizes = None if value.dims is None else [value.dims[axis] for axis in order]
    rows = value.rows and value.rows.at(order.index(value.rows.axis))
    result = call.out(rows, sizes)
    return [Value(result.name, result.dims, rows, flat=frozenset(n for n, a in enumerate(order) if a in value.flat))]


def squeeze(call: Call) -> list[Value]:
    """Rule of Squeeze."""
    value, raw = call.need(0), call.integers("axes", 1)
    if raw is None:
        sizes = [call.fill(size) for size in call.dims()]
        if any(not isinstance(size, int) for size in sizes):
            raise call.fault("drops whichever axes have size 1", depends=False)
        raw = [axis for axis, size in enumerate(sizes) if size == 1]
    axes = [call.axis(axis) for axis in raw]
    if value.rows and value.rows.axis in axes:
        raise call.fault(f"drops the batch axis of '{value.name}'", depends=True)
    rows = value.rows and value.rows.at(value.rows.axis - sum(axis < value.rows.axis for axis in axes))
    return [
        call.out(rows, None if value.dims is None else [s for axis, s in enumerate(value.dims) if axis not in axes])
    ]


def unsqueeze(call: Call) -> list[Value]:
    """Rule of Unsqueeze: axes count in the result."""
    value, raw = call.need(0), call.integers("axes", 1) or []
    if value.dims is None and (any(axis < 0 for axis in raw) or value.rows is None):
        raise call.fault(f"reads '{value.name}', whose rank is not known", depends=False)
    new = {call.axis(axis, extra=len(raw)) for axis in raw}
    if value.dims is None:
        assert value.rows is not None  # noqa: S101 - seen above
        return [call.out(value.rows.at(_kept(new, value.rows.axis + 1 + len(new))[value.rows.axis]))]
    old = _kept(new, len(value.dims) + len(new))
    sizes: list[Size] = [1] * (len(value.dims) + len(new))
    for axis, place in enumerate(old):
        sizes[place] = value.dims[axis]
    result = call.out(value.rows and value.rows.at(old[value.rows.axis]), sizes)
    return [Value(result.name, result.dims, result.rows, flat=frozenset(old[axis] for axis in value.flat))]


def _kept(new: set[int], rank: int) -> list[int]:
    return [axis for axis in range(rank) if axis not in new]


def slice_(call: Call) -> list[Value]:
    """Rule of Slice: the batch axis may only be taken whole and in order."""
    value = call.need(0)
    starts, ends, steps = _numbers(call, "starts", 1), _numbers(call, "ends", 2), _numbers(call, "steps", 4)
    axes = call.integers("axes", 3)
    count: Size | None = next((len(n) for n in (starts, ends, axes) if n is not None), None)
    count = call.dims(1)[0] if count is None else count
    if not isinstance(count, int):
        raise call.unknown()
    none: list[Number | None] = [None] * count
    if steps is None and call.get(4) is None:
        steps = [1] * count
    cuts = list(zip(starts or none, ends or none, steps or none, strict=True))
    sizes = None if value.dims is None else list(value.dims)
    for cut, raw in zip(cuts, axes if axes is not None else range(count), strict=True):
        axis = call.axis(raw)
        if value.rows and value.rows.axis == axis:
            _check_whole(call, value, value.rows, cut)
        elif any(number is not None and has_batch(number) for number in cut):
            raise call.fault("takes as many elements as there are samples", depends=True)
        if sizes is not None:
            size = _sliced(sizes[axis], *cut)
            sizes[axis] = symbol(f"{call.node.output[0]}.{axis}") if size is None else size
    if value.sized or any(
        given is not None and given.sized and call.content(i) is None for i, given in enumerate(call.inputs)
    ):
        raise call.unknown()
    return [call.out(value.rows, sizes)]


def _check_whole(call: Call, value: Value, rows: Rows, cut: tuple[Number | None, ...]) -> None:
    start, end, step = cut
    whole = end == rows.size or (isinstance(end, int) and end >= _END)
    if isinstance(end, int) and not whole:
        full = call.fill(rows.size)
        whole = isinstance(full, int) and end >= full
    if start != 0 or step != 1 or not whole:
        raise call.fault(f"takes a part of the batch axis of '{value.name}'", depends=None not in cut)


def _numbers(call: Call, name: str, i: int) -> list[Number] | None:
    given = call.attribute(name)
    return call.content(i) if given is None else list(given)


def _sliced(size: Size, start: Number | None, end: Number | None, step: Number | None) -> Size | None:
    """Return the size of a slice; ``None`` where it cannot be told."""
    if start == 0 and step == 1 and (end == size or (isinstance(end, int) and end >= _END)):
        return size
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int) and isinstance(step, int) and step:
        return len(range(*slice(start, end, step).indices(size)))
    return None


def split(call: Call) -> list[Value]:
    """Rule of Split: along the batch axis only where whole batches lie one after another."""
    value, axis = call.need(0), call.axis(call.attribute("axis", 0))
    names = call.node.output
    sizes = _numbers(call, "split", 1)
    if value.rows and value.rows.axis == axis:
        return _split_batches(call, value, value.rows, sizes)
    results = []
    for i in range(len(names)):
        dims = None
        if value.dims is not None:
            part = sizes[i] if sizes else over(value.dims[axis], len(names))
            part = None if isinstance(part, float) else part
            dims = list(value.dims)
            dims[axis] = part if part is not None else symbol(f"{names[i]}.{axis}")
        results.append(call.out(value.rows, dims, i))
    return results


def _split_batches(call: Call, value: Value, rows: Rows, sizes: Sequence[Number] | None) -> list[Value]:
    names, block = call.node.output, times(BATCH, rows.inner)
    if sizes is None and call.get(1) is None:
        share = over(rows.outer, len(names))
        parts: list[Size | None] = [share] * len(names)
    else:
        parts = [None if isinstance(size, float) else over(size, block) for size in sizes or [0.5]]
    if len(parts) != len(names) or any(part is None for part in parts):
        raise call.fault(f"splits the batch axis of '{value.name}'", depends=True)
    return [
        call.out(Rows(rows.axis, part, rows.inner), value.dims, i) for i, part in enumerate(parts) if part is not None
    ]


def concat(call: Call) -> list[Value]:
    """Rule of Concat: along the batch axis it lays whole batches one after another."""
    values = [value for value in call.inputs if value is not None]
    rank = next((value.rank for value in values if value.rank is not None), None)
    if rank is None or any(value.rank not in (None, rank) for value in values):
        raise call.unknown()
    axis = call.attribute("axis", 1)
    axis += rank if axis < 0 else 0
    batched = [value for value in values if value.rows]
    if batched and all(value.rows and value.rows.axis == axis for value in batched):
        return [_join_batches(call, values, axis)]
    if any(value.rows and value.rows.axis == axis for value in batched):
        raise call.pairs(batched)
    labels = [(value, [f"part {n}" if i == axis else i for i in range(rank)]) for n, value in enumerate(values)]
    result = combine(call, labels, ["part 0" if i == axis else i for i in range(rank)])
    if result.dims is None:
        return [result]
    total = _total([value.dims[axis] if value.dims else None for value in values])
    sizes = list(result.dims)
    sizes[axis] = total if total is not None else symbol(f"{result.name}.{axis}")
    return [Value(result.name, tuple(sizes), result.rows, flat=result.flat - {axis})]


def _total(sizes: Sequence[Size | None]) -> Size | None:
    return sum(s for s in sizes if isinstance(s, int)) if all(isinstance(s, int) for s in sizes) else None


def _join_batches(call: Call, values: Sequence[Value], axis: int) -> Value:
    rows = [value.rows for value in values]
    inner = rows[0].inner if rows[0] else 1
    outer = _total([None if one is None or one.inner != inner else one.outer for one in rows])
    if outer is None:
        raise call.fault(f"joins '{values[0].name}' with other rows along the batch axis", depends=True)
    return call.out(Rows(axis, outer, inner), values[0].dims)


# ---------------------------------------------------------------------------------------------------- repeat and extend


def pad(call: Call) -> list[Value]:
    """Rule of Pad: nothing may be added to the batch axis or taken from it."""
    value = call.need(0)
    if value.rows is None:
        return [call.out(None)]
    pads = _numbers(call, "pads", 1) or call.attribute("paddings")
    axes = call.integers("axes", 3)
    places = [call.axis(axis) for axis in axes] if axes is not None else list(range(call.rank()))
    if pads is None or len(pads) != 2 * len(places):
        raise call.fault("has pads that are not known beforehand", depends=False)
    if value.rows.axis in places:
        n = places.index(value.rows.axis)
        if pads[n] != 0 or pads[n + len(places)] != 0:
            raise call.fault(f"pads the batch axis of '{value.name}'", depends=True)
    return [call.out(value.rows, rank=value.rank)]


def tile(call: Call) -> list[Value]:
    """Rule of Tile: repeating the batch lays whole batches one after another."""
    value, repeats = call.need(0), call.content(1)
    if repeats is None or any(isinstance(number, float) for number in repeats):
        raise call.fault("has repeats that are not known beforehand", depends=False)
    counts = [number for number in repeats if not isinstance(number, float)]
    dims = call.dims()
    sizes = [times(size, count) for size, count in zip(dims, counts, strict=True)]
    if value.rows:
        rows = Rows(value.rows.axis, times(value.rows.outer, counts[value.rows.axis]), value.rows.inner)
        if any(has_batch(count) for count in counts):
            raise call.pairs([value])
        return [call.out(rows, sizes)]
    return [_spread(call, value, sizes, {axis: dims[axis] for axis, count in enumerate(counts) if has_batch(count)})]


def expand(call: Call) -> list[Value]:
    """Rule of Expand."""
    value, target = call.need(0), call.content(1)
    if target is None or any(isinstance(number, float) for number in target):
        raise call.fault("has a target shape that is not known beforehand", depends=False)
    wanted: Sizes = tuple(number for number in target if not isinstance(number, float))
    rank = max(call.rank(), len(wanted))
    shape = Value("its target shape", wanted)
    own = right_aligned(value, rank)
    if value.rows is None:
        have = (*[1] * (rank - call.rank()), *call.dims())
        want = (*[1] * (rank - len(wanted)), *wanted)
        sizes = [w if h == 1 else h for h, w in zip(have, want, strict=True)]
        new = {axis: have[axis] for axis, size in enumerate(want) if has_batch(size)}
        flat = frozenset(axis for axis in range(rank) if have[axis] == 1)
        result = _spread(call, value, sizes, new)
        return [Value(result.name, result.dims, result.rows, flat=flat | result.flat)]
    axis = value.rows.axis + rank - call.rank()
    want = (*[1] * (rank - len(wanted)), *wanted)
    if any(has_batch(size) for n, size in enumerate(want) if n != axis):
        raise call.pairs([value])
    if want[axis] != 1 and call.fill(want[axis]) != call.fill(value.rows.size):
        raise call.fault(f"spreads the batch axis of '{value.name}'", depends=False)
    shape = Value("its target shape", tuple(1 if n == axis else size for n, size in enumerate(want)))
    return [combine(call, [own, (shape, range(rank))], range(rank))]


def _spread(call: Call, value: Value, sizes: Sequence[Size], new: dict[int, Size]) -> Value:
    """Return a shared tensor of which every sample gets the whole, along the axes whose size now holds the batch."""
    if not new:
        flat = frozenset(axis for axis in range(len(sizes)) if sizes[axis] == 1)
        return Value(call.node.output[0], tuple(sizes), flat=flat)
    if len(new) > 1:
        raise call.fault("makes a shape of the number of samples twice", depends=True)
    ((axis, have),) = new.items()
    inner = over(sizes[axis], BATCH)
    if inner is None or has_batch(inner) or (call.node.op_type == "Expand" and have != 1):
        raise call.fault("makes rows from the number of samples", depends=True)
    return call.out(Rows(axis, 1, inner), sizes)


def range_(call: Call) -> list[Value]:
    """Rule of Range where it has nothing to do with the samples."""
    start, limit, step = (call.content(i) for i in range(3))
    if any(value is not None and not value.shared for value in call.inputs):
        raise call.fault("counts up to the number of samples", depends=True)
    size = limit[0] if limit and start == [0] and step == [1] else None
    return [call.out(None, [size] if isinstance(size, (int, Term)) else None, rank=1)]


def constant_of_shape(call: Call) -> list[Value]:
    """Rule of ConstantOfShape."""
    target = call.content(0)
    name = call.node.output[0]
    if target is None or any(isinstance(number, float) for number in target):
        if call.need(0).sized:
            raise call.fault("has a shape that is not known beforehand", depends=False)
        return [call.out(None)]
    sizes = [number for number in target if not isinstance(number, float)]
    new: dict[int, Size] = {axis: 1 for axis, size in enumerate(sizes) if has_batch(size)}
    result = _spread(call, Value(name), sizes, new)
    return [Value(name, result.dims, result.rows, flat=frozenset(range(len(sizes))) if not new else frozenset())]
