"""Limits of a model, checked after parsing, which bound the time of reading it and ensure valid text.

A file of a few kilobytes can describe 2**28 nodes, or nested bodies that take some runtimes hours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from engine.onnx.view import subgraphs
from tecoinfer_modelzoo.errors import ModelError
from tecoinfer_modelzoo.text import shown_value

MOST_NODES = 10_000
"""Maximum number of nodes after inlining functions; ONNX Runtime (1.31.1) takes about a millisecond for each."""

MOST_CALLS = 64  # maximum depth of nested function calls
MOST_BODIES = 24  # maximum nesting of bodies of If, Loop and Scan; protobuf itself parses 32
MOST_DIMS = 64  # maximum rank of a NumPy array

MOST_NUMBERS = 2**48
"""Maximum number of elements of a tensor; with 8 bytes each this exceeds the address space of any machine."""

_EXPORT = "export it again"
_MOST_DIMS = f"the limit is {MOST_DIMS}; {_EXPORT}"
_DEFAULT = ("", "ai.onnx")
Key = tuple[str, str, str]
_TERM = r"[A-Za-z ]*(\. *\. *\.[A-Za-z ]*)?"
_EQUATION = re.compile(rf"{_TERM}(,{_TERM})*(- *>{_TERM})?")
"""Valid equations of Einsum; onnx's shape inference (1.23) does not terminate for other characters in the inputs."""

_AXES = ("axis", "axes", "perm")
"""Suffixes of attribute names that hold axes; onnx's shape inference (1.23) crashes for some out-of-range axes."""

_KINDS = frozenset(TensorProto.DataType.values())


def check_bounds(model: ModelProto, path: Path | str = "model") -> None:
    """Check a model against the limits of this module.

    Raises:
        ModelError: a text is not UTF-8; functions are recursive or expand to too many nodes; bodies are nested too
            deeply; a tensor has too many dimensions or an unknown type.
    """
    for message, given in _messages(model, path):
        for field, value in given:
            if field.type != FieldDescriptor.TYPE_STRING:
                continue
            for text in (value,) if isinstance(value, (str, bytes)) else value:
                if isinstance(text, bytes):
                    what = f"the {field.name.replace('_', ' ')} {text!r} of a {message.DESCRIPTOR.name}"
                    raise ModelError(f"{path}: {what} is not UTF-8, so the file is damaged; {_EXPORT}")
        if isinstance(message, TensorProto):
            _check_tensor(message, path)
        elif isinstance(message, ValueInfoProto):
            _check_info(message, path)
        elif isinstance(message, NodeProto):
            _check_node(message, path)
    _check_functions(model, path)


def _messages(model: ModelProto, path: Path | str) -> Iterator[tuple[Message, list[tuple[FieldDescriptor, Any]]]]:
    """Yield a model and all nested messages, with their fields that are set (:func:`_set_fields`).

    Raise ModelError for too deep bodies.
    """
    waiting: list[tuple[Message, int]] = [(model, 0)]
    while waiting:
        message, depth = waiting.pop()
        given = _set_fields(message)
        yield message, given
        inner = [value for field, value in given if field.type == FieldDescriptor.TYPE_MESSAGE]
        if isinstance(message, AttributeProto) and inner and (message.HasField("g") or message.graphs):
            depth += 1
            if depth > MOST_BODIES:
                limit = f"bodies of If, Loop or Scan are nested more than {MOST_BODIES} deep"
                raise ModelError(f"{path}: {limit}; export the model with less control flow")
        for value in inner:
            if isinstance(value, Message):
                waiting.append((value, depth))
            else:
                waiting.extend((one, depth) for one in value)


def depth_of_bodies(model: ModelProto) -> int:
    """Return the maximum nesting of bodies of If, Loop and Scan."""
    deepest, waiting = 0, [(node, 1) for node in model.graph.node]
    while waiting:
        node, depth = waiting.pop()
        for graph in subgraphs(node):
            deepest = max(deepest, depth)
            waiting.extend((inner, depth + 1) for inner in graph.node)
    return deepest


def _set_fields(message: Message) -> list[tuple[FieldDescriptor, Any]]:
    """Return the fields that are set, with their values; of tensors only texts and messages, to not copy the data."""
    if not isinstance(message, TensorProto):
        return list(message.ListFields())
    found = []
    for field in _texts_and_messages(message.DESCRIPTOR):
        value = getattr(message, field.name)
        if message.HasField(field.name) if isinstance(value, Message) else len(value):
            found.append((field, value))
    return found


@cache
def _texts_and_messages(kind: Descriptor) -> tuple[FieldDescriptor, ...]:
    both = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE)
    return tuple(field for field in kind.fields if field.type in both)


def _check_tensor(tensor: TensorProto, path: Path | str) -> None:
    sizes = list(tensor.dims)
    if len(sizes) > MOST_DIMS:
        raise ModelError(f"{path}: weight {tensor.name!r} has {len(sizes)} dimensions, {_MOST_DIMS}")
    if any(size < 0 for size in sizes) or prod(max(size, 1) for size in sizes) > MOST_NUMBERS:
        raise ModelError(f"{path}: weight {tensor.name!r} cannot have the shape {sizes}; {_EXPORT}")
    if tensor.data_type == TensorProto.UNDEFINED:
        raise ModelError(f"{path}: weight {tensor.name!r} has no type; {_EXPORT}")
    if tensor.data_type not in _KINDS:
        raise ModelError(f"{path}: weight {tensor.name!r} {_unknown(tensor.data_type)}")


def _check_info(info: ValueInfoProto, path: Path | str) -> None:
    kind = info.type.tensor_type
    if info.type.HasField("tensor_type") and kind.elem_type == TensorProto.UNDEFINED:
        raise ModelError(f"{path}: {info.name!r} is a tensor without a type; {_EXPORT}")
    for name in ("sequence_type", "optional_type"):
        if info.type.HasField(name) and getattr(info.type, name).elem_type.WhichOneof("value") is None:
            raise ModelError(f"{path}: {info.name!r} is a {name.replace('_', ' ')} without an element type; {_EXPORT}")
    if kind.elem_type not in _KINDS:
        raise ModelError(f"{path}: {info.name!r} {_unknown(kind.elem_type)}")
    if len(kind.shape.dim) > MOST_DIMS:
        raise ModelError(f"{path}: {info.name!r} has {len(kind.shape.dim)} dimensions, {_MOST_DIMS}")


def _check_node(node: NodeProto, path: Path | str) -> None:
    if node.domain not in _DEFAULT:
        return
    title = f"{node.op_type} {node.name or ''.join(node.output[:1])!r}"
    for attribute in node.attribute:
        far = [axis for axis in (attribute.i, *attribute.ints) if not -MOST_DIMS <= axis <= MOST_DIMS]
        if far and attribute.name.endswith(_AXES):
            raise ModelError(f"{path}: {attribute.name} {far[0]} of the {title} is out of range, {_MOST_DIMS}")
        if node.op_type != "Einsum":
            continue
        equation = attribute.s.decode(errors="backslashreplace")
        if attribute.name == "equation" and not _EQUATION.fullmatch(equation):
            valid = f"may only contain letters, commas, '...' and '->'; {_EXPORT}"
            raise ModelError(f"{path}: the equation {shown_value(equation)} of the {title} {valid}")


def _unknown(kind: int) -> str:
    return f"has type {kind}, which ONNX does not define ({min(_KINDS)} to {max(_KINDS)}); upgrade onnx, or {_EXPORT}"


def _check_functions(model: ModelProto, path: Path | str) -> None:
    """Reject recursive functions, and functions that expand to too many nodes."""
    if not model.functions:
        return
    functions = {(one.domain, one.name, one.overload): one for one in model.functions}
    for one in model.functions:
        imported = {entry.domain for entry in one.opset_import}
        if imported.isdisjoint(_DEFAULT) and any(node.domain in _DEFAULT for node in _nodes(one.node)):
            raise ModelError(f"{path}: function {one.name!r} does not import an opset for its operators; {_EXPORT}")
    _check_imports(model, functions, path)
    sizes: dict[Key, tuple[int, int]] = {}
    for key in functions:
        _size(key, functions, sizes, path)
    calls = [sizes.get((node.domain, node.op_type, node.overload)) for node in _nodes(model.graph.node)]
    nodes = sum(call[0] for call in calls if call)
    if nodes > MOST_NODES:
        limit = f"the limit is {MOST_NODES}; export it without functions"
        raise ModelError(f"{path}: its functions expand to {nodes} nodes, {limit}")


def _check_imports(model: ModelProto, functions: Mapping[Key, FunctionProto], path: Path | str) -> None:
    """Reject calls of functions whose domain the caller does not import, as ONNX Runtime does."""
    for caller in (model, *model.functions):
        imported = {entry.domain for entry in caller.opset_import}
        for node in _nodes(caller.graph.node if isinstance(caller, ModelProto) else caller.node):
            if (node.domain, node.op_type, node.overload) in functions and node.domain not in imported:
                missing = f"its domain {node.domain!r} is not among the imported opsets; {_EXPORT}"
                raise ModelError(f"{path}: function {node.op_type!r} is called, but {missing}")


def _size(
    start: Key, functions: Mapping[Key, FunctionProto], sizes: dict[Key, tuple[int, int]], path: Path | str
) -> None:
    """Compute the number of nodes and the call depth of a function and of the functions it calls, into ``sizes``."""
    waiting, within = [start], set[Key]()
    while waiting:
        key = waiting[-1]
        calls = [(node.domain, node.op_type, node.overload) for node in _nodes(functions[key].node)]
        open_ = [call for call in calls if call in functions and call not in sizes] if key not in sizes else []
        if not open_:
            found = [sizes.get(call, (1, 0)) for call in calls]
            sizes[key] = sum(nodes for nodes, _ in found), 1 + max((deep for _, deep in found), default=0)
            if sizes[key][1] > MOST_CALLS:
                raise ModelError(f"{path}: its functions are nested more than {MOST_CALLS} deep; export it without")
            within.discard(key)
            waiting.pop()
            continue
        within.add(key)
        if not within.isdisjoint(open_):
            name = ".".join(filter(None, key))
            raise ModelError(f"{path}: function {name!r} calls itself, which ONNX does not allow; {_EXPORT}")
        waiting.extend(dict.fromkeys(open_))


def _nodes(nodes: Any) -> Iterator[NodeProto]:
    """Yield nodes and the nodes in their bodies."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                waiting += attribute.g.node
            for graph in attribute.graphs:
                waiting += graph.node
