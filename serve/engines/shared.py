"""Memory that the server and an engine process share, for the arrays of a call: they are copied once, and no more.

The server writes the arrays of a call into a free slot, and the engine process reads them there; the slot is free again
when the call is answered. Arrays that are few bytes, or more than a slot has, are sent over the socket.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Sequence

SLOTS, SLOT = 2, 16 << 20
"""Number of slots, as many as calls that a process may hold, and bytes of each; unused pages take no memory."""

LEAST = 1 << 15
"""Bytes from which a slot is used."""


def new_memory() -> int:
    """Return a file descriptor of memory for all slots."""
    if hasattr(os, "memfd_create"):
        found = os.memfd_create("teco_serve")
    else:
        with tempfile.TemporaryFile() as file:
            found = os.dup(file.fileno())
    os.ftruncate(found, SLOTS * SLOT)
    return found


class Slots:
    """The server's side: which call has which slot."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, SLOTS * SLOT)
        self._free = list(range(SLOTS))
        self._of_call: dict[int, int] = {}

    def put(self, call: int, pieces: Sequence[bytes | memoryview], size: int) -> int | None:
        """Write the pieces of a call one after the other; return where they begin, or ``None`` if they do not fit."""
        if not LEAST <= size <= SLOT or not self._free:
            return None
        slot = self._of_call[call] = self._free.pop()
        begin = place = slot * SLOT
        for piece in pieces:
            self._memory[place : place + len(piece)] = piece
            place += len(piece)
        return begin

    def release(self, call: int) -> None:
        """Free the slot of a call that was answered, if it has one."""
        slot = self._of_call.pop(call, None)
        if slot is not None:
            self._free.append(slot)

    def close(self) -> None:
        """Release the memory."""
        self._memory.close()


def opened_memory(descriptor: int) -> memoryview:
    """Return the memory of all slots in an engine process."""
    return memoryview(mmap.mmap(descriptor, SLOTS * SLOT))
