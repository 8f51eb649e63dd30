"""The calls of the server on an open model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Protocol

from engine import Array, ConfigError, DataError, DeviceOutOfMemory, InputError, TecoInferError
from serve.engines.answering import Answering, Body
from serve.engines.opened import Opened
from serve.engines.wire import Message
from serve.errors import ServeError
from tecoinfer_modelzoo.text import typed_reason
from utils.tasks.prepared import SequenceState


class Answers(Protocol):
    """Takes what a call gives."""

    def send(self, header: dict[str, Any], arrays: Sequence[Array] = ()) -> None:
        """Take a message: a part of a result, or the last one of a call."""

    def is_cancelled(self, call: int) -> bool:
        """Return whether the result of a running call is not wanted any more."""

    def forget(self, call: int) -> None:
        """Forget whether a call was cancelled, as it has ended."""


class Calls:
    """Computes the calls of the server on an open model."""

    def __init__(self, model: Opened, link: Answers, samples: int) -> None:
        self._model, self._link = model, link
        self._answering = None if model.pipeline is None else Answering(model, samples)
        self._of_kind: dict[str, Callable[[Message], None]] = {
            "infer": self._infer,
            "sequence": self._sequence,
            "answer": self._answer,
            "complete": self._complete,
        }

    def run(self, message: Message) -> None:
        """Compute a call, and send its results or its error."""
        try:
            self._of_kind[message.header["kind"]](message)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the clients of this call get an answer
            self._link.send({"kind": "done", "call": message.header["call"], "error": self._described(error)})

    def _infer(self, message: Message) -> None:
        """Compute tensors of one network: the arrays of each request, one after the other."""
        network, start = self._model.networks[message.header["network"]], time.perf_counter()
        arrays = iter(message.arrays)
        results: list[dict[str, Any] | None] = []
        good: list[list[Array]] = []
        for _ in range(message.header["requests"]):
            try:
                good.append(network.checked(list(islice(arrays, len(network.engine.inputs)))))
                results.append(None)
            except InputError as error:
                results.append({"error": self._described(error)})
        found = iter(network.joined(_key(good[0]), good) if good else [])
        sent: list[Array] = []
        for place, result in enumerate(results):
            if result is None:
                outputs = next(found)
                results[place] = {"outputs": len(outputs)}
                sent += outputs
        useful = network.joined.most_useful(_key(good[0])) if good else network.joined.most
        header = {"kind": "done", "call": message.header["call"], "results": results, "useful": useful}
        self._link.send({**header, **self._counts(), "seconds": time.perf_counter() - start}, sent)

    def _counts(self) -> dict[str, int]:
        """Return what trials have shown so far."""
        joined = [network.joined for network in self._model.networks.values()]
        return {name: sum(getattr(one, name) for one in joined) for name in ("shared", "alone", "refused")}

    def _sequence(self, message: Message) -> None:
        """Compute a request of a sequence: its arrays are followed by those of the state."""
        header, start = message.header, time.perf_counter()
        if self._model.sequences is None:
            raise ServeError("unsupported", "this model has no sequences")
        count = len(self._model.sequences.inputs)
        state = SequenceState(header["state"], message.arrays[count:]) if header["state"] is not None else None
        outputs, after = self._model.sequences.step(message.arrays[:count], state, header["last"])
        result = {"outputs": len(outputs) + len(after.arrays), "state": after.values}
        done = {"kind": "done", "call": header["call"], "results": [result], "seconds": time.perf_counter() - start}
        self._link.send(done, [*outputs, *after.arrays])

    def _answer(self, message: Message) -> None:
        """Answer samples by the task."""
        start = time.perf_counter()
        bodies = [
            Body(content.tobytes(), one["ending"], one["rendered"])
            for content, one in zip(message.arrays, message.header["bodies"], strict=True)
        ]
        found = self._with_task().answers(bodies)
        results = [{"error": self._described(one)} if isinstance(one, ServeError) else {"reply": one} for one in found]
        seconds = time.perf_counter() - start
        self._link.send({"kind": "done", "call": message.header["call"], "results": results, "seconds": seconds})

    def _complete(self, message: Message) -> None:
        """Continue a prompt, and send the text piece by piece."""
        from serve.engines.completing import complete

        call, start = message.header["call"], time.perf_counter()

        def emit(piece: str) -> bool:
            self._link.send({"kind": "part", "call": call, "piece": piece})
            return not self._link.is_cancelled(call)

        found = complete(self._model.task, self._model.engines, message.header["request"], emit)
        self._link.forget(call)
        seconds = time.perf_counter() - start
        self._link.send({"kind": "done", "call": call, "results": [{"reply": found}], "seconds": seconds})

    def _with_task(self) -> Answering:
        if self._answering is None:
            raise ServeError("unsupported", "this model is a file without a task; it takes tensors only")
        return self._answering

    def _described(self, error: Exception) -> dict[str, str]:
        """Return kind and text of an error; the model is named by its name, not by the path of its file."""
        text = failure_of(error)
        for engine in self._model.engines.values():
            text = text.replace(str(engine.spec.ckpt), self._model.source.name)
        return {"kind": _kind(error), "text": text}


def _key(arrays: Sequence[Array]) -> tuple[Any, ...]:
    """Return what requests of one call have in common; their batches may differ, which trials tell apart."""
    return tuple((array.shape[1:], array.dtype.str) for array in arrays)


def _kind(error: Exception) -> str:
    if isinstance(error, ServeError):
        return error.kind
    if isinstance(error, (InputError, DataError, ConfigError)):
        return "invalid"
    return "memory" if isinstance(error, DeviceOutOfMemory) else "failed"


def failure_of(error: Exception) -> str:
    """Return the line for an error."""
    return str(error) if isinstance(error, TecoInferError) else typed_reason(error)


def limit_pixels(most: int) -> None:
    """Refuse images of more pixels in this process."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = most
