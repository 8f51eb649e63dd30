"""An engine process: open one model, and answer the calls that come over a socket until it is closed."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from engine import Array
from serve.engines.calls import Calls, failure_of, limit_pixels
from serve.engines.opened import opened
from serve.engines.shared import opened_memory
from serve.engines.wire import PREFIX, Message, body_of, packed, unpacked
from serve.source import ModelSource

_PIECES = 512  # pieces of a message passed to the system at once; it takes at most 1024


class Link:
    """The socket to the server, and the memory that both processes share."""

    def __init__(self, sock: socket.socket, memory: memoryview) -> None:
        self._sock, self._memory = sock, memory
        self._ahead: deque[Message] = deque()
        self._cancelled: set[int] = set()
        self._readable = select.poll()  # not select(), which takes only small descriptors
        self._readable.register(sock, select.POLLIN)

    def watch(self) -> None:
        """End this process when the server has closed the socket, also during a call, which cannot be waited for."""
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._sock, getattr(select, "POLLRDHUP", select.POLLHUP))
        poll.poll()
        os._exit(0)

    def messages(self) -> Iterator[Message]:
        """Yield the calls of the server; the process ends when the server does."""
        while True:
            message = self._ahead.popleft() if self._ahead else self._next()
            if message.header["kind"] != "cancel":  # of a call that has ended
                yield message

    def is_cancelled(self, call: int) -> bool:
        """Return whether the server does not want the result of a running call any more."""
        while self._readable.poll(0):
            message = self._next()
            if message.header["kind"] == "cancel":
                self._cancelled.add(message.header["call"])
            else:
                self._ahead.append(message)
        return call in self._cancelled

    def forget(self, call: int) -> None:
        """Forget whether a call was cancelled, as it has ended."""
        self._cancelled.discard(call)

    def send(self, header: dict[str, Any], arrays: Sequence[Array] = ()) -> None:
        """Send a message."""
        pieces = [memoryview(piece).cast("B") for piece in packed(header, body_of(arrays)) if len(piece)]
        while pieces:
            sent = self._sock.sendmsg(pieces[:_PIECES])
            while sent:
                taken = min(sent, len(pieces[0]))
                pieces[0] = pieces[0][taken:]
                sent -= taken
                if not len(pieces[0]):
                    pieces.pop(0)

    def _next(self) -> Message:
        try:
            head, body = PREFIX.unpack(self._exactly(PREFIX.size))
            return unpacked(bytes(self._exactly(head)), self._exactly(body), self._memory)
        except (OSError, EOFError):
            os._exit(0)  # the server has ended, or wants this process to

    def _exactly(self, size: int) -> bytearray:
        found = bytearray(size)
        view = memoryview(found)
        while view:
            count = self._sock.recv_into(view)
            if not count:
                raise EOFError
            view = view[count:]
        return found


def main(descriptor: int, memory: int) -> None:
    """Serve one model over a socket that the parent process has opened; ``memory``: descriptor of the shared memory."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the server decides when this process ends
        signal.signal(number, signal.SIG_IGN)
    link = Link(socket.socket(fileno=descriptor), opened_memory(memory))
    link.watch()
    messages = link.messages()
    first = next(messages).header
    with ExitStack() as stack:
        try:
            limit_pixels(first["pixels"])
            model = stack.enter_context(opened(ModelSource.from_json(first["source"])))
            calls = Calls(model, link, first["samples"])
        except Exception as error:  # noqa: BLE001 -- the server reports it
            link.send({"kind": "failed", "text": failure_of(error)})
            return
        link.send({"kind": "opened", **model.description()})
        for message in messages:
            calls.run(message)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
