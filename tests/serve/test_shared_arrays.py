"""Arrays of a call in memory that both processes share, and over the socket."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from engine import Array
from serve.engines.shared import LEAST, SLOT, SLOTS, Slots, new_memory, opened_memory
from serve.engines.wire import PREFIX, body_of, packed, unpacked

ARRAYS: list[Array] = [
    np.arange(70_000, dtype=np.float32).reshape(7, 100, 100),
    np.array([["a", "\u00e9\u4e2d"], ["", "d"]], object),
    np.array(3, np.int64),
    np.zeros((0, 4), np.float16),
    np.arange(24, dtype=np.uint8).reshape(4, 6)[:, ::2],
]


@pytest.mark.parametrize("is_shared", [False, True])
def test_arrays_arrive_as_they_were(is_shared: bool) -> None:
    descriptor = new_memory()
    slots, memory = Slots(descriptor), opened_memory(descriptor)
    os.close(descriptor)
    body = body_of(ARRAYS)
    place = slots.put(1, body.pieces, body.size) if is_shared else None
    message = b"".join(map(bytes, packed({"kind": "infer"}, body, place)))
    head, size = PREFIX.unpack(message[: PREFIX.size])
    assert size == (0 if is_shared else body.size)
    found = unpacked(message[PREFIX.size :][:head], message[PREFIX.size + head :], memory)
    assert found.header == {"kind": "infer"}
    for array, sent in zip(found.arrays, ARRAYS, strict=True):
        assert (array.dtype, array.shape, array.tolist()) == (sent.dtype, sent.shape, sent.tolist())
    del found, array
    slots.close()


def test_slots_are_used_again() -> None:
    descriptor = new_memory()
    slots = Slots(descriptor)
    os.close(descriptor)
    piece = bytes(LEAST)
    places = [slots.put(call, [piece], len(piece)) for call in range(SLOTS)]
    assert sorted(places) == [slot * SLOT for slot in range(SLOTS)]
    assert slots.put(SLOTS, [piece], len(piece)) is None  # goes over the socket
    slots.release(SLOTS)  # which has none
    slots.release(0)
    assert slots.put(SLOTS + 1, [piece], len(piece)) == places[0]
    slots.release(1)
    assert slots.put(SLOTS + 2, [piece[1:]], len(piece) - 1) is None  # too few bytes
    assert slots.put(SLOTS + 3, [], SLOT + 1) is None  # too many
    slots.close()


def test_a_message_without_arrays() -> None:
    message = b"".join(map(bytes, packed({"call": 1}, body_of([]))))
    head, size = PREFIX.unpack(message[: PREFIX.size])
    assert (json.loads(message[PREFIX.size :]), size) == ({"call": 1, "arrays": []}, 0)
    assert unpacked(message[PREFIX.size :][:head], b"").arrays == []
