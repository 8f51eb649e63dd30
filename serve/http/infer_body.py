"""Inference over REST: requests and answers in JSON, with tensors in JSON or as bytes after it (binary extension)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from engine import Array, TensorSpec
from serve.errors import invalid
from serve.http.bodies import parse_object
from serve.protocol.datatypes import (
    check_bytes,
    datatype_of,
    dtype_of,
    from_bytes,
    from_json,
    has_nan,
    shape_of,
    to_bytes,
    to_json,
)
from serve.protocol.request import InferRequest, WantedOutput, best_classes
from serve.settings import Limits

HEADER = "inference-header-content-length"
"""HTTP header with the bytes of the JSON part of a body that has binary tensors after it."""


class Encoded(NamedTuple):
    """The body of an answer; ``json_bytes``: length of its JSON part if binary tensors follow, else ``None``."""

    body: bytes
    json_bytes: int | None


def parse_infer(model: str, body: bytes, header: str | None, limits: Limits) -> InferRequest:
    """Return the request of a body.

    Args:
        model: name. body: as received. header: value of :data:`HEADER`, if sent. limits: of tensors.

    Raises ServeError if the body does not follow the protocol.
    """
    split = _json_bytes(header, len(body))
    fields = parse_object(memoryview(body)[:split])
    request = InferRequest(model, _text(fields.get("id", ""), "id"))
    parameters = _object(fields.get("parameters"), "parameters")
    request.take_parameters(parameters)
    request.binary = parameters.get("binary_data_output") is True
    rest = memoryview(body)[split:]
    for entry in _objects(fields.get("inputs"), "inputs"):
        name = _text(entry.get("name"), "name of an input")
        if name in request.inputs:
            raise invalid(f"input {name!r} is given twice")
        array, taken = _input(entry, name, rest, limits)
        request.inputs[name] = array
        rest = rest[taken:]
    if len(rest):
        raise invalid(f"{len(rest)} bytes follow the last binary input; check binary_data_size and {HEADER}")
    request.outputs = [_wanted(entry, request.binary) for entry in _objects(fields.get("outputs", []), "outputs")]
    return request


def _json_bytes(header: str | None, size: int) -> int:
    if header is None:
        return size
    if not header.isascii() or not header.isdigit() or len(header) > 18 or int(header) > size:
        raise invalid(f"{HEADER} {header[:40]!r} must be a number of bytes, at most the {size} of the body")
    return int(header)


def _input(entry: Mapping[str, Any], name: str, rest: memoryview, limits: Limits) -> tuple[Array, int]:
    """Return the tensor of an input, and how many of the binary bytes it has taken."""
    dtype, shape = dtype_of(entry.get("datatype"), name), shape_of(entry.get("shape"), name)
    check_bytes(shape, dtype, limits.tensor, name)
    parameters = _object(entry.get("parameters"), f"parameters of input {name!r}")
    if "shared_memory_region" in parameters:
        raise invalid(f"input {name!r}: shared memory is not supported; send the tensor")
    size = parameters.get("binary_data_size")
    if size is None:
        found = from_json(entry.get("data"), shape, dtype, name)
        if dtype.kind == "f" and bool(np.isinf(found).any()):  # of a number such as 1e999
            raise invalid(f"input {name!r}: data holds values beyond {datatype_of(dtype)}")
        return found, 0
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= len(rest):
        raise invalid(
            f"input {name!r}: binary_data_size must be a number of bytes, at most the {len(rest)} that follow"
        )
    if "data" in entry:
        raise invalid(f"input {name!r} has both data and binary_data_size; give one of them")
    return from_bytes(rest[:size], shape, dtype, name), size


def _wanted(entry: Mapping[str, Any], binary: bool) -> WantedOutput:
    name = _text(entry.get("name"), "name of an output")
    parameters = _object(entry.get("parameters"), f"parameters of output {name!r}")
    if "shared_memory_region" in parameters:
        raise invalid(f"output {name!r}: shared memory is not supported; take the tensor")
    classes = parameters.get("classification", 0)
    if not isinstance(classes, int) or isinstance(classes, bool) or classes < 0:
        raise invalid(f"output {name!r}: classification must be a number of classes")
    asked = parameters.get("binary_data")
    return WantedOutput(name, binary if asked is None else asked is True, classes)


def encode_infer(
    request: InferRequest,
    specs: Sequence[TensorSpec],
    arrays: Sequence[Array],
    labels: Sequence[str] | None,
    version: str,
) -> Encoded:
    """Return the body of an answer.

    Args:
        request: which is answered. specs, arrays: of all outputs of the model. labels: names of classes, if known.
        version: of the model.

    Raises ServeError if an output cannot be written as asked for.
    """
    by_name = {spec.name: array for spec, array in zip(specs, arrays, strict=True)}
    wanted = request.outputs or [WantedOutput(spec.name, request.binary) for spec in specs]
    entries, binaries = list[dict[str, Any]](), list[bytes]()
    for one in wanted:
        array = by_name[one.name]
        if one.classes:
            array = best_classes(array, one.classes, labels)
        entry: dict[str, Any] = {"name": one.name, "datatype": datatype_of(array.dtype), "shape": list(array.shape)}
        if one.binary:
            data = to_bytes(array)
            entry["parameters"] = {"binary_data_size": len(data), **({"nan": True} if has_nan(array) else {})}
            binaries.append(data)
        else:
            entry["data"] = to_json(array, one.name)
        entries.append(entry)
    named = {"id": request.id} if request.id else {}
    head = json.dumps({"model_name": request.model, "model_version": version, **named, "outputs": entries}).encode()
    return Encoded(b"".join([head, *binaries]), len(head) if binaries else None)


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or len(value) > 4096:
        raise invalid(f"{what} must be a text of at most 4096 characters")
    return value


def _object(value: object, what: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid(f"{what} must be a JSON object")
    return value


def _objects(value: object, what: str) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise invalid(f"{what} must be a list of JSON objects")
    return value
