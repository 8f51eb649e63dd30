"""A client of a server, in a process of its own: it keeps a number of requests in flight, and prints a line of JSON.

python serving_client.py http|grpc PORT IN_FLIGHT SECONDS ROWS
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from serve.protocol.messages import SERVICE, messages

Ask = Callable[[], Awaitable[None]]

WARM_UP = 1.0
"""Seconds before the measurement, in which the server's trials of joined calls end."""


async def http(port: int, body: bytes, head: int) -> tuple[Ask, Callable[[], None]]:
    """Return a function that sends a request over one connection, with a parser for these answers only."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = ("POST /v2/models/digits/infer HTTP/1.1", "Host: a", f"Content-Length: {len(body)}")
    start = "\r\n".join([*lines, f"Inference-Header-Content-Length: {head}", "", ""]).encode()

    async def ask() -> None:
        writer.write(start + body)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        (size,) = (line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        await reader.readexactly(int(size))

    return ask, writer.close


async def measure(protocol: str, port: int, in_flight: int, seconds: float, rows: int) -> dict[str, float]:
    """Return requests per second, percentiles of their latency in seconds, and the number of all with the warm-up."""
    image = np.random.default_rng(1).random((rows, 3, 32, 32)).astype(np.float32)
    entry = {"name": "input", "shape": list(image.shape), "datatype": "FP32"}
    if protocol == "grpc":
        import grpc

        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.max_send_message_length", -1)])
        ways = {"response_deserializer": messages().ModelInferResponse.FromString}
        call = channel.unary_unary(
            f"/{SERVICE}/ModelInfer", request_serializer=messages().ModelInferRequest.SerializeToString, **ways
        )
        sent = messages().ModelInferRequest(model_name="digits", inputs=[entry], raw_input_contents=[image.tobytes()])

        async def ask_grpc() -> None:
            await call(sent)

        asks: list[Ask] = [ask_grpc] * in_flight
    else:
        inputs = [{**entry, "parameters": {"binary_data_size": image.nbytes}}]
        text = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
        asks = [(await http(port, text + image.tobytes(), len(text)))[0] for _ in range(in_flight)]
    begin = time.perf_counter() + WARM_UP
    end, found, total = begin + seconds, list[float](), 0

    async def work(ask: Ask) -> None:
        nonlocal total
        while (start := time.perf_counter()) < end:
            await ask()
            total += 1
            if start >= begin:
                found.append(time.perf_counter() - start)

    await asyncio.gather(*map(work, asks))
    values = np.sort(found)
    return {
        "rate": len(values) / seconds,
        "p50": float(values[len(values) // 2]),
        "p99": float(values[int(len(values) * 0.99)]),
        "total": total,
    }


if __name__ == "__main__":
    protocol, *numbers = sys.argv[1:]
    port, in_flight, seconds, rows = numbers
    result = asyncio.run(measure(protocol, int(port), int(in_flight), float(seconds), int(rows)))
    sys.stdout.write(json.dumps(result) + "\n")
