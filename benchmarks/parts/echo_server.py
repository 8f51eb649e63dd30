"""A gRPC server that answers each ModelInfer with the same ten scores, unread: what remains is grpc.aio's cost.

It prints its port, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import grpc

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from serve.protocol.messages import SERVICE, messages


async def main() -> None:
    """Serve until standard input ends."""
    answer = messages().ModelInferResponse(model_name="digits", raw_output_contents=[bytes(40)])
    answer.outputs.add(name="output", datatype="FP32", shape=[1, 10])
    content = answer.SerializeToString()

    async def infer(request: bytes, context: Any) -> bytes:
        return content

    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    handlers = {"ModelInfer": grpc.unary_unary_rpc_method_handler(infer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(0)


if __name__ == "__main__":
    asyncio.run(main())
