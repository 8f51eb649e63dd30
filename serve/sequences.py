"""Open sequences of a model: the server holds the state of each between its requests.

So any engine process can compute the next request, and a lost process loses no sequence. A request that fails, is late
or is given up leaves the state as it was: it can be sent again.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from serve.errors import ServeError, invalid
from serve.protocol.request import InSequence
from utils.tasks.prepared import SequenceState


@dataclass(eq=False, slots=True)
class Turn:
    """An open sequence.

    Attributes:
        state: after its last request; ``None``: it has had none.
        used: time of its last request (``time.monotonic``). users: requests that wait or are computed.
    """

    state: SequenceState | None = None
    used: float = field(default_factory=time.monotonic)
    users: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class OpenSequences:
    """The open sequences of a model.

    Args:
        most: number of them. seconds: without a request after which one is closed.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._open: OrderedDict[str | int, Turn] = OrderedDict()

    def __len__(self) -> int:
        self._close_old()
        return len(self._open)

    def clear(self) -> None:
        """Close all."""
        self._open.clear()

    @asynccontextmanager
    async def turn(self, asked: InSequence) -> AsyncIterator[Turn]:
        """Wait until the requests of a sequence that came before are answered; the block computes the next one.

        The block sets ``state``; if it raises an error, the sequence stays as it was.

        Raises ServeError if the sequence is not open and this is not its start, or too many are open.
        """
        found = self._found(asked)
        found.users += 1
        try:
            async with found.lock:
                if self._open.get(asked.id) is not found:  # a request that came before was its last one
                    if not asked.start:
                        raise _not_open(asked)
                    self._open[asked.id] = found
                before = found.state
                if asked.start:
                    found.state = None
                try:
                    yield found
                except BaseException:
                    found.state = before
                    if before is None and found.users == 1:
                        self._open.pop(asked.id, None)
                    raise
                found.used = time.monotonic()
                if asked.end:
                    found.state = None
                    self._open.pop(asked.id, None)
                elif asked.id in self._open:
                    self._open.move_to_end(asked.id)
        finally:
            found.users -= 1

    def _found(self, asked: InSequence) -> Turn:
        self._close_old()
        found = self._open.get(asked.id)
        if found is not None:
            return found
        if not asked.start:
            raise _not_open(asked)
        if len(self._open) >= self._most:
            raise ServeError("full", f"{self._most} sequences are open already (--max_sequences); try again later")
        found = self._open[asked.id] = Turn()
        return found

    def _close_old(self) -> None:
        now, old = time.monotonic(), list[str | int]()
        for name, one in self._open.items():
            if now - one.used < self._seconds:
                break
            if not one.users:
                old.append(name)
        for name in old:
            del self._open[name]


def _not_open(asked: InSequence) -> ServeError:
    return invalid(
        f"sequence {asked.id!r} is not open: it has ended, or had no request for a while; begin with sequence_start"
    )
