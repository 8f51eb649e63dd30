"""Rules of operators that work element by element, along given axes, or on labelled axes (products)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeAlias

from engine.batching.sizes import Size, symbol
from engine.batching.value import Call, Rows, Value, is_flat

Rule: TypeAlias = Callable[[Call], list[Value]]
Labels: TypeAlias = Sequence[Hashable]


def combine(
    call: Call, operands: Iterable[tuple[Value | None, Labels]], out: Labels, keeps: Labels | None = None, i: int = 0
) -> Value:
    """Return output ``i`` of an operator whose input and output axes have labels; axes with equal labels correspond.

    Labels missing in ``out`` are summed over or worked along. ``keeps``: labels along which the operator works row by
    row (default: all of the output). Raises UnprovenError if the operator combines samples.
    """
    present = [(value, tuple(labels)) for value, labels in operands if value is not None]
    if any(value.rank not in (None, len(labels)) for value, labels in present):
        raise call.unknown()
    meeting = _meeting(call, present, [label for label in out if keeps is None or label in keeps])
    name, sizes = call.node.output[i], [_size(label, present) for label in out]
    dims = tuple(symbol(f"{name}.{n}") if size is None else size for n, size in enumerate(sizes))
    if meeting is None:
        return Value(name, dims, flat=_flat(present, out))
    label, outer, inner = meeting
    rows = Rows(tuple(out).index(label), outer, inner)
    _check_shared(call, present, label, rows)
    return call.out(rows, dims, i)


def _meeting(call: Call, present: Sequence[tuple[Value, Labels]], kept: Labels) -> tuple[Hashable, Size, Size] | None:
    """Return the label of the sample axis and the sizes around the samples along it; ``None`` without samples.

    Raise UnprovenError if the label is not kept, or the samples of two operands have different labels.
    """
    batched = [(value, labels, labels[value.rows.axis]) for value, labels in present if value.rows is not None]
    for value, labels, label in batched:
        if label not in kept:
            raise call.mixes(value)
        if labels.count(label) > 1:
            raise call.pairs([value])
    found = {(label, value.rows.outer, value.rows.inner) for value, _, label in batched if value.rows is not None}
    if len(found) > 1:
        raise call.pairs([value for value, _, _ in batched])
    return found.pop() if found else None


def _check_shared(call: Call, present: Sequence[tuple[Value, Labels]], label: Hashable, rows: Rows) -> None:
    """Reject a shared operand whose elements differ between samples."""
    for value, labels in present:
        if value.rows is not None or label not in labels:
            continue
        if value.dims is None:
            raise call.unranked(value)
        axis = list(labels).index(label)
        size = value.dims[axis]
        if size == 1 or (size == call.fill(rows.size) and is_flat(value, axis)):
            continue
        raise call.by_position(value, depends=isinstance(size, int))


def _size(label: Hashable, present: Sequence[tuple[Value, Labels]]) -> Size | None:
    """Return the broadcast size of all axes with a label; ``None`` if it is unknown."""
    bearing = [(value.dims, list(labels).index(label)) for value, labels in present if label in labels]
    sizes = {dims[axis] for dims, axis in bearing if dims is not None}
    if not bearing or any(dims is None for dims, _ in bearing):
        return None
    wide = sizes - {1}
    fixed = [size for size in wide if isinstance(size, int)]
    wide = wide or {1}
    return fixed[0] if fixed else wide.pop() if len(wide) == 1 else None


def _flat(present: Sequence[tuple[Value, Labels]], out: Labels) -> frozenset[int]:
    """Return the axes of an output along which all operands are constant."""

    def changes(value: Value, labels: Labels, label: Hashable) -> bool:
        axis = list(labels).index(label) if label in labels else None
        return axis is not None and axis not in value.flat and (value.dims is None or value.dims[axis] != 1)

    return frozenset(n for n, label in enumerate(out) if not any(changes(v, labels, label) for v, labels in present))


def right_aligned(value: Value | None, rank: int) -> tuple[Value | None, Labels]:
    """Return an operand with axis labels for broadcasting to a rank."""
    own = 0 if value is None or value.rank is None else value.rank
    return value, range(rank - own, rank)


def broadcast(call: Call) -> list[Value]:
    """Rule of operators that work element by element, with broadcasting."""
    values = [value for value in call.inputs if value is not None]
    if len(values) == 1:
        return same(call)
    ranks = [value.rank for value in values if value.rank is not None]
    if len(ranks) < len(values):
        return [_beside_numbers(call, values)]
    rank = max(ranks)
    return [combine(call, [right_aligned(value, rank) for value in values], range(rank))]


def _beside_numbers(call: Call, values: Sequence[Value]) -> Value:
    """Return the result if the rank of one operand is unknown and all others are single numbers."""
    unranked = [value for value in values if value.rank is None]
    if len(unranked) > 1 or any(value.dims for value in values):
        raise call.unranked(unranked[0])
    return call.out(unranked[0].rows)


def same(call: Call) -> list[Value]:
    """Rule of elementwise operators with the shape of the first input."""
    value = call.need(0)
    return [Value(name, value.dims, value.rows, flat=value.flat) for name in call.node.output]


def dropout(call: Call) -> list[Value]:
    """Rule of Dropout: the identity in inference."""
    training = call.content(2) if call.get(2) is not None else [False]
    if training is None or any(training):
        raise call.fault("draws random numbers", depends=False)
    return same(call)


def quantize(call: Call) -> list[Value]:
    """Rule of QuantizeLinear and DequantizeLinear: one scale, or one per index of an axis."""
    value = call.need(0)
    if value.rows is None:
        raise call.unknown()
    for parameter in filter(None, (call.get(1), call.get(2))):
        if parameter.rows is not None or parameter.rank is None:
            raise call.unknown()
        if parameter.dims in ((), (1,)):
            continue
        if parameter.rank != 1:
            raise call.unknown()
        if value.rows.axis == call.axis(call.attribute("axis", 1)):
            raise call.fault(f"has a scale for each row of '{value.name}', by its place in the batch", depends=True)
    return [call.out(value.rows, value.dims)]


def along(default: int, old: int | None = None) -> Rule:
    """Return the rule of shape-preserving operators along ``axis`` (or, before opset 13, all axes from ``old`` on)."""

    def rule(call: Call) -> list[Value]:
        value = call.need(0)
        flatten = old is not None and call.tracer.opset < 13
        raw = call.attribute("axis", old if flatten else default)
        axis = call.axis(raw)
        if value.rows and (value.rows.axis >= axis if flatten else value.rows.axis == axis):
            raise call.mixes(value)
        return [call.out(value.rows, value.dims)]

    return rule


def cumulate(call: Call) -> list[Value]:
    """Rule of CumSum and CumProd: the axis is an input."""
    value = call.need(0)
    axes = call.integers("axis", 1)
    if value.rows and (not axes or call.axis(axes[0]) == value.rows.axis):
        raise call.mixes(value)
    return [call.out(value.rows, value.dims)]


def reduce(call: Call) -> list[Value]:
    """Rule of reductions over the axes in the attribute or input ``axes``, by default over all."""
    value = call.need(0)
    axes = call.integers("axes", 1)
    if not axes and call.attribute("noop_with_empty_axes", 0):
        return [call.out(value.rows, value.dims)]
    return [_reduced(call, value, [call.axis(axis) for axis in axes] if axes else None)]


def arg_reduce(call: Call) -> list[Value]:
    """Rule of ArgMax and ArgMin."""
    return [_reduced(call, call.need(0), [call.axis(call.attribute("axis", 0))])]


def _reduced(call: Call, value: Value, axes: list[int] | None) -> Value:
    rows, keep = value.rows, bool(call.attribute("keepdims", 1))
    if rows and (axes is None or rows.axis in axes):
        raise call.mixes(value)
    dropped = () if keep else axes or ()
    kept = rows and rows.without(dropped)
    if axes is None or value.dims is None:
        return call.out(kept)
    sizes = [1 if n in axes else size for n, size in enumerate(value.dims)]
    return call.out(kept, [size for n, size in enumerate(sizes) if n not in dropped])


def top_k(call: Call) -> list[Value]:
    """Rule of TopK: values and indices along an axis."""
    value = call.need(0)
    axis = call.axis(call.attribute("axis", -1))
    if value.has_samples_on(axis):
        raise call.mixes(value)
    return [call.out(value.rows, i=i, rank=value.rank) for i in range(len(call.node.output))]


def layer_norm(call: Call) -> list[Value]:
    """Rule of LayerNormalization and RMSNormalization: over ``axis`` and all following axes."""
    value, rank = call.need(0), call.rank()
    axis = call.axis(call.attribute("axis", -1))
    result = combine(
        call, [(value, range(rank)), *(right_aligned(one, rank) for one in call.inputs[1:])], range(rank), range(axis)
    )
    sizes = tuple(1 if n >= axis else size for n, size in enumerate(result.dims or ()))
    return [result, *(call.out(result.rows, sizes, i) for i in range(1, len(call.node.output)))]


def skip_layer_norm(call: Call) -> list[Value]:
    """Rule of com.microsoft's SkipLayerNormalization: a sum, normalized over the last axis."""
    rank = call.rank()
    operands = [right_aligned(value, rank) for value in call.inputs]
    if len(call.node.output) > 1 and any(call.node.output[1:3]):
        raise call.unknown()
    result = combine(call, operands, range(rank), range(rank - 1))
    return [result, *(call.out(result.rows, result.dims, i) for i in range(1, len(call.node.output)))]


def mean_variance(call: Call) -> list[Value]:
    """Rule of MeanVarianceNormalization, by default over batch, height and width."""
    value = call.need(0)
    axes = call.attribute("axes", [0, 2, 3])
    if value.rows and value.rows.axis in [call.axis(axis) for axis in axes]:
        raise call.mixes(value)
    return [call.out(value.rows, value.dims)]


def matrices(call: Call) -> list[Value]:
    """Rule of operators on the last two axes that keep the shape (Trilu)."""
    value, rank = call.need(0), call.rank()
    if value.rows and value.rows.axis >= rank - 2:
        raise call.mixes(value)
    return [call.out(value.rows, value.dims)]


def matmul(call: Call, second: int = 1) -> list[Value]:
    """Rule of MatMul; quantized forms have the second factor at another input."""
    a, b = call.need(0), call.need(second)
    left, right = _matrix(call.rank(0), "m"), _matrix(call.rank(second), "n", first="k")
    if len(left) == 1:
        left = ["k"]
    rank = max(len(left), len(right)) - 2
    out = [*range(-rank, 0), *(["m"] if len(left) > 1 else []), *(["n"] if len(right) > 1 else [])]
    return [combine(call, [(a, left), (b, right)], out)]


def _matrix(rank: int, free: str, first: str = "") -> list[Hashable]:
    """Return the labels of a factor's axes; leading ones are counted from the right, as in broadcasting."""
    if rank == 1:
        return ["k"]
    return [*range(-(rank - 2), 0), *(("k", free) if first else (free, "k"))]


def matmul_integer(call: Call) -> list[Value]:
    """Rule of MatMulInteger: zero points must be scalars."""
    for i in range(2, len(call.inputs)):
        _scalar(call, i)
    return matmul(call)


def qlinear_matmul(call: Call) -> list[Value]:
    """Rule of QLinearMatMul: scales and zero points must be scalars or constants of the second factor."""
    for i in (1, 2, 6, 7):
        _scalar(call, i)
    for i in (4, 5):
        if not call.need(i).shared:
            raise call.unknown()
    return matmul(call, 3)


def _scalar(call: Call, i: int) -> None:
    value = call.get(i)
    if value is not None and (not value.shared or value.dims not in ((), (1,))):
        raise call.unknown()


def gemm(call: Call) -> list[Value]:
    """Rule of Gemm."""
    left = ["k", "m"] if call.attribute("transA", 0) else ["m", "k"]
    right = ["n", "k"] if call.attribute("transB", 0) else ["k", "n"]
    bias = call.get(2)
    if bias is not None and bias.rank is None:
        raise call.unknown()
    added = None if bias is None else (bias, ["m", "n"][2 - (bias.rank or 0) :])
    return [combine(call, [(call.need(0), left), (call.need(1), right), *([added] if added else [])], ["m", "n"])]


def einsum(call: Call) -> list[Value]:
    """Rule of Einsum: labels are its letters; the axes of an ellipsis are counted from the right."""
    equation = call.attribute("equation", b"").decode().replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(call.inputs):
        raise call.unknown()
    labels = [_letters(term, call.rank(i)) for i, term in enumerate(terms)]
    widest = max((sum(isinstance(label, int) for label in one) for one in labels), default=0)
    if arrow:
        out = _letters(right, widest + len(right.replace("...", "")))
    else:
        every = [label for one in labels for label in one]
        out = [*range(-widest, 0), *sorted({str(x) for x in every if isinstance(x, str) and every.count(x) == 1})]
    return [combine(call, list(zip(call.inputs, labels, strict=True)), out)]


def _letters(term: str, rank: int) -> list[Hashable]:
    before, dots, after = term.partition("...")
    if not dots:
        return list(before)
    return [*before, *range(-(rank - len(before) - len(after)), 0), *after]
