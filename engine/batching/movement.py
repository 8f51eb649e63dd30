"""Rules of operators that move, select, join or repeat elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

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
from engine.batching.value import Call, Rows, Value

Cut: TypeAlias = tuple[Number | None, Number | None, Number | None]
"""Start, end and step of a slice, ``None`` if unknown."""

_END = 10**9
"""Minimum end of a slice that means the end of the axis: exporters write 2^63 - 1, 2^31 - 1 or 10^9. An axis of 10^9
elements, 4 GB in float32, is larger than the tensors of any call that is split."""


def reshape(call: Call) -> list[Value]:
    """Rule of Reshape."""
    value, target = call.need(0), call.content(1)
    if call.node.input[1:2] == []:
        target = call.attribute("shape")
    sizes = _constant_sizes(call, target, "a target shape")
    if not call.attribute("allowzero", 0):
        copied = call.dims() if 0 in sizes else ()
        sizes = [copied[i] if size == 0 else size for i, size in enumerate(sizes)]
    return [regroup(call, value, sizes)]


def _constant_sizes(call: Call, numbers: Sequence[Number] | None, what: str) -> list[Size]:
    """Return constant sizes of a node; raise UnprovenError with the text ``what`` for others."""
    sizes = [] if numbers is None else [number for number in numbers if not isinstance(number, float)]
    if numbers is None or len(sizes) < len(numbers):
        raise call.fault(f"has {what} not known in advance", depends=False)
    return sizes


def flatten(call: Call) -> list[Value]:
    """Rule of Flatten."""
    raw = call.attribute("axis", 1)
    if call.need(0).rank is None and call.need(0).rows == Rows(0) and raw == 1:
        return [call.out(Rows(0), rank=2)]
    dims, axis = call.dims(), call.axis(raw)
    return [regroup(call, call.need(0), [product(dims[:axis]), product(dims[axis:])])]


def regroup(call: Call, value: Value, target: list[Size]) -> Value:
    """Return a tensor with its elements in the same order in another shape, of which one size may be -1."""
    rows = value.rows
    if rows is None:
        return call.out(None, _opened(call, _fill(target, product(value.dims) if value.dims else None)))
    if value.dims is None:
        if rows == Rows(0) and target[:1] == [BATCH]:
            return call.out(rows, _opened(call, _fill(target, None)))
        raise call.unranked(value)
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
    """Replace one symbol if the element counts then agree: a tracing exporter may fix a dynamic size."""
    if -1 in target:
        return before, after, target
    found = solved(times(times(before, BATCH), after), product(target))
    if found is None:
        return before, after, target
    return replaced(before, *found), replaced(after, *found), [replaced(size, *found) for size in target]


def _fill(target: Sequence[Size], total: Size | None) -> list[Size | None]:
    """Return a target shape with -1 replaced by the remaining size; ``None`` if unknown."""
    rest = None if total is None else over(total, product(size for size in target if size != -1))
    return [rest if size == -1 else size for size in target]


def _opened(call: Call, sizes: Sequence[Size | None]) -> list[Size]:
    return [symbol(f"{call.node.output[0]}.{n}") if size is None else size for n, size in enumerate(sizes)]


def _find(before: Size, batch: Size, after: Size, target: Sequence[Size | None], prefer: int) -> Rows | None:
    """Return the position of the samples after a reshape: the axis that contains the batch, and its other factors.

    In row-major order there are ``before`` x ``batch`` x ``after`` elements. An axis contains the samples if the sizes
    before it divide ``before``, and its size is the quotient times ``batch`` times a divisor of ``after``.
    """
    found = [_held(before, batch, after, target, axis) for axis in range(len(target))]
    return min(
        (rows for rows in found if rows is not None),
        key=lambda rows: (not rows.plain, rows.axis != prefer, rows.axis),
        default=None,
    )


def _held(before: Size, batch: Size, after: Size, target: Sequence[Size | None], axis: int) -> Rows | None:
    """Return the rows if an axis of the result of a reshape contains the samples; ``None`` if not, or if unknown."""
    size, heads, tails = target[axis], target[:axis], target[axis + 1 :]
    outer, inner = _divided(before, heads), _divided(after, tails)
    if size is None or (outer is None and None not in heads):
        return None
    if outer is not None:
        rest = over(size, times(outer, batch))
        return Rows(axis, outer, rest) if rest is not None and inner in (None, rest) else None
    rest = None if inner is None else over(size, times(inner, batch))
    return None if inner is None or rest is None else Rows(axis, rest, inner)


def _divided(total: Size, sizes: Sequence[Size | None]) -> Size | None:
    """Return a number of elements divided by these sizes; ``None`` if one of them is unknown."""
    known = [size for size in sizes if size is not None]
    return over(total, product(known)) if len(known) == len(sizes) else None


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
    axes = [call.axis(axis) for axis in (_ones(call) if raw is None else raw)]
    if value.has_samples_on(*axes):
        raise call.fault(f"drops the batch axis of '{value.name}'", depends=True)
    sizes = None if value.dims is None else [size for axis, size in enumerate(value.dims) if axis not in axes]
    return [call.out(value.rows and value.rows.without(axes), sizes)]


def _ones(call: Call) -> list[int]:
    """Return the axes of size 1, if all sizes are known."""
    sizes = [call.fill(size) for size in call.dims()]
    if any(not isinstance(size, int) for size in sizes):
        raise call.fault("drops all axes of size 1", depends=False)
    return [axis for axis, size in enumerate(sizes) if size == 1]


def unsqueeze(call: Call) -> list[Value]:
    """Rule of Unsqueeze: axes refer to the result."""
    value, raw = call.need(0), call.integers("axes", 1) or []
    if value.dims is None:
        if value.rows is None or any(axis < 0 for axis in raw):
            raise call.unranked(value)
        return [call.out(value.rows.at(_kept(set(raw), value.rows.axis + 1 + len(set(raw)))[value.rows.axis]))]
    new = {call.axis(axis, extra=len(raw)) for axis in raw}
    old = _kept(new, len(value.dims) + len(new))
    sizes: list[Size] = [1] * (len(value.dims) + len(new))
    for axis, place in enumerate(old):
        sizes[place] = value.dims[axis]
    result = call.out(value.rows and value.rows.at(old[value.rows.axis]), sizes)
    return [Value(result.name, result.dims, result.rows, flat=frozenset(old[axis] for axis in value.flat))]


def _kept(new: set[int], rank: int) -> list[int]:
    return [axis for axis in range(rank) if axis not in new]


def slice_(call: Call) -> list[Value]:
    """Rule of Slice: the batch axis must be kept whole and in order."""
    value = call.need(0)
    sizes = None if value.dims is None else list(value.dims)
    for cut, raw in _cuts(call):
        axis = call.axis(raw)
        _check_cut(call, value, axis, cut)
        if sizes is not None:
            size = _sliced(sizes[axis], *cut)
            sizes[axis] = symbol(f"{call.node.output[0]}.{axis}") if size is None else size
    unclear = (given.sized and call.content(i) is None for i, given in enumerate(call.inputs) if given is not None)
    if value.sized or any(unclear):
        raise call.unknown()
    return [call.out(value.rows, sizes)]


def _cuts(call: Call) -> Iterator[tuple[Cut, int]]:
    """Yield start, end and step of each cut of a Slice (``None`` if unknown) with its axis as written."""
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
    yield from zip(cuts, range(count) if axes is None else axes, strict=True)


def _check_cut(call: Call, value: Value, axis: int, cut: Cut) -> None:
    """Reject a cut of the samples, and a cut of another axis to the number of samples."""
    if value.rows and value.rows.axis == axis:
        (start, end, step), rows = cut, value.rows
        whole = _to_the_end(rows.size, end) or (isinstance(end, int) and _to_the_end(call.fill(rows.size), end))
        if start != 0 or step != 1 or not whole:
            raise call.fault(f"takes a part of the batch axis of '{value.name}'", depends=None not in cut)
    elif any(number is not None and has_batch(number) for number in cut):
        raise call.fault("takes as many elements as there are samples", depends=True)


def _numbers(call: Call, name: str, i: int) -> list[Number] | None:
    given = call.attribute(name)
    return call.content(i) if given is None else list(given)


def _sliced(size: Size, start: Number | None, end: Number | None, step: Number | None) -> Size | None:
    """Return the size of a slice; ``None`` if unknown."""
    if start == 0 and step == 1 and _to_the_end(size, end):
        return size
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int) and isinstance(step, int) and step:
        return len(range(*slice(start, end, step).indices(size)))
    return None


def _to_the_end(size: Size, end: Number | None) -> bool:
    """Return whether a slice with this end certainly reaches the end of an axis of this size."""
    return end == size or (isinstance(end, int) and (end >= _END or (isinstance(size, int) and end >= size)))


def split(call: Call) -> list[Value]:
    """Rule of Split: along the batch axis only if it contains several whole batches."""
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
    """Rule of Concat: along the batch axis it concatenates whole batches."""
    values = [value for value in call.inputs if value is not None]
    ranks = {value.rank for value in values if value.rank is not None}
    if len(ranks) != 1:
        raise call.unknown()
    rank = ranks.pop()
    axis = call.attribute("axis", 1)
    axis += rank if axis < 0 else 0
    batched = [value for value in values if value.rows]
    if not any(value.has_samples_on(axis) for value in batched):
        return [_join_parts(call, values, axis, rank)]
    if not all(value.has_samples_on(axis) for value in batched):
        raise call.pairs(batched)
    return [_join_batches(call, values, axis)]


def _join_parts(call: Call, values: Sequence[Value], axis: int, rank: int) -> Value:
    """Return tensors concatenated along another axis than the samples', where each has a label of its own."""
    labels = [(value, [f"part {n}" if i == axis else i for i in range(rank)]) for n, value in enumerate(values)]
    result = combine(call, labels, ["part 0" if i == axis else i for i in range(rank)])
    if result.dims is None:
        return result
    total = _total([value.dims[axis] if value.dims else None for value in values])
    sizes = list(result.dims)
    sizes[axis] = total if total is not None else symbol(f"{result.name}.{axis}")
    return Value(result.name, tuple(sizes), result.rows, flat=result.flat - {axis})


def _total(sizes: Sequence[Size | None]) -> Size | None:
    return sum(s for s in sizes if isinstance(s, int)) if all(isinstance(s, int) for s in sizes) else None


def _join_batches(call: Call, values: Sequence[Value], axis: int) -> Value:
    rows = [value.rows for value in values]
    inner = rows[0].inner if rows[0] else 1
    outer = _total([None if one is None or one.inner != inner else one.outer for one in rows])
    if outer is None:
        raise call.fault(f"joins '{values[0].name}' with other rows along the batch axis", depends=True)
    return call.out(Rows(axis, outer, inner), values[0].dims)


def pad(call: Call) -> list[Value]:
    """Rule of Pad: the batch axis must not be padded or cropped."""
    value = call.need(0)
    if value.rows is None:
        return [call.out(None)]
    pads = _numbers(call, "pads", 1) or call.attribute("paddings")
    axes = call.integers("axes", 3)
    places = [call.axis(axis) for axis in axes] if axes is not None else list(range(call.rank()))
    if pads is None or len(pads) != 2 * len(places):
        raise call.fault("has pads that are not constant", depends=False)
    if value.rows.axis in places:
        n = places.index(value.rows.axis)
        if pads[n] != 0 or pads[n + len(places)] != 0:
            raise call.fault(f"pads the batch axis of '{value.name}'", depends=True)
    return [call.out(value.rows, rank=value.rank)]


def tile(call: Call) -> list[Value]:
    """Rule of Tile: repeating the batch concatenates whole batches."""
    value, counts = call.need(0), _constant_sizes(call, call.content(1), "repeats")
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
    value, wanted = call.need(0), _constant_sizes(call, call.content(1), "a target shape")
    rank = max(call.rank(), len(wanted))
    want = [*[1] * (rank - len(wanted)), *wanted]
    have = [*[1] * (rank - call.rank()), *call.dims()]
    return [
        _expanded_shared(call, value, have, want) if value.rows is None else _expanded(call, value, value.rows, want)
    ]


def _expanded_shared(call: Call, value: Value, have: Sequence[Size], want: Sequence[Size]) -> Value:
    """Return a shared tensor of sizes ``have``, expanded to sizes ``want`` of the same rank."""
    sizes = [w if h == 1 else h for h, w in zip(have, want, strict=True)]
    new = {axis: have[axis] for axis, size in enumerate(want) if has_batch(size)}
    flat = frozenset(axis for axis, size in enumerate(have) if size == 1)
    result = _spread(call, value, sizes, new)
    return Value(result.name, result.dims, result.rows, flat=flat | result.flat)


def _expanded(call: Call, value: Value, rows: Rows, want: Sequence[Size]) -> Value:
    """Return samples, expanded to these sizes along other axes than the batch."""
    rank = len(want)
    axis = rows.axis + rank - call.rank()
    if any(has_batch(size) for n, size in enumerate(want) if n != axis):
        raise call.pairs([value])
    if want[axis] != 1 and call.fill(want[axis]) != call.fill(rows.size):
        raise call.fault(f"spreads the batch axis of '{value.name}'", depends=False)
    shape = Value("its target shape", tuple(1 if n == axis else size for n, size in enumerate(want)))
    return combine(call, [right_aligned(value, rank), (shape, range(rank))], range(rank))


def _spread(call: Call, value: Value, sizes: Sequence[Size], new: dict[int, Size]) -> Value:
    """Return a shared tensor that is copied for every sample, along the axes whose new size contains the batch."""
    if not new:
        flat = frozenset(axis for axis in range(len(sizes)) if sizes[axis] == 1)
        return Value(call.node.output[0], tuple(sizes), flat=flat)
    if len(new) > 1:
        raise call.fault("creates a shape with the number of samples twice", depends=True)
    ((axis, have),) = new.items()
    inner = over(sizes[axis], BATCH)
    if inner is None or has_batch(inner) or (call.node.op_type == "Expand" and have != 1):
        raise call.fault("creates rows from the number of samples", depends=True)
    return call.out(Rows(axis, 1, inner), sizes)


def range_(call: Call) -> list[Value]:
    """Rule of Range that does not depend on the samples."""
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
            raise call.fault("has a shape that is not constant", depends=False)
        return [call.out(None)]
    sizes = [number for number in target if not isinstance(number, float)]
    new: dict[int, Size] = {axis: 1 for axis, size in enumerate(sizes) if has_batch(size)}
    result = _spread(call, Value(name), sizes, new)
    return [Value(name, result.dims, result.rows, flat=frozenset(range(len(sizes))) if not new else frozenset())]
