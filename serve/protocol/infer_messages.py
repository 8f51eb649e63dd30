"""Requests and answers of inference as protobuf messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from engine import Array, TensorSpec
from serve.errors import invalid
from serve.protocol.datatypes import (
    check_bytes,
    datatype_of,
    dtype_of,
    from_bytes,
    from_json,
    has_nan,
    shape_of,
    to_bytes,
)
from serve.protocol.messages import messages
from serve.protocol.request import InferRequest, WantedOutput, best_classes
from serve.settings import Limits

_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""Field of ``InferTensorContents`` by data type; FP16 is always raw."""

LARGE = 1 << 15
"""Bytes of a message from which its tensors are not decoded by the protobuf library."""

_RAW, _DELIMITED = 7, 2
"""Number of the field ``raw_input_contents``; wire type of all fields of the message."""


def decoded(kind: str, content: bytes) -> Any:
    """Return the message of some bytes; ``kind``: its name. Raises ServeError if they are not such a message."""
    from google.protobuf.message import DecodeError

    try:
        return getattr(messages(), kind).FromString(content)
    except DecodeError as error:
        raise invalid(f"the request is not a {kind} of the protocol") from error


class InferMessage(NamedTuple):
    """A message of inference; ``raw``: its ``raw_input_contents``, which share the memory of the received bytes."""

    message: Any
    raw: Sequence[bytes | memoryview]


def decoded_infer(content: bytes) -> InferMessage:
    """Return the request of inference of some bytes. Raises ServeError if they are none.

    The protobuf library copies each tensor twice, when it decodes and when it returns it, so the tensors of large
    messages are cut out before.
    """
    rest, raw = _without_raw(content) if len(content) >= LARGE else (content, [])
    message = decoded("ModelInferRequest", rest)
    return InferMessage(message, raw or message.raw_input_contents)


def _without_raw(content: bytes) -> tuple[bytes, list[memoryview]]:
    """Return a message without its ``raw_input_contents``, and these; unchanged if it is not of the usual form."""
    view, place, rest, raw = memoryview(content), 0, list[memoryview](), list[memoryview]()
    try:
        while place < len(content):
            begin = place
            if content[place] & 7 != _DELIMITED or content[place] > 0x7F:  # a form that these messages do not have
                return content, []
            size, start = _varint(content, place + 1)
            place = start + size
            if place > len(content):
                return content, []
            if content[begin] >> 3 == _RAW:
                raw.append(view[start:place])
            else:
                rest.append(view[begin:place])
    except IndexError:  # a message that ends too early, which the library reports
        return content, []
    return b"".join(rest), raw


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """Return the number at a place, and where it ends; raise IndexError if it has too many bytes."""
    found = 0
    for shift in range(0, 70, 7):
        byte = content[place]
        place += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, place
    raise IndexError


def parsed_request(given: InferMessage, limits: Limits) -> InferRequest:
    """Return the request of a message. Raises ServeError if it does not follow the protocol."""
    message, raw = given
    request = InferRequest(message.model_name, message.id)
    request.take_parameters({name: _value(one) for name, one in message.parameters.items()})
    if len(raw) and len(raw) != len(message.inputs):
        raise invalid(f"raw_input_contents has {len(raw)} tensors for {len(message.inputs)} inputs; give one for each")
    for place, one in enumerate(message.inputs):
        if one.name in request.inputs:
            raise invalid(f"input {one.name!r} is given twice")
        request.inputs[one.name] = _tensor(one, raw[place] if len(raw) else None, limits)
    for one in message.outputs:
        classes = _value(one.parameters["classification"]) if "classification" in one.parameters else 0
        if not isinstance(classes, int) or isinstance(classes, bool) or classes < 0:
            raise invalid(f"output {one.name!r}: classification must be a number of classes")
        request.outputs.append(WantedOutput(one.name, True, classes))
    return request


def _tensor(one: Any, raw: bytes | memoryview | None, limits: Limits) -> Array:
    dtype, shape = dtype_of(one.datatype, one.name), shape_of(list(one.shape), one.name)
    check_bytes(shape, dtype, limits.tensor, one.name)
    if "shared_memory_region" in one.parameters:
        raise invalid(f"input {one.name!r}: shared memory is not supported; send the tensor")
    if raw is not None:
        if one.HasField("contents"):
            raise invalid(f"input {one.name!r} has contents, and the message has raw_input_contents; give one of them")
        return from_bytes(raw, shape, dtype, one.name)
    field = _CONTENTS.get(one.datatype)
    if field is None:
        raise invalid(f"input {one.name!r} of {one.datatype} must be in raw_input_contents")
    given = [name.name for name, _ in one.contents.ListFields()]
    if any(name != field for name in given):
        raise invalid(f"input {one.name!r} of {one.datatype} must be in contents.{field}, not in {given[0]}")
    return _of_contents(getattr(one.contents, field), shape, dtype, one.name)


def _of_contents(values: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> Array:
    if not dtype.hasobject:
        return from_json(list(values), shape, dtype, name)
    try:
        return from_json([one.decode() for one in values], shape, dtype, name)
    except UnicodeDecodeError as error:
        raise invalid(f"input {name!r} is not UTF-8 text, as this model takes") from error


def _value(parameter: Any) -> Any:
    chosen = parameter.WhichOneof("parameter_choice")
    return None if chosen is None else getattr(parameter, chosen)


def response_of(
    request: InferRequest,
    specs: Sequence[TensorSpec],
    arrays: Sequence[Array],
    labels: Sequence[str] | None,
    version: str,
) -> Any:
    """Return the message of an answer; tensors are raw.

    Args:
        request: which is answered. specs, arrays: of all outputs of the model. labels: names of classes, if known.
        version: of the model.
    """
    by_name = {spec.name: array for spec, array in zip(specs, arrays, strict=True)}
    found = messages().ModelInferResponse(model_name=request.model, model_version=version, id=request.id)
    for one in request.outputs or [WantedOutput(spec.name) for spec in specs]:
        array = by_name[one.name]
        if one.classes:
            array = best_classes(array, one.classes, labels)
        tensor = found.outputs.add(name=one.name, datatype=datatype_of(array.dtype), shape=array.shape)
        if has_nan(array):
            tensor.parameters["nan"].bool_param = True
        found.raw_output_contents.append(to_bytes(array))
    return found
