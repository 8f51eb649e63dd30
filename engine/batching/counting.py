"""Indices that contain sample numbers: ``x[arange(batch), picks]`` selects elements of each sample's own row.

Exporters write such indices as positions in a table with the rows of all samples. Tensors of such positions have a
:class:`Count`, and only the operators here may read them; all others would make results depend on sample numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
from onnx import TensorProto

from engine.batching import elementwise, movement
from engine.batching.sizes import Size, Term, is_size, times
from engine.batching.value import MANY, Call, Count, Rows, Value, content_of, read

_INTEGERS = (TensorProto.INT32, TensorProto.INT64)
_PICKS = {"Gather": 1, "Concat": 0}  # operators that may read constant positions, and the input that contains them


def counted(call: Call) -> list[Value] | None:
    """Return a node's outputs if it selects rows by sample positions; ``None`` if it reads none."""
    if not any(value is not None and value.count for value in call.inputs):
        trial = _with_constants(call)
        result = None if trial is None else _read(trial)
    else:
        result = _read(call)
        if result is None:
            picks = call.node.op_type in ("Add", "Concat", "Gather", "GatherND")
            raise call.fault("uses each sample's position in the batch", depends=not picks)
    return None if result is None else [result]


def _read(call: Call) -> Value | None:
    reader = _READERS.get(call.node.op_type)
    return reader(call) if reader is not None and call.node.domain in ("", "ai.onnx") else None


def places(call: Call) -> Value | None:
    """Return the value of a Range from 0 to the number of samples; ``None`` for another Range."""
    contents = [call.content(i) for i in range(3)]
    limit = contents[1][0] if contents[1] else None
    if contents[0] != [0] or contents[2] != [1] or limit != Rows(0).size:
        return None
    return replace(call.out(Rows(0), [1]), count=Count(1, 0, 0))


def _with_constants(call: Call) -> Call | None:
    """Return the call with constant indices interpreted as sample positions of a fixed batch."""
    number, op = call.tracer.number, call.node.op_type
    if number is None or op not in _PICKS:
        return None
    value = call.get(_PICKS[op])
    rows = next((other.rows for other in call.inputs if other is not None and other.rows), None)
    if value is None or not value.shared or rows is None:
        return None
    axes, stride = (range(value.rank or 0), rows.inner) if op == "Gather" else ([rows.axis], 1)
    read = _as_places(value, axes, number, stride)
    if read is None:
        return None
    return Call(call.node, [read if one is value else one for one in call.inputs], call.tracer, call.scope)


def _as_places(value: Value, axes: Iterable[int], number: int, stride: Size) -> Value | None:
    """Return a constant as sample positions along the first of these axes that contains them."""
    for axis in axes:
        count = _constant_count(value, axis, number, stride)
        if count is not None:
            return replace(value, rows=Rows(axis), count=count)
    return None


def _constant_count(value: Value, axis: int, number: int, stride: Size) -> Count | None:
    array = None if value.tensor is None else read(value.tensor, MANY)
    if array is None or array.dtype.kind != "i" or array.ndim <= axis or array.shape[axis] != number or not array.size:
        return None
    if not isinstance(stride, int):
        return None
    steps = np.arange(number).reshape([-1 if n == axis else 1 for n in range(array.ndim)]) * stride
    rest = array - steps
    return Count(stride, int(rest.min()), int(rest.max())) if (rest == rest.take([0], axis)).all() else None


def _moved(call: Call) -> Value | None:
    """Move positions without changing the axis that corresponds to the samples."""
    value, op = call.need(0), call.node.op_type
    count = _single(value)
    if count is None or (op == "Cast" and call.attribute("to") not in _INTEGERS):
        return None
    return replace(_MOVES[op](call)[0], count=count)


def _single(value: Value) -> Count | None:
    """Return the count of a tensor that only contains positions, else ``None``."""
    return None if value.count is None or value.count.led or value.count.mixed else value.count


def _mixed(call: Call) -> Value:
    """Combine positions with other numbers, as exporters do to determine the broadcast shape of indices."""
    return replace(elementwise.broadcast(call)[0], count=Count(0, 0, 0, mixed=True))


def _multiplied(call: Call) -> Value | None:
    value, other = _and_other(call)
    content = None if other is None or not other.shared else content_of(other)
    count = _single(value)
    if count is None or content is None or content.size != 1:
        return None
    factor = content.item()
    result = elementwise.broadcast(call)[0]
    if isinstance(factor, Term) and is_size(factor) and count.low == count.high == 0:
        return replace(result, count=Count(times(count.stride, factor), 0, 0))
    if not isinstance(factor, int) or factor < 1:
        return None
    return replace(result, count=Count(times(count.stride, factor), count.low * factor, count.high * factor))


def _added(call: Call) -> Value | None:
    value, other = _and_other(call)
    limits = None if other is None or not other.shared else _limits(other)
    count = _single(value)
    if count is None or limits is None:
        return None
    moved = Count(count.stride, count.low + limits[0], count.high + limits[1])
    return replace(elementwise.broadcast(call)[0], count=moved)


def _and_other(call: Call) -> tuple[Value, Value | None]:
    first, second = call.need(0), call.need(1)
    both = first.count is not None and second.count is not None
    return (first, None if both else second) if first.count else (second, first)


def _limits(value: Value) -> tuple[int, int] | None:
    """Return minimum and maximum of a shared integer tensor."""
    array = content_of(value) if value.tensor is None else read(value.tensor, MANY)
    if array is None or not array.size or not all(isinstance(n, (int, np.integer)) for n in array.flat[:1]):
        return None
    if array.dtype == object and not all(isinstance(number, int) for number in array.flat):
        return None
    return int(array.min()), int(array.max())


def _joined(call: Call) -> Value | None:
    """Concatenate positions with other indices along the last axis."""
    first = call.need(0)
    rank, axis = call.rank(), call.axis(call.attribute("axis", 1))
    others = [value for value in call.inputs[1:] if value is not None]
    alone = first.count == Count(1, 0, 0) and call.dims()[-1] == 1 and axis == rank - 1
    if not alone or first.rows is None or first.rows.axis == axis or any(value.count for value in others):
        return None
    return replace(movement.concat(call)[0], count=Count(1, 0, 0, led=True))


def _gathered(call: Call) -> Value | None:
    data, picks = call.need(0), call.need(1)
    count, axis = _single(picks), call.axis(call.attribute("axis", 0))
    if data.count or count is None or picks.rows is None or data.rows is None or data.rows.axis != axis:
        return None
    if data.rows.outer != 1 or count.stride != data.rows.inner or not isinstance(data.rows.inner, int):
        return None
    if count.low < 0 or count.high >= data.rows.inner:
        raise call.fault(f"selects rows of other samples from '{data.name}'", depends=True)
    sizes = None if data.dims is None else [*data.dims[:axis], *call.dims(1), *data.dims[axis + 1 :]]
    return call.out(picks.rows.at(axis + picks.rows.axis), sizes)


def _gathered_nd(call: Call) -> Value | None:
    data, picks = call.need(0), call.need(1)
    led = picks.count is not None and picks.count.led
    if data.count or not led or picks.rows is None or data.rows != Rows(0) or call.attribute("batch_dims", 0):
        return None
    return call.out(picks.rows)


_MOVES: dict[str, Callable[[Call], list[Value]]] = {
    "Cast": elementwise.same,
    "Expand": movement.expand,
    "Identity": elementwise.same,
    "Squeeze": movement.squeeze,
    "Transpose": movement.transpose,
    "Unsqueeze": movement.unsqueeze,
}

_READERS: dict[str, Callable[[Call], Value | None]] = {
    **dict.fromkeys(_MOVES, _moved),
    "Add": _added,
    "Concat": _joined,
    "Gather": _gathered,
    "GatherND": _gathered_nd,
    "Max": _mixed,
    "Mul": _multiplied,
}
"""Operators that may read positions, and their rules; a rule returns ``None`` if the positions are not valid."""
