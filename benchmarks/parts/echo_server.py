"""A server that answers each request with the same ten scores, unread: what remains is the cost of its library.

echo_server.py grpc.aio|grpc.threads|fastapi|starlette|asgi [h11|httptools]. It prints its port, and ends with its
standard input.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from serve.protocol.messages import SERVICE, messages

_SIZE = 40  # bytes of the scores
_OPTIONS = [("grpc.max_receive_message_length", -1)]


def answer() -> bytes:
    """Return the message of an answer."""
    found = messages().ModelInferResponse(model_name="digits", raw_output_contents=[bytes(_SIZE)])
    found.outputs.add(name="output", datatype="FP32", shape=[1, 10])
    return bytes(found.SerializeToString())


async def grpc_aio() -> None:
    """Serve by grpc.aio."""
    import grpc

    content = answer()

    async def infer(request: bytes, context: Any) -> bytes:
        return content

    server = grpc.aio.server(options=_OPTIONS)
    handlers = {"ModelInfer": grpc.unary_unary_rpc_method_handler(infer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await _until_the_end(port)
    await server.stop(0)


async def grpc_threads() -> None:
    """Serve by grpc's threads."""
    import grpc

    content = answer()
    server = grpc.server(ThreadPoolExecutor(16), options=_OPTIONS)
    handlers = {"ModelInfer": grpc.unary_unary_rpc_method_handler(lambda request, context: content)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    await _until_the_end(port)
    server.stop(0)


def http_application(kind: str) -> Any:
    """Return an ASGI application that reads the body and answers."""
    if kind == "asgi":
        return _plain
    from starlette.requests import Request
    from starlette.responses import Response

    async def infer(request: Request) -> Response:
        await request.body()
        return Response(bytes(_SIZE))

    if kind == "starlette":
        from starlette.applications import Starlette
        from starlette.routing import Route

        return Starlette(routes=[Route("/v2/models/{name}/infer", infer, methods=["POST"])])
    from fastapi import FastAPI

    async def of_name(request: Request, name: str) -> Response:
        return await infer(request)

    of_name.__annotations__ |= {"request": Request, "name": str, "return": Response}  # which are local names
    app = FastAPI()
    app.post("/v2/models/{name}/infer")(of_name)
    return app


async def _plain(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-length", str(_SIZE).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": bytes(_SIZE)})


async def http(kind: str, parser: str) -> None:
    """Serve by uvicorn."""
    import uvicorn

    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        http_application(kind), http=parser, ws="none", lifespan="off", log_level="error", access_log=False
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([sock]))
    while not server.started:
        await asyncio.sleep(0.01)
    await _until_the_end(sock.getsockname()[1])
    server.should_exit = True
    await serving


async def _until_the_end(port: int) -> None:
    print(port, flush=True)
    await asyncio.to_thread(sys.stdin.read)


def main(kind: str, parser: str = "h11") -> None:
    """Serve by the library of this name."""
    if kind.startswith("grpc"):
        asyncio.run(grpc_aio() if kind == "grpc.aio" else grpc_threads())
    else:
        asyncio.run(http(kind, parser))


if __name__ == "__main__":
    main(*sys.argv[1:])
