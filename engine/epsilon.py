"""Layer norms whose epsilon ONNX Runtime misreads, found in a model file without the ``onnx`` package.

ONNX Runtime (seen in 1.31.1) fuses a layer norm that is written out and takes its epsilon from the second operand of
``Add(variance, epsilon)``. Where a model adds them the other way round it silently takes 1e-5 instead: with an epsilon
of 1e-12 or 1e-3 the results are wrong. :mod:`engine.ort` switches that fusion off for such a model.

Importing ``onnx`` costs more than opening a small model, so the nodes are read off the protobuf's wire format, in which
whatever is of no interest, such as weights, is skipped by its length (https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

# Numbers of fields in onnx.proto.
_MODEL_GRAPH, _MODEL_FUNCTIONS = 7, 25
_GRAPH_NODE, _FUNCTION_NODE = 1, 7
_NODE_INPUT, _NODE_OUTPUT, _NODE_OP, _NODE_ATTRIBUTE = 1, 2, 4, 5
_ATTRIBUTE_GRAPHS = (6, 11)

_NOTHING = (b"Identity", b"Dropout", b"Cast")
"""Operators that ONNX Runtime may take out before it fuses."""

_LENGTH_DELIMITED = 2
_FIXED = {1: 8, 5: 4}
"""Wire type -> bytes of its values."""

Buffer = bytes | mmap.mmap


def misread_in_file(path: Path) -> bool:
    """Do what :func:`misread` does for a file; what cannot be read is for the runtime to complain about."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return misread(data)
    except (OSError, ValueError):
        return False


def misread(model: Buffer) -> bool:
    """Say whether a model adds a mean and something else, in the wrong order, below a square root.

    Args:
        model: a serialised ``onnx.ModelProto``; one that is cut short has nothing to find.
    """
    means: set[bytes] = set()
    sums: dict[bytes, list[bytes]] = {}
    roots: set[bytes] = set()
    try:
        for op, inputs, outputs in _model_nodes(model):
            if op == b"ReduceMean" or (op in _NOTHING and means.intersection(inputs[:1])):
                means.update(outputs[:1])
            elif op == b"Add" and outputs:
                sums[outputs[0]] = inputs
            elif op == b"Sqrt":
                roots.update(inputs)
    except IndexError:
        return False
    found = (sums[name] for name in roots & sums.keys())
    return any(len(inputs) == 2 and inputs[1] in means and inputs[0] not in means for inputs in found)


_Node = tuple[bytes, list[bytes], list[bytes]]


def _model_nodes(data: Buffer) -> Iterator[_Node]:
    for number, start, end in _fields(data, 0, len(data)):
        if number == _MODEL_GRAPH:
            yield from _nodes(data, start, end, _GRAPH_NODE)
        elif number == _MODEL_FUNCTIONS:
            yield from _nodes(data, start, end, _FUNCTION_NODE)


def _nodes(data: Buffer, start: int, end: int, wanted: int) -> Iterator[_Node]:
    """Yield operator, inputs and outputs of a graph's nodes, those of bodies included."""
    for number, first, last in _fields(data, start, end):
        if number != wanted:
            continue
        op, inputs, outputs = b"", [], []
        for field, at, to in _fields(data, first, last):
            if field == _NODE_INPUT:
                inputs.append(data[at:to])
            elif field == _NODE_OUTPUT:
                outputs.append(data[at:to])
            elif field == _NODE_OP:
                op = data[at:to]
            elif field == _NODE_ATTRIBUTE:
                yield from _bodies(data, at, to)
        yield op, inputs, outputs


def _bodies(data: Buffer, start: int, end: int) -> Iterator[_Node]:
    for number, first, last in _fields(data, start, end):
        if number in _ATTRIBUTE_GRAPHS:
            yield from _nodes(data, first, last, _GRAPH_NODE)


def _fields(data: Buffer, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and end of a message's fields that have a length; up to what cannot be a field."""
    while at < end:
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == _LENGTH_DELIMITED:
            size, at = _varint(data, at)
            yield tag >> 3, at, at + size
            at += size
        elif kind == 0:
            at = _varint(data, at)[1]
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            return


def _varint(data: Buffer, at: int) -> tuple[int, int]:
    """Return a number of variable length and where it ends; IndexError where the data ends before it."""
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1
