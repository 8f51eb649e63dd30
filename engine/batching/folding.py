"""Evaluation of small tensors of shapes and sizes with a symbolic number of samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from engine.batching.sizes import Number, Term, add, choose, divide, equal, is_size, less, multiply, opaque, subtract
from engine.batching.value import objects
from engine.signature import Array

Fold: TypeAlias = Callable[[NodeProto, list[Array]], Array | None]

_MOST = 256  # maximum number of elements of an evaluated tensor
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)


def fold(node: NodeProto, contents: list[Array | None]) -> Array | None:
    """Return the elements that a node computes from known ones; ``None`` for operators not used with shapes."""
    known = [content for content in contents if content is not None]
    if node.op_type not in FOLDS or len(known) != len(contents) or not known:
        return None
    try:
        result = FOLDS[node.op_type](node, known)
    except (ValueError, IndexError, TypeError, KeyError, ZeroDivisionError, OverflowError):
        return None  # an invalid node, or omitted inputs: left to the rule
    return result if result is None or result.size <= _MOST else None


def constant_content(node: NodeProto) -> Array | TensorProto | None:
    """Return the value of a Constant node: its tensor, or its numbers."""
    for attribute in node.attribute:
        if attribute.name == "value":
            tensor: TensorProto = attribute.t
            return tensor
        if attribute.name in ("value_int", "value_ints", "value_float", "value_floats"):
            return objects(np.asarray(helper.get_attribute_value(attribute)))
    return None


def _attribute(node: NodeProto, name: str, default: Any) -> Any:
    found = next((a for a in node.attribute if a.name == name), None)
    return default if found is None else helper.get_attribute_value(found)


def _array(values: Any) -> Array:
    result = np.asarray(values, dtype=object)
    return result if isinstance(result, np.ndarray) else np.array(result, dtype=object)


def _mapped(function: Callable[..., Number], inputs: list[Array]) -> Array:
    arrays = np.broadcast_arrays(*inputs)
    flat = [function(*elements) for elements in zip(*(array.flat for array in arrays), strict=True)]
    result = np.empty(len(flat), dtype=object)
    result[:] = flat
    return result.reshape(arrays[0].shape)


def _elementwise(function: Callable[..., Number]) -> Fold:
    return lambda _, inputs: _mapped(function, inputs)


def _named(name: str, plain: Callable[..., Number]) -> Fold:
    """Return the fold of a function that is evaluated for numbers and kept symbolic for symbols."""

    def one(*numbers: Number) -> Number:
        if any(isinstance(number, Term) for number in numbers):
            return opaque(f"{name} {','.join(map(str, numbers))}", *numbers)
        return plain(*numbers)

    return _elementwise(one)


def _logic(decided: bool, name: str) -> Fold:
    """Return the fold of Or (decided by a true operand) or And (by a false one)."""

    def one(a: Number, b: Number) -> Number:
        if any(not isinstance(x, Term) and bool(x) == decided for x in (a, b)):
            return decided
        rest = [x for x in (a, b) if isinstance(x, Term)]
        return opaque(f"{a}{name}{b}", a, b) if len(rest) > 1 else (rest[0] if rest else not decided)

    return _elementwise(one)


def _extreme(pick: Callable[[Any, Any], Any], name: str) -> Fold:
    def one(first: Number, *others: Number) -> Number:
        result = first
        for other in others:
            if result == other:
                continue
            if isinstance(result, Term) or isinstance(other, Term):
                result = opaque(f"{name} {result},{other}", result, other)
            else:
                result = pick(result, other)
        return result

    return _elementwise(one)


def _cast(node: NodeProto, inputs: list[Array]) -> Array:
    to = _attribute(node, "to", 0)

    def one(number: Number) -> Number:
        if isinstance(number, Term):
            exact = is_size(number) and to != TensorProto.BOOL
            return number if exact or to in _FLOATS else opaque(f"cast {to} {number}", number)
        return bool(number) if to == TensorProto.BOOL else float(number) if to in _FLOATS else int(number)

    return _mapped(one, inputs)


def _gather(node: NodeProto, inputs: list[Array]) -> Array:
    return _array(np.take(inputs[0], inputs[1].astype(np.int64), axis=_attribute(node, "axis", 0)))


def _integers(node: NodeProto, name: str, inputs: list[Array], i: int) -> list[int] | None:
    given = _attribute(node, name, None)
    if given is None and len(inputs) > i:
        given = inputs[i].ravel().tolist()
    return None if given is None else [int(number) for number in given]


def _slice(node: NodeProto, inputs: list[Array]) -> Array | None:
    starts, ends = _integers(node, "starts", inputs, 1), _integers(node, "ends", inputs, 2)
    if starts is None or ends is None:
        return None
    axes = _integers(node, "axes", inputs, 3) or list(range(len(starts)))
    steps = _integers(node, "steps", inputs, 4) or [1] * len(starts)
    result = inputs[0]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        index: list[slice] = [slice(None)] * result.ndim
        index[axis] = slice(start, None if step < 0 and end < -result.shape[axis] else end, step)
        result = result[tuple(index)]
    return result


def _squeeze(node: NodeProto, inputs: list[Array]) -> Array:
    axes = _integers(node, "axes", inputs, 1)
    return np.squeeze(inputs[0], None if axes is None else tuple(axes))


def _reshape(_node: NodeProto, inputs: list[Array]) -> Array | None:
    target = [int(number) for number in inputs[1].flat]
    return None if 0 in target else inputs[0].reshape(target)


def _range(_node: NodeProto, inputs: list[Array]) -> Array | None:
    start, limit, step = (array.item() for array in inputs)
    if any(not isinstance(number, int) for number in (start, limit, step)) or abs(limit - start) > _MOST:
        return None
    return objects(np.arange(start, limit, step))


def _constant_of_shape(node: NodeProto, inputs: list[Array]) -> Array | None:
    shape = list(inputs[0].flat)
    if any(not isinstance(size, int) for size in shape) or math.prod(shape) > _MOST:
        return None
    value = _attribute(node, "value", None)
    number = 0.0 if value is None else numpy_helper.to_array(value).reshape(-1)[0].item()
    return objects(np.full(shape, number))


def _expand(_node: NodeProto, inputs: list[Array]) -> Array | None:
    shape = list(inputs[1].flat)
    if any(not isinstance(size, int) for size in shape) or math.prod(shape) > _MOST:
        return None
    return np.broadcast_to(inputs[0], np.broadcast_shapes(inputs[0].shape, tuple(shape)))


def _reduce(function: Callable[[Number, Number], Number]) -> Fold:
    def folded(node: NodeProto, inputs: list[Array]) -> Array | None:
        if inputs[0].ndim != 1 or not inputs[0].size:
            return None
        total: Number = inputs[0][0]
        for number in inputs[0][1:]:
            total = function(total, number)
        return _array([total]) if _attribute(node, "keepdims", 1) else _array([total]).reshape(())

    return folded


FOLDS: dict[str, Fold] = {
    "Identity": lambda _, inputs: inputs[0],
    "Cast": _cast,
    "Add": _elementwise(add),
    "Sub": _elementwise(subtract),
    "Mul": _elementwise(multiply),
    "Div": _elementwise(divide),
    "Mod": _elementwise(lambda a, b: opaque(f"{a}%{b}", a, b) if Term in map(type, (a, b)) else a % b),
    "Min": _extreme(min, "min"),
    "Max": _extreme(max, "max"),
    "Neg": _elementwise(lambda a: multiply(a, -1)),
    "Abs": _named("abs", abs),
    "Floor": _named("floor", lambda a: float(math.floor(a))),
    "Ceil": _named("ceil", lambda a: float(math.ceil(a))),
    "Sqrt": _named("sqrt", math.sqrt),
    "Equal": _elementwise(equal),
    "Less": _elementwise(less),
    "Greater": _elementwise(lambda a, b: less(b, a)),
    "And": _logic(False, "&"),
    "Or": _logic(True, "|"),
    "Not": _named("not", lambda a: not a),
    "Where": _elementwise(choose),
    "Gather": _gather,
    "Concat": lambda node, inputs: np.concatenate(inputs, axis=_attribute(node, "axis", 1)),
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": lambda node, x: np.expand_dims(x[0], tuple(_integers(node, "axes", x, 1) or ())),
    "Reshape": _reshape,
    "Transpose": lambda node, inputs: np.transpose(inputs[0], _attribute(node, "perm", None)),
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "ReduceProd": _reduce(multiply),
    "ReduceSum": _reduce(add),
}
"""Operators used to compute shapes; rounding (Floor, Ceil) of a symbol is kept symbolic."""
