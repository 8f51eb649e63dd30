"""Rules of If, Loop and Scan; bodies are analysed repeatedly until the properties of their states converge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onnx import GraphProto

from engine.batching.sizes import symbol
from engine.batching.value import Call, Rows, Sizes, UnprovenError, Value, is_flat

_ROUNDS = 8  # maximum number of passes over a body until its states must have converged


def if_(call: Call) -> list[Value]:
    """Rule of If: both branches, or one if the condition is known."""
    condition, content = call.need(0), call.content(0)
    branches: list[GraphProto] = [call.attribute("then_branch"), call.attribute("else_branch")]
    if content is not None and isinstance(content[0], bool):
        branches = [branches[0] if content[0] else branches[1]]
    elif not condition.shared:
        raise call.fault("chooses a branch by values of the batch", depends=False)
    ends = [call.tracer.follow(branch, [], call.scope) for branch in branches]
    results = []
    for i, name in enumerate(call.node.output):
        result = ends[0][i]
        for other in ends[1:]:
            result = merged(call, name, result, other[i])
        results.append(replace(result, name=name))
    return results


def loop(call: Call) -> list[Value]:
    """Rule of Loop: the number of iterations must not depend on the samples."""
    body: GraphProto = call.attribute("body")
    for value in (call.get(0), call.get(1)):
        if value is not None and not value.shared:
            raise call.fault("has an iteration count that depends on the batch", depends=value.sized)
    settled = _settled(call, body, [Value("", ()), Value("", ())], call.inputs[2:], [])
    if not settled[0].shared:
        fault = settled[0].fault
        raise UnprovenError(fault) if fault else call.fault("stops depending on the samples", depends=False)
    count = len(call.inputs) - 2
    states = [replace(value, name=name) for value, name in zip(settled[1:], call.node.output, strict=False)][:count]
    stacked = zip(settled[1 + count :], call.node.output[count:], strict=True)
    return [*states, *(_stacked(name, value, 0) for value, name in stacked)]


def scan(call: Call) -> list[Value]:
    """Rule of Scan: along axes other than the batch."""
    if call.tracer.opset < 9:
        raise call.unknown()
    body: GraphProto = call.attribute("body")
    count = len(call.inputs) - int(call.attribute("num_scan_inputs"))
    if not 0 <= count <= len(call.inputs):
        raise call.unknown()
    given = call.attribute("scan_input_axes", [0] * (len(call.inputs) - count))
    rows = [_row(call, count + i, axis) for i, axis in enumerate(given)]
    settled = _settled(call, body, [], call.inputs[:count], rows)
    states = [replace(value, name=name) for value, name in zip(settled, call.node.output, strict=True)][:count]
    axes = call.attribute("scan_output_axes", [0] * (len(settled) - count))
    stacked = zip(settled[count:], call.node.output[count:], axes, strict=True)
    return [*states, *(_stacked(name, value, axis) for value, name, axis in stacked)]


def _row(call: Call, i: int, axis: int) -> Value:
    """Return the slice of an input that the body of a Scan reads in each step."""
    value, axis = call.need(i), call.axis(axis, i)
    if value.rows and value.rows.axis == axis:
        raise call.mixes(value)
    dims = None if value.dims is None else (*value.dims[:axis], *value.dims[axis + 1 :])
    return Value("", dims, value.rows and value.rows.at(value.rows.axis - (axis < value.rows.axis)))


def _stacked(name: str, value: Value, axis: int) -> Value:
    """Return the tensor that stacks a body's output of all steps along a new axis."""
    if value.dims is None and axis < 0:
        return Value(name) if value.shared else replace(value, name=name, rows=None, fault=value.fault)
    axis += len(value.dims or ()) + 1 if axis < 0 else 0
    dims = None if value.dims is None else (*value.dims[:axis], symbol(f"{name}.{axis}"), *value.dims[axis:])
    rows = value.rows and value.rows.at(value.rows.axis + (axis <= value.rows.axis))
    return Value(name, dims, rows, sized=value.sized, fault=value.fault)


def _settled(
    call: Call, body: GraphProto, head: Sequence[Value], states: Sequence[Value | None], tail: Sequence[Value]
) -> list[Value]:
    """Analyse a body until its states converge; return its outputs, including the states."""
    current = [_checked(call, value) for value in states]
    first = 1 if head else 0  # the first output of Loop's body is the condition
    for _ in range(_ROUNDS):
        values = [*head, *current, *tail]
        named = [replace(value, name=info.name) for value, info in zip(values, body.input, strict=True)]
        ends = call.tracer.follow(body, named, call.scope)
        after = [
            merged(call, name.name, old, new)
            for name, old, new in zip(body.input[len(head) :], current, ends[first:], strict=False)
        ]
        if [(v.rows, v.dims, v.fault) for v in after] == [(v.rows, v.dims, v.fault) for v in current]:
            ends[first : first + len(after)] = after
            return ends
        current = after
    raise call.unknown()


def _checked(call: Call, value: Value | None) -> Value:
    if value is None:
        raise call.unknown()
    if value.sized:
        raise call.fault("has the number of samples as a state", depends=True)
    return value


def merged(call: Call, name: str, a: Value, b: Value) -> Value:
    """Return the properties of a tensor that is one of two; raise UnprovenError if only one has samples."""
    for value in (a, b):
        if value.fault:
            raise UnprovenError(value.fault)
        if value.sized or value.count:
            raise call.fault("returns the number of samples as a value", depends=True)
    rows = a.rows or b.rows
    if rows is not None and not all(value.rows == rows or _is_spread(call, value, rows) for value in (a, b)):
        raise call.fault(f"has samples on different axes of '{a.name}' and '{b.name}'", depends=False)
    dims = _merged_dims(name, a.dims, b.dims)
    if rows is not None and dims is not None:
        dims = (*dims[: rows.axis], rows.size, *dims[rows.axis + 1 :])
    return Value(name, dims, rows)


def _is_spread(call: Call, value: Value, rows: Rows) -> bool:
    """Return whether a shared tensor has identical rows along the sample axis of another tensor."""
    if value.rows is not None or value.dims is None or len(value.dims) <= rows.axis:
        return False
    return value.dims[rows.axis] == call.fill(rows.size) and is_flat(value, rows.axis)


def _merged_dims(name: str, a: Sizes | None, b: Sizes | None) -> Sizes | None:
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(x if x == y else symbol(f"{name}.{axis}") for axis, (x, y) in enumerate(zip(a, b, strict=True)))
