"""Models larger than a protobuf message (2 GiB), detected by the sizes of their tensors, and split into two parts.

``ByteSize`` serializes the message, which doubles its memory and fails beyond the limit. So does copying a message,
even a single tensor (protobuf 7): weights are copied field by field (:func:`copy_tensor`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from google.protobuf.message import Message
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, helper, numpy_helper

from engine.onnx.view import replace_items, subgraphs
from engine.signature import Array
from tecoinfer_modelzoo.errors import ModelError

MOST_MESSAGE = 2**31 - 2**24  # maximum estimated size of a serialized model in bytes; the limit of protobuf is 2 GiB
APART = 2**16  # minimum size in bytes of a weight that is stored separately
_ALIGNED = 4096  # alignment in bytes of weights in an external file, so that a runtime can map them into memory
_CHUNK = 2**20
_PLAUSIBLE = 2**40  # maximum plausible size of a tensor in memory, in bytes

_WIDTHS = {"float_data": 4, "double_data": 8, "int32_data": 10, "int64_data": 10, "uint64_data": 10}
"""Numeric fields of a tensor -> maximum bytes of an element."""

_VALUES = ("raw_data", "string_data", *_WIDTHS)  # fields of a tensor that contain its elements
_BYTES = ("raw_data",)

_NUMBERS = frozenset(
    getattr(TensorProto, name)
    for name in ("FLOAT", "FLOAT16", "DOUBLE", "BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32",
                 "UINT64")
)  # fmt: skip
"""Types that NumPy supports natively."""


def tensor_bytes(tensor: TensorProto) -> int:
    """Return an upper estimate of the bytes of a tensor in a message, with its name."""
    size = 64 + 4 * len(tensor.name) + 11 * len(tensor.dims)
    if tensor.data_location == TensorProto.EXTERNAL:
        size += sum(16 + len(entry.key) + 4 * len(entry.value) for entry in tensor.external_data)
    if tensor.HasField("raw_data"):  # then no other field has elements
        return size + _raw_bytes(tensor)
    size += sum(width * len(getattr(tensor, field)) for field, width in _WIDTHS.items())
    return size + sum(len(text) + 11 for text in tensor.string_data)


def _raw_bytes(tensor: TensorProto) -> int:
    """Return the bytes of a tensor's raw data, computed from its shape because reading the field copies it."""
    try:
        size = prod(tensor.dims) * int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    except KeyError:  # a type that onnx does not know
        size = -1
    return size if 0 <= size < _PLAUSIBLE else len(tensor.raw_data)


def message_bytes(model: ModelProto) -> int:
    """Return the approximate bytes of a serialized model, without serializing its weights."""
    size = _graph_bytes(model.graph) + sum(_nodes_bytes(function.node) for function in model.functions)
    return size + sum(64 + 4 * (len(entry.key) + len(entry.value)) for entry in model.metadata_props)


def fits_message(model: ModelProto) -> bool:
    """Return whether a model can be serialized as one message; external weights are not part of it."""
    return message_bytes(model) <= MOST_MESSAGE


def _graph_bytes(graph: GraphProto) -> int:
    tensors = (*graph.initializer, *(part for sparse in graph.sparse_initializer for part in _parts(sparse)))
    infos = sum(info.ByteSize() + 8 for info in (*graph.input, *graph.output, *graph.value_info))
    return int(sum(tensor_bytes(tensor) for tensor in tensors) + infos + _nodes_bytes(graph.node))


def _nodes_bytes(nodes: Iterable[NodeProto]) -> int:
    return sum(_node_bytes(node) for node in nodes)


def _node_bytes(node: NodeProto) -> int:
    if not any(attribute.type in _HOLDING for attribute in node.attribute):
        return int(node.ByteSize() + 8)
    tensors = sum(tensor_bytes(tensor) for attribute in node.attribute for tensor in _held(attribute))
    others = sum(attribute.ByteSize() for attribute in node.attribute if attribute.type not in _HOLDING)
    names = sum(4 * len(name) + 8 for name in (*node.input, *node.output, node.name, node.op_type, node.domain))
    return int(tensors + others + names + sum(_graph_bytes(graph) for graph in subgraphs(node)) + 64)


_HOLDING = frozenset(
    getattr(AttributeProto, name)
    for name in ("TENSOR", "TENSORS", "GRAPH", "GRAPHS", "SPARSE_TENSOR", "SPARSE_TENSORS")
)


def _held(attribute: AttributeProto) -> Iterator[TensorProto]:
    if attribute.type == AttributeProto.TENSOR:
        yield attribute.t
    yield from attribute.tensors
    if attribute.type == AttributeProto.SPARSE_TENSOR:
        yield from _parts(attribute.sparse_tensor)
    for sparse in attribute.sparse_tensors:
        yield from _parts(sparse)


def _parts(sparse: SparseTensorProto) -> tuple[TensorProto, TensorProto]:
    return sparse.values, sparse.indices


def copy_except(source: Message, target: Message, but: Iterable[str]) -> None:
    """Copy the fields of a message into an empty one, except some, whose values are not read either."""
    left_out = frozenset(but)
    for field in source.DESCRIPTOR.fields:
        if field.name in left_out or not _is_set(source, field.name):
            continue
        value = getattr(source, field.name)
        if hasattr(value, "MergeFrom"):  # a message or repeated field
            getattr(target, field.name).MergeFrom(value)
        else:
            setattr(target, field.name, value)


def _is_set(message: Message, field: str) -> bool:
    try:
        return bool(message.HasField(field))
    except ValueError:  # a repeated field
        return len(getattr(message, field)) > 0


def copy_without_values(source: TensorProto, target: TensorProto) -> None:
    """Copy a tensor without its elements, which may be gigabytes."""
    if is_light(source):
        target.CopyFrom(source)
        clear_values(target)
        return
    copy_except(source, target, _VALUES)


def clear_values(tensor: TensorProto) -> None:
    """Remove a tensor's elements, in place."""
    for field in _VALUES:
        tensor.ClearField(field)


def is_light(tensor: TensorProto) -> bool:
    """Return whether a tensor may be copied as a message: it is small, or has no elements."""
    if tensor.data_type == TensorProto.STRING:
        return False
    return prod(tensor.dims) <= _COPIED or (
        tensor.data_location == TensorProto.EXTERNAL and not tensor.HasField("raw_data")
    )


_COPIED = 2**13  # elements of a tensor that is copied at once: field by field takes longer


def copy_tensor(source: TensorProto, target: TensorProto, name: str = "") -> None:
    """Copy a tensor of any size into an empty one, optionally with another name."""
    if is_light(source):
        target.CopyFrom(source)
    else:
        copy_except(source, target, _BYTES)
        if source.HasField("raw_data"):
            target.raw_data = source.raw_data
    if name:
        target.name = name


def add_tensors(graph: GraphProto, tensors: Iterable[TensorProto]) -> None:
    """Append copies of tensors of any size to a graph's initializers."""
    for tensor in tensors:
        copy_tensor(tensor, graph.initializer.add())


def put_array(tensor: TensorProto, array: Array, name: str) -> None:
    """Replace the content of a tensor by an array of NumPy's own types, of any size, in place."""
    tensor.Clear()
    tensor.name = name
    tensor.dims.extend(array.shape)
    put_raw(tensor, helper.np_dtype_to_tensor_dtype(array.dtype), array.tobytes())


def put_raw(tensor: TensorProto, data_type: int, raw: bytes) -> None:
    """Replace a tensor's type and elements, little-endian and of its shape, in place."""
    clear_values(tensor)
    tensor.data_type, tensor.raw_data = data_type, raw


def keep_tensors(graph: GraphProto, keep: Callable[[TensorProto], bool]) -> None:
    """Remove the other initializers, in place; the kept ones are not copied."""
    gone = [i for i, tensor in enumerate(graph.initializer) if not keep(tensor)]
    for i in reversed(gone):
        del graph.initializer[i]


def copy_model(model: ModelProto) -> ModelProto:
    """Return a copy of a model of any size."""
    if all(is_light(tensor) for tensor in model.graph.initializer):
        copy = ModelProto()
        copy.CopyFrom(model)
        return copy
    copy = copy_without_initializers(model)
    add_tensors(copy.graph, model.graph.initializer)
    return copy


def copy_without_initializers(model: ModelProto) -> ModelProto:
    """Return a copy of a model without the initializers of its main graph."""
    copy = ModelProto()
    copy_except(model, copy, ("graph",))
    copy.graph.SetInParent()
    copy_except(model.graph, copy.graph, ("initializer",))
    return copy


def lift_constants(model: ModelProto, where: Path | str) -> ModelProto:
    """Convert large Constant nodes to initializers, in place, if a model exceeds one message; return the model."""
    if fits_message(model):
        return model
    left = []
    for node in model.graph.node:
        value = next((a.t for a in node.attribute if a.name == "value"), None) if node.op_type == "Constant" else None
        if value is None or tensor_bytes(value) < APART:
            left.append(node)
            continue
        copy_tensor(value, model.graph.initializer.add(), node.output[0])
    if len(left) < len(model.graph.node):
        model.ir_version = max(model.ir_version, 4)  # before IR 4, initializers must be inputs
        replace_items(model.graph.node, left)
    rest = message_bytes(model) - sum(tensor_bytes(tensor) for tensor in model.graph.initializer)
    if rest > MOST_MESSAGE:
        found = f"{rest / 2**20:.0f} MB of weights, the limit is {MOST_MESSAGE / 2**20:.0f} MB"
        raise ModelError(f"{where}: its nodes contain {found}; export them as initializers of the main graph")
    return model


def split_large_weights(model: ModelProto) -> tuple[ModelProto, dict[str, TensorProto]]:
    """Return a copy in which large initializers are external without a file, and the originals of these by name."""
    light = copy_without_initializers(model)
    apart: dict[str, TensorProto] = {}
    for tensor in model.graph.initializer:
        kept = light.graph.initializer.add()
        if (
            tensor_bytes(tensor) < APART
            or tensor.data_type not in _NUMBERS
            or tensor.data_location == TensorProto.EXTERNAL
        ):
            copy_tensor(tensor, kept)
            continue
        copy_without_values(tensor, kept)
        kept.data_location = TensorProto.EXTERNAL
        kept.external_data.add(key="location", value=tensor.name)
        apart[tensor.name] = tensor
    return light, apart


def join_large_weights(light: ModelProto, apart: dict[str, TensorProto]) -> ModelProto:
    """Undo :func:`split_large_weights`, in place, and return the model."""
    for tensor in light.graph.initializer:
        source = apart.get(tensor.name)
        if source is not None:
            tensor.Clear()
            copy_tensor(source, tensor)
    return light


def arrays_of(tensors: dict[str, TensorProto]) -> dict[str, Array]:
    """Return the values of tensors by name; raise ModelError if the number of elements does not match the shape."""
    try:
        return {name: np.ascontiguousarray(numpy_helper.to_array(tensor)) for name, tensor in tensors.items()}
    except ValueError as error:
        raise ModelError(f"a weight does not match its shape: {error}; export the model again") from error


def write_with_external_weights(model: ModelProto, path: Path, data: BinaryIO, location: str) -> None:
    """Write a model, and its large weights to the empty file ``data`` named ``location``, sparse if they are zero.

    Raise ModelError if the rest of the model exceeds one message, OSError if a file cannot be written.
    """
    light, apart = split_large_weights(model)
    external = {tensor.name: tensor for tensor in light.graph.initializer if tensor.name in apart}
    end = 0
    for name, tensor in apart.items():
        start = -(-end // _ALIGNED) * _ALIGNED
        data.seek(start)
        end = start + _write(data, memoryview(_little(tensor)))
        del external[name].external_data[:]
        for key, value in (("location", location), ("offset", str(start)), ("length", str(end - start))):
            external[name].external_data.add(key=key, value=value)
    data.truncate(end)
    if not fits_message(light):
        raise ModelError(f"{path}: the model without its weights exceeds 2 GB, the limit of ONNX files")
    path.write_bytes(light.SerializeToString())


def _little(tensor: TensorProto) -> bytes:
    """Return a tensor's elements in little-endian order."""
    if tensor.HasField("raw_data"):
        return tensor.raw_data
    array: np.ndarray[Any, np.dtype[Any]] = numpy_helper.to_array(tensor)
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _write(file: BinaryIO, content: memoryview) -> int:
    zeros = bytes(_CHUNK)
    for start in range(0, len(content), _CHUNK):
        part = content[start : start + _CHUNK]
        if part == zeros[: len(part)]:
            file.seek(len(part), os.SEEK_CUR)
        else:
            file.write(part)
    return len(content)
