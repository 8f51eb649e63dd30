"""The digits in Ray Serve with its own batching, for a comparison: ray_serve_model.py MODEL PORT ROWS.

It takes the bodies of the binary extension of REST, prints a line when it serves, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import numpy as np
import ray
from ray import serve

_HEADER = "inference-header-content-length"


def main(model: str, port: int, rows: int) -> None:
    """Serve until standard input ends."""
    import onnxruntime
    from starlette.requests import Request
    from starlette.responses import Response

    @serve.deployment(max_ongoing_requests=2 * rows, ray_actor_options={"num_cpus": 0})
    class Digits:
        def __init__(self) -> None:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            self._session = onnxruntime.InferenceSession(model, options)
            self._name = self._session.get_inputs()[0].name

        @serve.batch(max_batch_size=rows, batch_wait_timeout_s=0.0)
        async def _scores(self, images: list[Any]) -> list[Any]:
            (found,) = self._session.run(None, {self._name: np.concatenate(images)})
            return np.split(found, len(images))

        async def __call__(self, request: Request) -> Response:
            body = await request.body()
            data = np.frombuffer(body[int(request.headers[_HEADER]) :], np.float32)
            return Response((await self._scores(data.reshape(-1, 3, 32, 32))).tobytes())

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="error", object_store_memory=2**27)
    serve.start(http_options={"host": "127.0.0.1", "port": port, "access_log": False})
    serve.run(Digits.bind(), name="digits", route_prefix="/")
    print("serving", flush=True)
    asyncio.run(asyncio.to_thread(sys.stdin.read))
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
