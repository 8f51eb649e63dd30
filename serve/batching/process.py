"""An engine process as the server sees it: start, calls, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine import Array, ModelError
from serve.engines.shared import Slots, new_memory
from serve.engines.wire import PREFIX, Message, body_of, packed, unpacked
from serve.errors import ServeError
from serve.settings import Limits
from serve.source import ModelSource
from tecoinfer_modelzoo.distribution import HOME

_BUFFER = 1 << 20  # bytes that a stream reads ahead


class ProcessLostError(Exception):
    """The engine process ended, or was ended, before it answered."""


class EngineProcess:
    """A running engine process with one open model.

    Attributes:
        description: of the model (:meth:`serve.engines.opened.Opened.description`).
        pid: of the process. held: number of batches that it was given and has not returned.
        ended: set when the process cannot take calls any more.
    """

    def __init__(self, process: asyncio.subprocess.Process, reader: Any, writer: Any, slots: Slots) -> None:
        self._process, self._reader, self._writer, self._slots = process, reader, writer, slots
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._parts: dict[int, Callable[[str], None]] = {}
        self._numbers = self.held = 0
        self._receiver: asyncio.Task[None] | None = None
        self.description: dict[str, Any] = {}
        self.ended = asyncio.Event()

    @property
    def pid(self) -> int:
        """Identifier of the process."""
        return self._process.pid

    @classmethod
    async def start(cls, source: ModelSource, limits: Limits) -> EngineProcess:
        """Start a process and open a model in it. Raises ModelError if the model cannot be opened."""
        ours, theirs = socket.socketpair()
        memory = new_memory()
        try:
            for side in (ours, theirs):
                for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                    side.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "serve.engines", str(theirs.fileno()), str(memory)),
                pass_fds=(theirs.fileno(), memory),
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in a terminal is for the server, which ends its processes
                env=_environment(),
            )
            slots = Slots(memory)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(memory)
        ours.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=_BUFFER)
        found = cls(process, reader, writer, slots)
        try:
            await found._send(
                {"kind": "open", "source": source.to_json(), "pixels": limits.pixels, "samples": limits.samples}
            )
            header = (await found._receive()).header
        except BaseException as error:
            await found.end()
            if isinstance(error, (EOFError, OSError)):
                code = await process.wait()
                raise ModelError(
                    f"{source.name}: its engine process ended while it opened the model ({_ended(code)})"
                ) from error
            raise
        if header.pop("kind") == "failed":
            await found.end()
            raise ModelError(header["text"])
        found.description = header
        found._receiver = asyncio.create_task(found._run(), name=f"receive {source.name}")
        return found

    async def call(
        self,
        header: Mapping[str, Any],
        arrays: Sequence[Array],
        seconds: float,
        part: Callable[[str], None] | None = None,
    ) -> Message:
        """Compute a call and return its results.

        Args:
            header: of the message. arrays: of the call.
            seconds: after which the process is ended. part: takes pieces of a result as they arrive.

        Raises ProcessLostError if the process ends, ServeError of kind ``late`` if it was ended for the time.
        """
        self._numbers += 1
        number = self._numbers
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        if self.ended.is_set():
            raise ProcessLostError
        self._waiting[number] = future
        if part is not None:
            self._parts[number] = part
        timer = future.get_loop().call_later(seconds, self._end_call, future, seconds)
        try:
            await self._send({**header, "call": number}, arrays)
            return await future
        except OSError as error:
            if future.done():  # ended for its time, or lost
                return future.result()
            raise ProcessLostError from error
        except asyncio.CancelledError:
            if not self.ended.is_set() and part is not None:
                await asyncio.shield(self._send({"kind": "cancel", "call": number}))
            raise
        finally:
            timer.cancel()
            self._waiting.pop(number, None)
            self._parts.pop(number, None)
            if not future.cancel() and not future.cancelled():
                future.exception()  # noted, also where the call failed in another way first

    def _end_call(self, future: asyncio.Future[Message], seconds: float) -> None:
        """End the process, as a call has not returned in time."""
        self.kill()
        if not future.done():
            text = f"the engine did not return within {seconds:g} s; its process was replaced"
            future.set_exception(ServeError("late", text))

    def kill(self) -> None:
        """End the process at once."""
        self.ended.set()
        if self._process.returncode is None:
            # Not by its own kill(), which may reap it before asyncio does, which then warns of an unknown process.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    async def end(self) -> None:
        """End the process, and wait for it."""
        self.kill()
        self._writer.close()
        if self._receiver is not None:
            self._receiver.cancel()
        await self._process.wait()
        self._slots.close()

    async def _send(self, header: Mapping[str, Any], arrays: Sequence[Array] = ()) -> None:
        body = body_of(arrays)
        shared = self._slots.put(header["call"], body.pieces, body.size) if arrays else None
        self._writer.writelines(packed(header, body, shared))
        await self._writer.drain()

    async def _receive(self) -> Message:
        head, body = PREFIX.unpack(await self._reader.readexactly(PREFIX.size))
        return unpacked(await self._reader.readexactly(head), await self._reader.readexactly(body))

    async def _run(self) -> None:
        """Pass on results until the process ends; then the calls that wait are lost."""
        try:
            while True:
                message = await self._receive()
                number = message.header["call"]
                if message.header["kind"] == "part":
                    if number in self._parts:
                        self._parts[number](message.header["piece"])
                    continue
                self._slots.release(number)
                future = self._waiting.get(number)
                if future is not None and not future.done():
                    future.set_result(message)
        except (OSError, EOFError):
            self.ended.set()
        finally:
            self.ended.set()
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(ProcessLostError())


def _environment() -> dict[str, str]:
    """Return the environment of engine processes, in which the zoo's packages are found."""
    path = os.pathsep.join(filter(None, (str(HOME), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path}


def _ended(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
