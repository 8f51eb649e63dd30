"""Completions of texts in the form of OpenAI's API: ``/v1/completions`` and ``/v1/models``."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from serve.errors import ServeError, invalid
from serve.repository import Repository

_NUMBERS = {
    "max_tokens": (1, 1 << 20),
    "temperature": (0, 100),
    "top_p": (0, 1),
    "top_k": (0, 1 << 20),
    "seed": (0, 1 << 62),
    "repetition_penalty": (0, 100),
}
"""Least and largest values of numeric fields; the task checks them again."""

_WHOLE = ("max_tokens", "top_k", "seed")
_MOST_TOKENS = 16  # of a request that does not say, as in OpenAI's API
_ONLY = {
    "n": 1,
    "best_of": 1,
    "echo": False,
    "logprobs": None,
    "suffix": None,
    "presence_penalty": 0,
    "frequency_penalty": 0,
}
"""Fields of which only one value is supported."""

_MOST_STOPS = 16


class Completion:
    """A request for a completion, and its answers in JSON. Raises ServeError if a field cannot be used."""

    def __init__(self, fields: Mapping[str, Any], repository: Repository) -> None:
        name = fields.get("model")
        if not isinstance(name, str):
            raise invalid("model must be the name of a model")
        self.model = repository.find(name)
        self.streams = fields.get("stream") is True
        self.request = checked_fields(fields)
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": name,
        }

    async def whole(self) -> dict[str, Any]:
        """Return the answer in one piece."""
        found: dict[str, Any] = {}
        async for piece in self.model.complete(self.request):
            if isinstance(piece, dict):
                found = piece
        usage = {key: found[key] for key in ("prompt_tokens", "completion_tokens")}
        usage["total_tokens"] = sum(usage.values())
        return {**self._head, "choices": [_choice(found["text"], found["finish_reason"])], "usage": usage}

    async def events(self) -> AsyncIterator[bytes]:
        """Return server-sent events: the text piece by piece, the reason of its end, and ``[DONE]``.

        The first piece is awaited, so that an error before it is raised and has its own status.
        """
        pieces = self.model.complete(self.request)
        first = await anext(pieces)
        return self._events(first, pieces)

    async def _events(
        self, first: str | dict[str, Any], pieces: AsyncGenerator[str | dict[str, Any], None]
    ) -> AsyncIterator[bytes]:
        async with aclosing(pieces):
            yield self._event_of(first)
            try:
                async for piece in pieces:
                    yield self._event_of(piece)
            except ServeError as error:
                yield _event(openai_error(error))
            yield b"data: [DONE]\n\n"

    def _event_of(self, piece: str | dict[str, Any]) -> bytes:
        text, reason = ("", piece["finish_reason"]) if isinstance(piece, dict) else (piece, None)
        return _event({**self._head, "choices": [_choice(text, reason)]})


def openai_error(error: ServeError) -> dict[str, Any]:
    """Return an error in the form of OpenAI's API."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"error": {"message": str(error), "type": kind, "param": None, "code": error.code.lower()}}


def _event(data: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


def _choice(text: str, reason: str | None) -> dict[str, Any]:
    return {"text": text, "index": 0, "logprobs": None, "finish_reason": reason}


def _prompt(value: object) -> str:
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    if not isinstance(value, str) or not value:
        raise invalid("prompt must be one text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise invalid("prompt has half of a surrogate pair") from error
    return value


def checked_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that the task takes. Raises ServeError if one cannot be used."""
    for name, only in _ONLY.items():
        value = fields.get(name)
        if value is not None and (value != only or isinstance(value, bool) is not isinstance(only, bool)):
            raise ServeError("unsupported", f"{name} other than {json.dumps(only)} is not supported")
    found: dict[str, Any] = {"max_tokens": _MOST_TOKENS, "temperature": 1.0, "prompt": _prompt(fields.get("prompt"))}
    for name, (least, most) in _NUMBERS.items():
        value = fields.get(name)
        if value is None:
            continue
        kinds = int if name in _WHOLE else (int, float)
        if not isinstance(value, kinds) or isinstance(value, bool) or not least <= value <= most:
            raise invalid(f"{name} must be a {'whole ' if name in _WHOLE else ''}number from {least} to {most}")
        found[name] = value if name in _WHOLE else float(value)
    if not isinstance(fields.get("stream", False), bool | None):
        raise invalid("stream must be true or false")
    stop = fields.get("stop")
    if stop is not None:
        stops = [stop] if isinstance(stop, str) else stop
        if not isinstance(stops, list) or len(stops) > _MOST_STOPS or not all(isinstance(s, str) and s for s in stops):
            raise invalid(f"stop must be a text, or at most {_MOST_STOPS} of them")
        found["stop"] = stops or None
    return found
