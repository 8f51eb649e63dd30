"""Nodes and weight shapes of a model file, parsed without ``onnx`` and without reading the weights.

Fields are skipped by their lengths (:mod:`engine.onnx.wire`, onnx.proto). Nodes are parsed on demand from the end of
the graph, where the outputs are computed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from engine.onnx.wire import BytesSource, Field, FileSource, Source, fields, varint
from tecoinfer_modelzoo.files import open_regular

LONGEST_NODE = 1 << 20  # maximum bytes of a node that are read; names come first, and larger nodes contain weights
_STANDARD = ("", "ai.onnx")


def _text(source: Source, field: Field) -> str:
    return source.read(field.start, min(field.end - field.start, LONGEST_NODE)).decode("utf-8", "surrogateescape")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _numbers(source: Source, field: Field) -> list[int]:
    """Return the values of one field of a repeated integer, packed or not."""
    if not field.end:
        return [_signed(field.value)]
    data, found, place = source.read(field.start, min(field.end - field.start, LONGEST_NODE)), list[int](), 0
    while place < len(data):
        value, place = varint(data, place)
        if not place:
            break
        found.append(_signed(value))
    return found


class Node:
    """Operator of a graph; ``op``: its name, with a prefix ``domain::`` for other domains; omitted inputs are empty."""

    def __init__(self, source: Source, start: int, end: int) -> None:
        self._source = source
        self.inputs, self.outputs, self._attributes = list[str](), list[str](), list[Field]()
        name = domain = ""
        for field in fields(source, start, end):
            if field.number == 1:
                self.inputs.append(_text(source, field))
            elif field.number == 2:
                self.outputs.append(_text(source, field))
            elif field.number == 4:
                name = _text(source, field)
            elif field.number == 5:
                self._attributes.append(field)
            elif field.number == 7:
                domain = _text(source, field)
        self.domain, self.name = "" if domain in _STANDARD else domain, name
        self.op = f"{self.domain}::{name}" if self.domain else name

    def _attribute(self, name: str) -> list[Field]:
        for attribute in self._attributes:
            inner = list(fields(self._source, attribute.start, attribute.end))
            if any(one.number == 1 and _text(self._source, one) == name for one in inner):
                return inner
        return []

    def whole(self, name: str, default: int) -> int:
        """Return an integer attribute."""
        found = [one.value for one in self._attribute(name) if one.number == 3]
        return _signed(found[0]) if found else default

    def wholes(self, name: str) -> list[int] | None:
        """Return an attribute with several integers; ``None`` if it is missing."""
        found = self._attribute(name)
        numbers = [number for one in found if one.number == 8 for number in _numbers(self._source, one)]
        return numbers if found else None

    def tensor(self, name: str) -> Weight | None:
        """Return a tensor attribute."""
        return next((_weight(self._source, one) for one in self._attribute(name) if one.number == 5), None)

    def body(self, name: str) -> tuple[Source, int, int] | None:
        """Return source, start and end of a graph attribute."""
        return next(((self._source, one.start, one.end) for one in self._attribute(name) if one.number == 6), None)


class Weight(NamedTuple):
    """Constant: name, shape, and values if they are few int64 numbers."""

    name: str
    shape: tuple[int, ...]
    numbers: tuple[int, ...] | None


_INT64, _MOST_NUMBERS = 7, 64


def _weight(source: Source, field: Field) -> Weight:
    name, shape, kind, numbers, raw = "", list[int](), 0, list[int](), None
    for part in fields(source, field.start, field.end):
        if part.number == 1:
            shape += _numbers(source, part)
        elif part.number == 2:
            kind = part.value
        elif part.number == 7 and len(numbers) < _MOST_NUMBERS:
            numbers += _numbers(source, part)
        elif part.number == 8:
            name = _text(source, part)
        elif part.number == 9 and part.end - part.start <= 8 * _MOST_NUMBERS:
            raw = source.read(part.start, part.end - part.start)
    if kind == _INT64 and raw is not None:
        numbers = [int.from_bytes(raw[i : i + 8], "little", signed=True) for i in range(0, len(raw) - 7, 8)]
    return Weight(name, tuple(shape), tuple(numbers) if kind == _INT64 else None)


class Graph:
    """Nodes by output name, and weights, of a model, a branch or a function.

    Attributes:
        outputs: names of the outputs and their declared ranks (``None`` if undeclared).
        bound: parameter of a function -> graph and tensor name of the argument.
    """

    def __init__(
        self, source: Source, start: int, end: int, outer: Graph | None = None, function: bool = False
    ) -> None:
        self._source, self.outer = source, outer
        self.bound: Mapping[str, tuple[Graph, str]] = {}
        self.outputs, self.inputs = list[tuple[str, int | None]](), list[str]()
        self._unread, self._by_output = list[Field](), dict[str, Node]()
        self._weights: dict[str, Weight] | None = None
        self._weight_fields = list[Field]()
        for field in fields(source, start, end):
            if field.number == (7 if function else 1):
                self._unread.append(field)
            elif function and field.number in (4, 5):
                names = self.inputs if field.number == 4 else None
                text = _text(source, field)
                self.outputs.append((text, None)) if names is None else names.append(text)
            elif not function and field.number == 5:
                self._weight_fields.append(field)
            elif not function and field.number == 12:
                self.outputs.append(_declared(source, field))

    def producer(self, name: str) -> Node | None:
        """Return the node that computes a tensor; nodes are parsed from the end."""
        while name not in self._by_output and self._unread:
            field = self._unread.pop()
            node = Node(self._source, field.start, min(field.end, field.start + LONGEST_NODE))
            self._by_output.update(dict.fromkeys(filter(None, node.outputs), node))
        return self._by_output.get(name)

    def weight(self, name: str) -> Weight | None:
        """Return a constant by name; ``None`` if there is none."""
        if self._weights is None:
            found = (_weight(self._source, field) for field in self._weight_fields)
            self._weights = {one.name: one for one in found}
        return self._weights.get(name)


def _declared(source: Source, field: Field) -> tuple[str, int | None]:
    """Return name and rank of a ValueInfo."""
    name, rank = "", None
    for one in fields(source, field.start, field.end):
        if one.number == 1:
            name = _text(source, one)
        elif one.number == 2:
            tensors = (part for part in fields(source, one.start, one.end) if part.number == 1)
            for shape in (part for tensor in tensors for part in fields(source, tensor.start, tensor.end)):
                if shape.number == 2:
                    rank = sum(dim.number == 1 for dim in fields(source, shape.start, shape.end))
    return name, rank


class LightModel:
    """Graph, functions and opset of a model with ``end`` bytes."""

    def __init__(self, source: Source, end: int) -> None:
        self._source, self._functions, self.opset = source, dict[tuple[str, str], Field](), 1
        graph = None
        for field in fields(source, 0, end):
            if field.number == 7:
                graph = field
            elif field.number == 8:
                self._take_opset(field)
            elif field.number == 25:
                self._take_function(field)
        self.graph = Graph(source, graph.start, graph.end) if graph is not None else Graph(source, 0, 0)

    def _take_opset(self, field: Field) -> None:
        domain, version = "", 1
        for one in fields(self._source, field.start, field.end):
            domain = _text(self._source, one) if one.number == 1 else domain
            version = one.value if one.number == 2 else version
        self.opset = version if domain in _STANDARD else self.opset

    def _take_function(self, field: Field) -> None:
        name = domain = ""
        for one in fields(self._source, field.start, field.end):
            name = _text(self._source, one) if one.number == 1 else name
            domain = _text(self._source, one) if one.number == 10 else domain
        self._functions["" if domain in _STANDARD else domain, name] = field

    def function(self, node: Node, scope: Graph) -> Graph | None:
        """Return the body of the function that a node calls, bound to the node's inputs; ``None`` for an operator."""
        field = self._functions.get((node.domain, node.name))
        if field is None:
            return None
        body = Graph(self._source, field.start, field.end, function=True)
        body.bound = {name: (scope, given) for name, given in zip(body.inputs, node.inputs, strict=False) if given}
        return body


@contextmanager
def open_light(path: Path) -> Iterator[LightModel]:
    """Yield the model in an open file, without outputs if it is not ONNX; raise OSError if it cannot be read."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size <= _WHOLE:
            yield LightModel(BytesSource(file.read()), size)
        else:
            yield LightModel(FileSource(file.fileno()), size)


_WHOLE = 1 << 24  # maximum size in bytes of a file that is read at once


def _scopes(scope: Graph, name: str) -> Iterator[tuple[Graph, str]]:
    """Yield the graphs that may define a tensor, from the inside out, with its name in each."""
    at: Graph | None = scope
    while at is not None:
        yield at, name
        if name in at.bound:
            at, name = at.bound[name]
        else:
            at = at.outer


def found_at(scope: Graph, name: str) -> tuple[Graph, Node] | None:
    """Return the node that computes a tensor of a graph, and the graph with the node; ``None`` if there is none."""
    nodes = ((at, at.producer(own)) for at, own in _scopes(scope, name))
    return next(((at, node) for at, node in nodes if node is not None), None)


def constant_at(scope: Graph, name: str) -> Weight | None:
    """Return the value of a constant tensor: a weight, or the value of a ``Constant`` node."""
    found = found_at(scope, name)
    if found is not None:
        return found[1].tensor("value") if found[1].op == "Constant" else None
    weights = (at.weight(own) for at, own in _scopes(scope, name))
    return next((weight for weight in weights if weight is not None), None)
