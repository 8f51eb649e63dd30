"""Protobuf messages changed field by field, according to their descriptors."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

NUMBERS = (0, 1, -1, 2, 7, 63, 64, 65, 127, 255, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63), 999)
FLOATS = (0.0, -1.0, 1e38, -1e38, float("nan"), float("inf"), float("-inf"), 1e-45)
TEXTS = (
    "",
    "x",
    "nobody",
    "a" * 5000,
    "\x1b[31mred\x07",
    "line\nbreak",
    "\u202ertl",
    "ai.onnx.ml",
    "com.microsoft",
    "../../etc/passwd",
    "/dev/zero",
    "\u00e9\u4e2d\U0001f600",
    "%s{}%d",
)
WHOLE = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)
REAL = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)
UNSIGNED = (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64)


def changed(message: Message, rng: random.Random) -> str:
    """Change one field of a message, or of a nested one, and return its description."""
    target = rng.choice(list(within(message)))
    there = [field for field, _ in target.ListFields()]
    field = rng.choice(there if there and rng.random() < 0.75 else target.DESCRIPTOR.fields)
    how = rng.choice(("set", "set", "set", "removed", "repeated"))
    name = f"{target.DESCRIPTOR.name}.{field.name}"
    if how == "removed":
        target.ClearField(field.name)
        return f"{name} removed"
    if _is_repeated(field):
        return f"{name} {_in_a_list(getattr(target, field.name), field, how, rng)}"
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        getattr(target, field.name).SetInParent()
        return f"{name} there"
    value = _value(field, rng)
    setattr(target, field.name, value)
    return f"{name} = {_short(value)}"


def within(message: Message) -> Iterator[Message]:
    """Yield a message and all within it."""
    waiting = [message]
    while waiting:
        one = waiting.pop()
        yield one
        for field, value in one.ListFields():
            if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
                waiting += list(value) if _is_repeated(field) else [value]


def _is_repeated(field: Any) -> bool:
    repeated = field.is_repeated
    return bool(repeated() if callable(repeated) else repeated)


def _in_a_list(values: Any, field: Any, how: str, rng: random.Random) -> str:
    is_message = field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
    if not values:
        if is_message:
            values.add()
        else:
            values.append(_value(field, rng))
        return "begun"
    place = rng.randrange(len(values))
    if how == "repeated":
        times = rng.choice((1, 2, 70))
        values.extend([values[place]] * times)
        return f"[{place}] {times} times more"
    if is_message or rng.random() < 0.3:
        del values[place]
        return f"[{place}] removed"
    values[place] = _value(field, rng)
    return f"[{place}] = {_short(values[place])}"


def _value(field: Any, rng: random.Random) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return rng.choice([number.number for number in field.enum_type.values])
    if kind in WHOLE or kind in UNSIGNED:
        bits = 32 if kind in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32) else 64
        least, most = (0, 2**bits - 1) if kind in UNSIGNED else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return rng.choice([number for number in (*NUMBERS, rng.randint(0, 30)) if least <= number <= most])
    if kind in REAL:
        return rng.choice(FLOATS)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return rng.random() < 0.5
    text = rng.choice(TEXTS)
    return text if field.type == FieldDescriptor.TYPE_STRING else rng.randbytes(rng.choice((0, 1, 4, 7, 64)))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 40 else f"{text[:37]}..."
