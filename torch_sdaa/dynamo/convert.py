"""Conversion of a traced graph to an ONNX model, and check whether one node can be converted."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import torch
from onnx import ModelProto
from torch import fx
from torch.fx.node import map_arg

from tecoinfer_modelzoo.text import typed_reason
from torch_sdaa.dynamo.aten import TABLE, Meta
from torch_sdaa.dynamo.aten.table import STRIDED
from torch_sdaa.dynamo.builder import NARROW, Builder, Unsupported, Value, kind_of
from torch_sdaa.dynamo.sizes import Sizes

_PASSED_ON = tuple(getattr(torch.ops.aten, name).default for name in ("lift_fresh_copy", "alias", "detach", "clone"))
"""Operators that are removed in a partition, so that tensors without elements may pass through them."""

JOINS = (torch.ops.aten.cat.default, *_PASSED_ON)
"""Operators that may have inputs without elements."""

_ROUNDING = {
    each
    for name in ("eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "rsub", "remainder", "fmod", "pow")
    for each in (getattr(getattr(torch.ops.aten, name), kind, None) for kind in ("Scalar", "Tensor", "Tensor_Scalar"))
    if each is not None
}
"""Operators that round a scalar operand to the tensor's dtype; factors and divisors keep their precision."""


def written(graph: fx.Graph, sizes: Sizes) -> ModelProto:
    """Return a partition as a model with its tensor inputs and outputs in order.

    Raises:
        Unsupported: a node has no ONNX form. LookupError: a size is unknown.
    """
    b, values = Builder(sizes), {}
    outputs: Sequence[Any] = ()
    for node in graph.nodes:
        if node.op == "placeholder":
            values[node] = placed(b, node)
        elif node.op == "call_function":
            values[node] = _written(b, node, values)
        elif node.op == "output":
            outputs = [values[each] for each in results_of(graph)]
    return b.model(outputs)


def placed(b: Builder, node: fx.Node) -> Any:
    """Return an input: a value of the graph, or a number."""
    traced = node.meta["val"]
    if isinstance(traced, torch.Tensor):
        return b.input(node.name, b.sizes.shape(traced.shape), traced.dtype)
    return b.sizes.number(traced)


def results_of(graph: fx.Graph) -> list[fx.Node]:
    """Return the results of a partition."""
    (given,) = graph.output_node().args
    return list(given) if isinstance(given, (tuple, list)) else [given]


def _written(b: Builder, node: fx.Node, values: dict[fx.Node, Any]) -> Any:
    if node.target is operator.getitem:
        return values[node.args[0]][node.args[1]]
    writer = TABLE[node.target]
    b.begin(node)
    narrow = next((values[source].dtype for source in node.all_input_nodes if _is_narrow(values[source])), None)
    args = _plain(b, map_arg(node.args, lambda each: _wide(values[each])))
    kwargs = _plain(b, map_arg(node.kwargs, lambda each: _wide(values[each])))
    if narrow is not None and node.target in _ROUNDING:
        args = [_rounded_number(each, narrow) for each in args]
        kwargs = {name: _rounded_number(each, narrow) for name, each in kwargs.items()}
    meta = _meta(b, node)
    meta.narrow = narrow if _all_of(node, narrow) else None
    made = writer(b, meta.wide(), *args, **kwargs)
    if not isinstance(made, (tuple, list)):
        return _narrow(b, made, meta.results[0])
    return [_narrow(b, value, expected) for value, expected in zip_longest(made, meta.results)]


def _is_narrow(value: Any) -> bool:
    return isinstance(value, Value) and value.dtype in NARROW


def _all_of(node: fx.Node, dtype: torch.dtype | None) -> bool:
    """Return whether all floating-point inputs of a node have a dtype."""
    traced = [each.meta.get("val") for each in node.all_input_nodes]
    floats = [each.dtype for each in traced if isinstance(each, torch.Tensor) and each.dtype.is_floating_point]
    return all(each is dtype for each in floats)


def _wide(value: Any) -> Any:
    """Return a value for computation: narrow dtypes as float32."""
    return Value(value.name, value.shape, torch.float32) if _is_narrow(value) else value


def _narrow(b: Builder, value: Any, expected: tuple[Any, torch.dtype] | None) -> Any:
    """Return a result, rounded if its dtype is narrow."""
    if not isinstance(value, Value) or expected is None or expected[1] not in NARROW:
        return value
    return b.rounded(value, expected[1])


def _rounded_number(argument: Any, dtype: torch.dtype) -> Any:
    """Return a scalar rounded to a narrow dtype if it is a float."""
    return torch.tensor(argument, dtype=dtype).item() if isinstance(argument, float) else argument


def _plain(b: Builder, argument: Any) -> Any:
    """Return arguments with numbers instead of symbols."""
    if isinstance(argument, (tuple, list)):
        return (
            type(argument)(_plain(b, each) for each in argument)
            if type(argument) in (tuple, list)
            else [_plain(b, each) for each in argument]
        )
    if isinstance(argument, dict):
        return {name: _plain(b, each) for name, each in argument.items()}
    return b.sizes.number(argument) if isinstance(argument, torch.SymInt) else argument


def _meta(b: Builder, node: fx.Node) -> Meta:
    traced = node.meta["val"]
    if isinstance(traced, torch.Tensor):
        return Meta([_described(b, traced)], _strides(b, node))
    used = {user.args[1] for user in node.users if user.target is operator.getitem}
    return Meta(
        [_described(b, each) if place in used and each is not None else None for place, each in enumerate(traced)]
    )


def _strides(b: Builder, node: fx.Node) -> tuple[int, ...] | None:
    """Return the memory layout of the first input for operators that depend on it."""
    source = node.args[0].meta.get("val") if node.args and isinstance(node.args[0], fx.Node) else None
    if node.target not in STRIDED or not isinstance(source, torch.Tensor) or source.storage_offset() != 0:
        return None
    return b.sizes.shape(source.stride())


def _described(b: Builder, traced: Any) -> tuple[tuple[int, ...], torch.dtype]:
    kind_of(traced.dtype)
    return b.sizes.shape(traced.shape), traced.dtype


# --------------------------------------------------------------------------------------------------------- one node


def why_not(node: fx.Node, sizes: Sizes) -> str:
    """Return why a node has no ONNX form, by converting it alone; "" if it has one."""
    if node.target is operator.getitem:
        source = node.args[0]
        return why_not(source, sizes) if isinstance(source, fx.Node) else "not an operator"
    if node.target not in TABLE:
        if own := getattr(node.target, "why_left", ""):
            return str(own)
        return "it has no ONNX form in torch_sdaa.dynamo.aten"
    try:
        alone(node, sizes)
    except Unsupported as reason:
        return str(reason)
    except LookupError as reason:
        return str(reason).strip("'\"")
    except Exception as error:  # noqa: BLE001 -- unexpected arguments: the device runs it, and the reason is reported
        return f"its ONNX form failed: {typed_reason(error, 200)}"
    return ""


def _check_place(node: fx.Node, given: torch.Tensor) -> None:
    """Raise Unsupported for an input on another device than the result, except for CPU scalars."""
    made = node.meta["val"]
    first = next((each for each in (made if isinstance(made, (tuple, list)) else [made]) if each is not None), None)
    if given.device.type == "cpu" and not given.dim():
        return
    if isinstance(first, torch.Tensor) and given.device != first.device:
        raise Unsupported(f"an input is on {'the host' if given.device.type == 'cpu' else given.device}")


def alone(node: fx.Node, sizes: Sizes) -> ModelProto:
    """Return a model of one node; raise Unsupported if it has no ONNX form."""
    b = Builder(sizes)
    values: dict[fx.Node, Any] = {}
    for source in node.all_input_nodes:
        if isinstance(source.meta.get("val"), (tuple, list)):
            raise Unsupported("an input is several tensors")
        values[source] = placed(b, source)
        if isinstance(values[source], Value):
            _check_place(node, source.meta["val"])
    tensors = [value for value in values.values() if isinstance(value, Value)]
    if any(value.numel == 0 for value in tensors) and node.target not in JOINS:
        raise Unsupported("an input has no elements")  # nothing to gain, and kernels differ for them
    made = _written(b, node, values)
    meta, results = _meta(b, node), []
    for place, value in enumerate(made if isinstance(made, (tuple, list)) else [made]):
        expected = meta.results[place] if place < len(meta.results) else None
        if expected is None or value is None:
            continue
        if (value.shape, value.dtype) != expected:
            raise Unsupported(f"converted to other sizes: {value.shape}, {value.dtype} for {expected}")
        if not value.numel and node.target not in _PASSED_ON:
            raise Unsupported("its result has no elements")
        results.append(value)
    return b.model(results)
