"""Requests of the network protocols: changed bytes of good ones, and fields with values of other kinds."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.case import Case
from tests.fuzz.makers.bytes_of import mutated

WARM = (
    *("numpy", "onnxruntime", "engine", "serve.http.bodies", "serve.http.forms", "serve.http.infer_body"),
    *("serve.protocol.infer_messages", "serve.protocol.messages"),
)

ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2**31,
        2**63,
        2**64,
        10**400,
        1.5,
        -0.0,
        1e308,
        "",
        "x",
        "\u202e",
        "\ud800",
        "a" * 5000,
    ),
    *(
        [],
        {},
        [[]],
        [None],
        [1, [2]],
        [[1], [2, 3]],
        [True, 1],
        ["1"],
        {"a": 1},
        [2**64],
        [1e39],
        [0] * 70,
        [[[[[[]]]]]],
    ),
)
"""Values in place of others."""

DATATYPES = ("FP32", "FP64", "FP16", "INT8", "UINT64", "BOOL", "BYTES", "BF16")


def make(rng: random.Random, folder: Path, number: int) -> Case:
    """Write a request, and take it."""
    kind = rng.choice(("rest", "rest", "grpc", "completion", "form"))
    if kind == "rest":
        content, header, what = _rest(rng)
    elif kind == "grpc":
        (content, what), header = _grpc(rng), []
    elif kind == "form":
        content, header, what = _form(rng)
    else:
        (content, what), header = _completion(rng), []
    if rng.random() < 0.4:
        content, changes = mutated(content, rng)
        what = f"{what}; {changes}"
    (folder / "body").write_bytes(content)
    words = ("-m", "tests.fuzz.run_serving", kind, str(folder / "body"), *header)
    return Case(words, what, codes=frozenset({0, 2}))


def _rest(rng: random.Random) -> tuple[bytes, list[str], str]:
    rows = rng.choice((0, 1, 2))
    image = np.zeros((rows, 3, 32, 32), np.float32)
    entry: dict[str, Any] = {"name": "input", "shape": list(image.shape), "datatype": "FP32"}
    fields: dict[str, Any] = {"inputs": [entry], "id": "1", "parameters": {"priority": 1, "timeout": 5}}
    if rng.random() < 0.3:
        fields["parameters"] |= {"sequence_id": rng.choice((1, "a")), "sequence_start": True, "sequence_end": False}
    if rng.random() < 0.3:
        output = {"name": rng.choice(("output", "x")), "parameters": {"classification": rng.choice((1, 5, 100))}}
        fields["outputs"] = [output]
    is_binary = rng.random() < 0.5
    if is_binary:
        entry["parameters"] = {"binary_data_size": image.nbytes}
    else:
        entry["data"] = image.ravel().tolist()
    what = _changed(fields, rng) if rng.random() < 0.7 else "unchanged"
    head = _text(fields)
    if not is_binary:
        return head, [], what
    size = len(head) if rng.random() < 0.8 else rng.choice((0, -1, 1, len(head) - 1, len(head) + 4, 2**70))
    return head + image.tobytes(), [str(size)], f"{what}, binary, header {size}"


def _changed(fields: dict[str, Any], rng: random.Random) -> str:
    """Replace, remove or add a field somewhere; return what was done."""
    holders: list[Any] = [fields]
    for holder in holders:
        inner = holder.values() if isinstance(holder, dict) else holder
        holders += [one for one in inner if isinstance(one, (dict, list)) and len(one) < 50]
    holder = rng.choice([one for one in holders if len(one)])
    key: Any = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
    if rng.random() < 0.2:
        del holder[key]
        return f"without {key!r}"
    holder[key] = rng.choice(DATATYPES) if key == "datatype" and rng.random() < 0.6 else rng.choice(ODD)
    return f"{key!r}: {str(holder[key])[:40]!r}"


def _text(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode("utf-8", "surrogatepass")


def _form(rng: random.Random) -> tuple[bytes, list[str], str]:
    """Return a form of some files; the header is its content type."""
    names = ("a.png", "a.wav", "a.pkl", "", "../x.png", "a" * 5000, "\r\nx: y", "\u202e.png")
    kinds = ("image/png", "text/plain", "application/octet-stream", "image/png; charset=\x00", "")
    parts = []
    for _ in range(rng.choice((0, 1, 2, 70))):
        head = f'Content-Disposition: form-data; name="f"; filename="{rng.choice(names)}"'
        lines = [head, f"Content-Type: {rng.choice(kinds)}"][: rng.choice((0, 1, 2, 2))]
        parts.append(("\r\n".join(lines) + "\r\n\r\n").encode() + rng.randbytes(rng.choice((0, 5, 500))) + b"\r\n")
    content = b"".join(b"--b\r\n" + part for part in parts) + rng.choice((b"--b--\r\n", b"--b--", b"--b", b""))
    kind = f"multipart/form-data{rng.choice(('; boundary=b', '; boundary=b', '; boundary=', '; boundary=c', ''))}"
    return content, [kind], f"form of {len(parts)} parts, {kind}"


def _completion(rng: random.Random) -> tuple[bytes, str]:
    fields = {"model": "m", "prompt": "a", "max_tokens": 3, "temperature": 0.5, "stop": ["b"], "seed": 1, "n": 1}
    what = _changed(fields, rng)
    return _text(fields), f"completion, {what}"


def _grpc(rng: random.Random) -> tuple[bytes, str]:
    from serve.protocol.messages import messages

    image = np.zeros((rng.choice((1, 2)), 3, 32, 32), np.float32)
    message = messages().ModelInferRequest(model_name="digits", id="1")
    tensor = message.inputs.add(name="input", datatype=rng.choice(("FP32", "FP32", *DATATYPES)))
    tensor.shape.extend(
        image.shape if rng.random() < 0.6 else [rng.choice((-1, 0, 1, 3, 2**62)) for _ in range(rng.randrange(40))]
    )
    if rng.random() < 0.6:
        message.raw_input_contents.append(image.tobytes())
    if rng.random() < 0.4:
        field = rng.choice(("fp32_contents", "int_contents", "bool_contents", "fp64_contents"))
        getattr(tensor.contents, field).extend([1] * image.size)
    if rng.random() < 0.3:
        message.parameters["priority"].int64_param = rng.choice((-1, 0, 5, 2**62))
    return message.SerializeToString(), f"grpc, {tensor.datatype} {list(tensor.shape)[:8]}"
