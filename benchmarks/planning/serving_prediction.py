"""The 99th percentile that the planner's simulator predicts for a server on the network, compared with a measured one.

The server runs the digits on a paced card of one SPA, slowed down so that a call takes about 100 ms: a machine that
other programs keep busy delays a request by little compared with that. Requests arrive over gRPC at Poisson times; the
simulator gets the same times, and the card's simulated time of a call. The target is 15 %.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from parts.bench import DIGITS, ROOT, arguments, finish

from engine import Array, EngineSpec, open_engine
from engine.sdaa import FAULTS_VARIABLE
from serve.protocol.messages import SERVICE, messages
from tecoexec.plan.simulate import Policy, poisson, quantile, simulate

LIMIT, CALL, ROWS, LOAD = 0.15, 0.1, 4, 0.7
"""Target; seconds of a call; most rows of a batch; share of the capacity that arrives."""

MODEL = DIGITS / "digits_dyn.onnx"
ONE_SPA = {"MAX_ENGINE_NUMS": "1"}
SIZES = (2, 3, 4)
"""Batches that the server tries before the measurement."""


def simulated_call(faults: str = "") -> float:
    """Return the simulated seconds of a call of one SPA."""
    spec = EngineSpec(ckpt=MODEL, batch_size=ROWS)
    with mock.patch.dict(os.environ, {**ONE_SPA, FAULTS_VARIABLE: faults}), open_engine("sdaa", spec) as engine:
        engine(np.zeros((ROWS, 3, 32, 32), np.float16))
        return float(engine.device_report()["simulated_latency"])


@contextmanager
def server(faults: str) -> Iterator[int]:
    """Start a server on the slowed card, and yield its gRPC port."""
    words = [sys.executable, "-m", "toolkit.cli", "serve", f"digits={MODEL}", "--target", "sdaa"]
    words += ["--max_batch", str(ROWS), "--http_port", "0", "--grpc_port", "0"]
    environment = {**os.environ, **ONE_SPA, FAULTS_VARIABLE: faults, "TECO_SIM_PACED": "1", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    line = next((line for line in process.stdout if line.startswith("serving")), "")
    try:
        yield int(re.findall(r":(\d+)", line)[1])
    finally:
        process.terminate()
        process.wait()


async def latencies(port: int, times: Array) -> Array:
    """Send a request at each time (seconds from the start); return seconds from those times to the answers."""
    import grpc

    message = messages().ModelInferRequest(model_name="digits")
    message.inputs.add(name="input", datatype="FP16", shape=[1, 3, 32, 32])
    message.raw_input_contents.append(np.zeros((1, 3, 32, 32), np.float16).tobytes())
    found = np.zeros(len(times))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        ways: dict[str, Any] = {"response_deserializer": messages().ModelInferResponse.FromString}
        serialize = messages().ModelInferRequest.SerializeToString
        call = channel.unary_unary(f"/{SERVICE}/ModelInfer", request_serializer=serialize, **ways)
        for size in SIZES:  # one request occupies the card, and the others wait for a call together
            for _ in range(2 + 256 // (10 * size)):
                await asyncio.gather(*(call(message) for _ in range(1 + size)))
        start = time.perf_counter()

        async def one(place: int) -> None:
            await asyncio.sleep(max(0.0, start + times[place] - time.perf_counter()))
            await call(message)
            found[place] = time.perf_counter() - start - times[place]

        await asyncio.gather(*map(one, range(len(times))))
    return found


def main() -> int:
    """Predict, measure, print both, and write the JSON."""
    parser = arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="of arrivals")
    args = parser.parse_args()
    faults = f"slow:spa=0,step=0,factor={CALL / simulated_call():.6g}"
    seconds = simulated_call(faults)
    rate = LOAD * ROWS / seconds
    times = poisson(rate, max(20, int(rate * (2 if args.quick else args.seconds))))
    with server(faults) as port:
        measured = asyncio.run(latencies(port, times))
    predicted = simulate(times, lambda rows, start: seconds, 1, Policy(ROWS))
    result = {
        "requests": len(times),
        "simulated_call_s": seconds,
        "predicted_p50_s": predicted.percentile(50),
        "predicted_p99_s": predicted.percentile(99),
        "measured_p50_s": quantile(measured, 50),
        "measured_p99_s": quantile(measured, 99),
    }
    error = result["predicted_p99_s"] / result["measured_p99_s"] - 1
    print(f"{len(times)} requests at {rate:.1f}/s; a call of the paced card takes {seconds * 1e3:.1f} ms (simulated)")
    for p in (50, 99):
        values = (result[f"{name}_p{p}_s"] * 1e3 for name in ("predicted", "measured"))
        print("p{}: predicted {:.1f} ms, measured {:.1f} ms".format(p, *values))
    print(f"error of the 99th percentile: {error:+.1%} (target: at most {LIMIT:.0%})")
    finish("serving_prediction", {**result, "error": error}, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
