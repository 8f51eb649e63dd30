"""Processor time of the server's own part of a request: all that ``teco serve`` does over gRPC, except grpc.aio itself.

The request is decoded, queued, computed by the engine process and answered, without a network. Where there are two
cores, this process and the engine process share one, as in ``serving.py``. ``once`` is the same work without the engine
in between: reading the request and writing the answer in a loop, for which the caches of the core stay warm.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from parts.bench import arguments, finish
from parts.cores import CORES, on_cores
from parts.serving_peers import MODEL

from engine import Array
from serve.access_log import AccessLog
from serve.metrics import Metrics
from serve.protocol.infer_messages import decoded_infer, parsed_request, response_of
from serve.protocol.messages import messages
from serve.repository import VERSION, Repository
from serve.settings import BatchSettings, ServeSettings
from serve.source import ModelSource

KINDS = ((1, 16, 32), (64, 2, 64))
"""Rows of a request, requests in flight, and most rows of a batch."""


def content_of(rows: int) -> bytes:
    """Return the bytes of a request."""
    images = np.random.default_rng(1).random((rows, 3, 32, 32)).astype(np.float32)
    tensor = {"name": "input", "shape": list(images.shape), "datatype": "FP32"}
    sent = messages().ModelInferRequest(model_name="digits", inputs=[tensor], raw_input_contents=[images.tobytes()])
    return bytes(sent.SerializeToString())


async def measured(rows: int, in_flight: int, most: int, count: int) -> dict[str, float]:
    """Return seconds of processor time of this process per request, whole and ``once``."""
    settings, content = ServeSettings(batching=BatchSettings(rows=most)), content_of(rows)
    source = ModelSource(name="digits", ckpt=str(MODEL), rows=most)
    with AccessLog(None) as log:
        repository = Repository.of([source], settings, Metrics(), log)
        await repository.load()
        network = repository.find_network("digits")

        def read() -> Any:
            return parsed_request(decoded_infer(content), settings.limits)

        def written(request: Any, outputs: list[Array]) -> bytes:
            found = response_of(request, network.tensors(request).outputs, outputs, None, VERSION)
            return bytes(found.SerializeToString())

        async def ask(times: int) -> list[Array]:
            for _ in range(times):
                request = read()
                outputs, _ = await network.infer(request)
                written(request, outputs)
            return outputs

        outputs = (await asyncio.gather(*(ask(20) for _ in range(in_flight))))[0]  # and trials of joined calls
        start, each = time.process_time(), max(1, count // in_flight)
        await asyncio.gather(*(ask(each) for _ in range(in_flight)))
        whole = (time.process_time() - start) / (each * in_flight)
        once = timed(lambda: written(read(), outputs), count)
        await repository.end()
    return {"rows": rows, "in_flight": in_flight, "cpu": whole, "once": once}


def timed(function: Callable[[], Any], count: int) -> float:
    """Return seconds of processor time of a call."""
    start = time.process_time()
    for _ in range(count):
        function()
    return (time.process_time() - start) / count


def main() -> int:
    """Measure, print a line for each kind of request, and write the JSON."""
    parser = arguments(__doc__)
    parser.add_argument("--count", type=int, default=2000, help="requests of one row; a tenth of them of 64")
    args = parser.parse_args()
    count = 64 if args.quick else args.count
    found = []
    with on_cores(CORES[:1] if len(CORES) > 1 else []):
        for rows, in_flight, most in KINDS:
            figures = asyncio.run(measured(rows, in_flight, most, count if rows == 1 else max(4, count // 10)))
            found.append(figures)
            times = f"{figures['cpu'] * 1e6:.0f} us, once {figures['once'] * 1e6:.0f} us"
            print(f"{rows} rows, {in_flight} in flight: {times} of processor time per request")
    finish("serving_inside", {"kinds": found}, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
