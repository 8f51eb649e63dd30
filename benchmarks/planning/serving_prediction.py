"""The 99th percentile that the planner predicts for a server on the network, compared with LoadGen's.

The server runs the digits on a paced card of one SPA, slowed down to ``--call``: a machine that other programs keep
busy delays a request by little compared with that. LoadGen's scenario Server sends the requests over gRPC; its arrival
times are known from its seed. The prediction is made by the simulator of ``tecoexec --plan`` from these times and the
card's simulated time of a call. The target is 15 % at each load, a share of the capacity.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
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
from tecoexec.load import logs
from tecoexec.load.loadgen import run_loadgen
from tecoexec.load.logs import read_result
from tecoexec.load.schedule import server_schedule
from tecoexec.load.settings import LoadSettings
from tecoexec.plan.simulate import Policy, simulate

LIMIT, ROWS = 0.15, 4
"""Target; most rows of a batch."""

MODEL = DIGITS / "digits_dyn.onnx"
MEMORY = "/dev/shm"  # noqa: S108 -- a folder with a random name is made in it
ONE_SPA = {"MAX_ENGINE_NUMS": "1"}
SIZES, MOST_TRIES = (2, 3, 4), 100
"""Batches that the server tries before the measurement; calls of each."""

IN_FLIGHT = 64
"""Threads that send LoadGen's queries: more than wait at any time."""


def simulated_calls(faults: str = "") -> dict[int, float]:
    """Return the simulated seconds of a call of one SPA by its rows."""
    spec = EngineSpec(ckpt=MODEL, batch_size=ROWS)
    found = {}
    with mock.patch.dict(os.environ, {**ONE_SPA, FAULTS_VARIABLE: faults}), open_engine("sdaa", spec) as engine:
        for rows in range(1, ROWS + 1):
            engine(np.zeros((rows, 3, 32, 32), np.float16))
            found[rows] = float(engine.device_report()["simulated_latency"])
    return found


@contextmanager
def server(faults: str) -> Iterator[int]:
    """Start a server on the slowed card, and yield its gRPC port.

    The file for ``teco-smi``, which the card writes during calls, is in memory: a busy disk would delay calls.
    """
    words = [sys.executable, "-m", "toolkit.cli", "serve", f"digits={MODEL}", "--target", "sdaa"]
    words += ["--max_batch", str(ROWS), "--http_port", "0", "--grpc_port", "0"]
    environment = {**os.environ, **ONE_SPA, FAULTS_VARIABLE: faults, "TECO_SIM_PACED": "1", "PYTHONPATH": str(ROOT)}
    memory = MEMORY if Path(MEMORY).is_dir() else None
    with tempfile.TemporaryDirectory(prefix="tecoinfer-", dir=memory) as folder:
        environment["TECO_SMI_DIR"] = folder
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
        assert process.stdout is not None
        line = next((line for line in process.stdout if line.startswith("serving")), "")
        try:
            yield int(re.findall(r":(\d+)", line)[1])
        finally:
            process.terminate()
            process.wait()


def message() -> Any:
    """Return a request of one row."""
    found = messages().ModelInferRequest(model_name="digits")
    found.inputs.add(name="input", datatype="FP16", shape=[1, 3, 32, 32])
    found.raw_input_contents.append(np.zeros((1, 3, 32, 32), np.float16).tobytes())
    return found


def call_of(channel: Any) -> Any:
    """Return the call of a channel that computes a request."""
    ways: dict[str, Any] = {"response_deserializer": messages().ModelInferResponse.FromString}
    serialize = messages().ModelInferRequest.SerializeToString
    return channel.unary_unary(f"/{SERVICE}/ModelInfer", request_serializer=serialize, **ways)


async def warm_up(port: int, seconds: float) -> None:
    """Have the server compute each size until it joins requests to it; ``seconds``: of a call.

    One request occupies the card, and the others wait for a call together. As long as the server tries a size, it
    computes it in a call and also one by one.
    """
    import grpc

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = call_of(channel)
        for size in SIZES:
            quick = 0
            for _ in range(MOST_TRIES):
                start = time.perf_counter()
                first = call(message())
                await asyncio.sleep(0.3 * seconds)
                await asyncio.gather(first, *(call(message()) for _ in range(size)))
                quick += time.perf_counter() - start < 2.8 * seconds
                if quick >= 3:
                    break
            else:
                raise SystemExit(f"the server does not join {size} requests: the machine is too busy, or they differ")


def measured(port: int, settings: LoadSettings) -> tuple[Mapping[str, float], int]:
    """Run LoadGen against the server; return its latencies in seconds by name, and the number of queries."""
    import grpc

    for name in (logs.DETAIL, logs.SUMMARY, logs.ACCURACY, "mlperf_log_trace.json"):
        (settings.logs / name).touch()
    sent, local = message(), threading.local()

    def send(indices: Sequence[int]) -> list[Array]:
        if not hasattr(local, "call"):
            options = [("grpc.use_local_subchannel_pool", 1)]  # a connection per thread, as clients have
            local.call = call_of(grpc.insecure_channel(f"127.0.0.1:{port}", options))
        found = local.call(sent, timeout=60)
        return [np.frombuffer(found.raw_output_contents[0], np.float16).reshape(1, -1)]

    def nothing(indices: Sequence[int]) -> None:
        return None

    sut = run_loadgen(settings, send, count=1, held=1, load=nothing, unload=nothing, max_batch=1, workers=IN_FLIGHT)
    if sut.failure is not None:
        raise sut.failure
    found = read_result(settings.logs, "Server")
    return found.latency, found.queries


def at_load(port: int, load: float, seconds: Mapping[int, float], duration: float) -> dict[str, float]:
    """Return what is predicted and measured at a load; ``seconds``: of a call by its rows."""
    rate = load * ROWS / seconds[ROWS]
    with tempfile.TemporaryDirectory(prefix="tecoinfer-") as folder:
        settings = LoadSettings("Server", False, rate, 60.0, duration, 20, 1, 0.0, 1, Path(folder))
        latency, queries = measured(port, settings)
    times = server_schedule(settings.seed, rate, queries)
    predicted = simulate(times, lambda rows, start: seconds[rows], 1, Policy(ROWS))
    row = {"load": load, "qps": rate, "queries": queries}
    for p in (50, 99):
        row |= {f"predicted_p{p}_s": predicted.percentile(p), f"measured_p{p}_s": latency[f"percentile_{p}"]}
    return {**row, "error": row["predicted_p99_s"] / row["measured_p99_s"] - 1}


def main() -> int:
    """Predict and measure at each load, print a row for each, and write the JSON."""
    parser = arguments(__doc__)
    parser.add_argument("--loads", nargs="+", type=float, default=[0.3, 0.6, 0.85], metavar="SHARE")
    parser.add_argument("--seconds", type=float, default=60.0, help="of arrivals at each load")
    parser.add_argument("--call", type=float, default=0.1, help="seconds of a call on the slowed card")
    args = parser.parse_args()
    faults = f"slow:spa=0,step=0,factor={args.call / simulated_calls()[ROWS]:.6g}"
    seconds = simulated_calls(faults)
    calls = ", ".join(f"{value * 1e3:.1f}" for value in seconds.values())
    print(f"a call of 1 to {ROWS} rows on the paced card: {calls} ms (simulated)")
    print("| load | queries | p50 predicted, ms | measured | p99 predicted, ms | measured | error |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    with server(faults) as port:
        asyncio.run(warm_up(port, seconds[ROWS]))
        for load in args.loads[:1] if args.quick else args.loads:
            row = at_load(port, load, seconds, 2.0 if args.quick else args.seconds)
            rows.append(row)
            times = (row[f"{what}_p{p}_s"] * 1e3 for p in (50, 99) for what in ("predicted", "measured"))
            cells = [f"{load:.0%}", str(row["queries"]), *(f"{value:.0f}" for value in times), f"{row['error']:+.1%}"]
            print(f"| {' | '.join(cells)} |", flush=True)
    worst = max(abs(row["error"]) for row in rows)
    print(f"largest error of the 99th percentile: {worst:.1%} (target: at most {LIMIT:.0%})")
    finish("serving_prediction", {"simulated_call_s": seconds, "rows": rows}, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
