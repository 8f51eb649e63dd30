"""The protocol over gRPC."""

from __future__ import annotations

import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import grpc

from engine import ConfigError, TecoInferError
from serve.errors import ServeError
from serve.metadata import model_metadata, server_metadata
from serve.protocol.infer_messages import InferMessage, decoded, decoded_infer, parsed_request, response_of
from serve.protocol.messages import SERVICE, messages
from serve.repository import VERSION, Repository, Timing

_OPEN = ("ServerLive", "ServerReady")
"""Calls that need no token."""

_SPARE = 1 << 20  # bytes of a message besides its tensors

Handler = Callable[[Any], Awaitable[Any]]


class GrpcServer:
    """The gRPC side of a server; ``port``: the port it listens at, after :meth:`start`."""

    def __init__(self, repository: Repository) -> None:
        self._repository, settings = repository, repository.settings
        self._token = settings.token
        most = settings.limits.body + _SPARE
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", most),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_metadata_size", settings.limits.header),
                ("grpc.so_reuseport", 0),
            ]
        )
        self._server.add_generic_rpc_handlers((self._handlers(),))
        self.port = 0

    async def start(self) -> None:
        """Listen. Raises ConfigError if the address is in use or the certificate cannot be read."""
        settings = self._repository.settings
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        address = f"{host}:{settings.grpc_port or 0}"
        try:
            if settings.certificate is None or settings.key is None:
                self.port = self._server.add_insecure_port(address)
            else:
                pair = (settings.key.read_bytes(), settings.certificate.read_bytes())
                self.port = self._server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        except RuntimeError as error:
            raise ConfigError(
                f"--grpc_port {settings.grpc_port}: cannot listen at {address}; choose another"
            ) from error
        await self._server.start()

    async def stop(self, grace: float) -> None:
        """Refuse new calls, and give running ones so many seconds."""
        await self._server.stop(grace)

    def _handlers(self) -> Any:
        of_name: dict[str, Handler] = {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
        }
        handlers = dict[str, Any]()
        for name, call in messages().calls.items():
            ways = {"response_serializer": getattr(messages(), call.output_type.name).SerializeToString}
            if name == "ModelStreamInfer":
                handlers[name] = grpc.stream_stream_rpc_method_handler(self._stream, **ways)
            else:
                handlers[name] = grpc.unary_unary_rpc_method_handler(self._guarded(name, of_name.get(name)), **ways)
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _guarded(self, name: str, handler: Handler | None) -> Callable[[Any, Any], Awaitable[Any]]:
        """Return a handler of undecoded requests that checks the token, and answers errors by their status.

        ``handler``: of decoded requests; ``None``: they are of inference.
        """
        kind = messages().calls[name].input_type.name

        async def call(content: bytes, context: Any) -> Any:
            start, entry, code = time.perf_counter(), dict[str, Any](), "CANCELLED"
            try:
                self._check_token(name, context)
                if handler is None:
                    found = await self._inferred(decoded_infer(content), entry)
                else:
                    found = await handler(decoded(kind, content))
                code = "OK"
                return found
            except TecoInferError as failed:
                error = failed if isinstance(failed, ServeError) else ServeError("failed", str(failed))
                code = error.code
            finally:
                self._note(name, context, entry, code, time.perf_counter() - start)
            await context.abort(getattr(grpc.StatusCode, error.code), str(error))
            raise error

        return call

    def _check_token(self, name: str, context: Any) -> None:
        if not self._token or name in _OPEN:
            return
        given = dict(context.invocation_metadata() or ()).get("authorization", "")
        text = given if isinstance(given, str) else ""
        if not hmac.compare_digest(text.encode("utf-8", "replace"), f"Bearer {self._token}".encode()):
            raise ServeError(
                "unauthenticated", "this server asks for a token: send the metadata authorization: Bearer TOKEN"
            )

    def _note(self, name: str, context: Any, entry: Mapping[str, Any], code: str, seconds: float) -> None:
        if "kind" in entry:
            self._repository.metrics.request(entry["model"], "grpc", entry["kind"], code, seconds)
        if not self._repository.log.is_on:
            return
        line = {
            "protocol": "grpc",
            "client": context.peer(),
            "method": name,
            "code": code,
            "seconds": round(seconds, 6),
        }
        self._repository.log.write({**line, **entry})

    async def _live(self, request: Any) -> Any:
        return messages().ServerLiveResponse(live=True)

    async def _ready(self, request: Any) -> Any:
        return messages().ServerReadyResponse(ready=self._repository.is_ready)

    async def _model_ready(self, request: Any) -> Any:
        model = self._repository.find_network(request.name, request.version).model
        return messages().ModelReadyResponse(ready=model.is_ready and not self._repository.closing)

    async def _server_metadata(self, request: Any) -> Any:
        return messages().ServerMetadataResponse(**server_metadata())

    async def _model_metadata(self, request: Any) -> Any:
        found = model_metadata(self._repository.find_network(request.name, request.version))
        del found["parameters"]  # which the message does not have
        return messages().ModelMetadataResponse(**found)

    async def _index(self, request: Any) -> Any:
        return messages().RepositoryIndexResponse(models=self._repository.index(request.ready))

    async def _load(self, request: Any) -> Any:
        if len(request.parameters):
            raise ServeError("unsupported", "parameters of load: models are given on the command line only")
        await self._repository.find(request.model_name).load()
        return messages().RepositoryModelLoadResponse()

    async def _unload(self, request: Any) -> Any:
        await self._repository.find(request.model_name).unload()
        return messages().RepositoryModelUnloadResponse()

    async def _stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
        """Answer the requests of a stream in their order; an error is part of the stream."""
        kind = messages().ModelStreamInferResponse
        try:
            self._check_token("ModelStreamInfer", context)
        except ServeError as error:
            await context.abort(getattr(grpc.StatusCode, error.code), str(error))
        async for content in requests:
            start, entry, code, identifier = time.perf_counter(), dict[str, Any](), "OK", ""
            try:
                request = decoded_infer(content)
                identifier = request.message.id
                answer = kind(infer_response=await self._inferred(request, entry))
            except ServeError as error:
                code = error.code
                answer = kind(error_message=str(error))
                answer.infer_response.id = identifier
            self._note("ModelStreamInfer", context, entry, code, time.perf_counter() - start)
            yield answer

    async def _inferred(self, request: InferMessage, entry: dict[str, Any]) -> Any:
        """Return the answer to a request of inference; model and timing are added to ``entry``."""
        network = self._repository.find_network(request.message.model_name, request.message.model_version)
        entry |= {"model": network.name, "kind": "infer"}
        parsed = parsed_request(request, self._repository.settings.limits)
        outputs, timing = await network.infer(parsed)
        entry |= _times(timing)
        signature = network.tensors(parsed)
        return response_of(parsed, signature.outputs, outputs, signature.labels, VERSION)


def _times(timing: Timing) -> dict[str, Any]:
    return {"queue_s": round(timing.queue_s, 6), "compute_s": round(timing.compute_s, 6), "batch": timing.batch}
