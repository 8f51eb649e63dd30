"""What every HTTP request passes: the token, the origin of pages, the access log and the metrics."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from serve.errors import KINDS, ServeError
from serve.repository import Repository

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = ("/v2/health/", "/models/", "/static/")
"""Beginnings of paths that need no token: probes of an orchestrator, and pages, which ask for the token themselves."""

_CODES = {kind.status: kind.code for kind in reversed(KINDS.values())} | {405: "UNIMPLEMENTED"}
"""Status -> code, of the first kind with this status."""

SECURITY = [
    (b"content-security-policy", b"default-src 'self'; img-src 'self' data: blob:; media-src 'self' data: blob:"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
"""Headers of every answer; pages load nothing from elsewhere."""


class Gate:
    """ASGI middleware around the application."""

    def __init__(self, app: App, repository: Repository) -> None:
        self._app, self._repository = app, repository
        self._token = repository.settings.token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, size = time.perf_counter(), 0, 0
        scope.setdefault("state", {})["entry"] = entry = dict[str, Any]()

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *SECURITY]
            size += len(message.get("body", b""))
            await send(message)

        refused = self._refusal(scope)
        try:
            if refused is None:
                await self._app(scope, receive, sending)
            else:
                await _refuse(refused, sending)
        finally:
            self._note(scope, entry, status, size, time.perf_counter() - start)

    def _refusal(self, scope: Scope) -> ServeError | None:
        """Return why a request is not taken: a wrong token, or a page of another site in the browser of a user."""
        headers = {key: value for key, value in scope["headers"] if key in (b"authorization", b"origin", b"host")}
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and urlsplit(origin).netloc != headers.get(b"host", b"").decode("latin-1"):
            return ServeError("forbidden", f"requests of pages of {origin[:100]} are not taken")
        if not self._token or scope["path"] == "/" or scope["path"].startswith(OPEN):
            return None
        if hmac.compare_digest(headers.get(b"authorization", b""), b"Bearer " + self._token):
            return None
        return ServeError(
            "unauthenticated", "this server asks for a token: send the header Authorization: Bearer TOKEN"
        )

    def _note(self, scope: Scope, entry: dict[str, Any], status: int, size: int, seconds: float) -> None:
        """Count a request to a model, and log it; status 0: the client has gone before the answer."""
        code = "OK" if 200 <= status < 400 else "CANCELLED" if not status else _CODES.get(status, "UNKNOWN")
        if "kind" in entry:
            self._repository.metrics.request(entry["model"], "http", entry["kind"], code, seconds)
        if not self._repository.log.is_on:
            return
        client = scope.get("client")
        self._repository.log.write(
            {
                "protocol": "http",
                "client": None if client is None else client[0],
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "code": code,
                "bytes": size,
                "seconds": round(seconds, 6),
                **entry,
            }
        )


async def _refuse(error: ServeError, send: Send) -> None:
    body = json.dumps({"error": str(error)}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
