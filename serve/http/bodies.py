"""Bodies of HTTP requests, read with limits."""

from __future__ import annotations

import asyncio
import json
import zlib
from typing import TYPE_CHECKING, Any

from serve.errors import ServeError, invalid
from serve.settings import Limits
from tecoinfer_modelzoo.json_types import refuse_constant

if TYPE_CHECKING:
    from fastapi import Request

_WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": 47}
"""Window bits of zlib by content encoding; 47 accepts both headers."""

LARGE = 1 << 18
"""Bytes from which a body is parsed in a thread, so that other requests are not held up."""


async def read_body(request: Request, limits: Limits) -> bytes:
    """Return the body of a request, decompressed.

    Raises ServeError: it is too large (``large``), does not arrive in time (``slow``), or its encoding is unknown or
    wrong.
    """
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limits.body:
        raise _too_large(limits)
    try:
        body = await asyncio.wait_for(_received(request, limits), limits.body_seconds)
    except asyncio.TimeoutError as error:
        raise ServeError("slow", f"the body did not arrive within {limits.body_seconds:g} s") from error
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding == "identity":
        return body
    if encoding not in _WINDOWS:
        raise ServeError("media", f"content encoding {encoding[:40]!r} must be one of: identity, gzip, deflate")
    return await asyncio.to_thread(_decompressed, body, _WINDOWS[encoding], limits)


async def _received(request: Request, limits: Limits) -> bytes:
    parts, size = list[bytes](), 0
    async for part in request.stream():
        size += len(part)
        if size > limits.body:
            raise _too_large(limits)
        parts.append(part)
    return b"".join(parts)


def _decompressed(body: bytes, window: int, limits: Limits) -> bytes:
    stream = zlib.decompressobj(window)
    try:
        found = stream.decompress(body, limits.body + 1)
    except zlib.error as error:
        raise invalid("the body is not compressed as its content encoding says") from error
    if len(found) > limits.body:
        raise _too_large(limits)
    if not stream.eof or stream.unused_data:
        raise invalid("the compressed body is cut off, or longer than its content")
    return found


def _too_large(limits: Limits) -> ServeError:
    return ServeError("large", f"the body has more than {limits.body} bytes, the limit of this server (--max_body)")


def parse_object(text: bytes | memoryview) -> dict[str, Any]:
    """Return the object of a JSON text. Raises ServeError for other content."""
    try:
        found = json.loads(bytes(text), parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise invalid(f"the body is not JSON: {reason}") from error
    if not isinstance(found, dict):
        raise invalid("the body must be a JSON object")
    return found
