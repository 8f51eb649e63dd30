"""LoadGen's scenario Server, with a server on the network as the system under test."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from served import serving
from support import DIGITS

from engine import Array
from serve.protocol.messages import SERVICE, messages

pytestmark = [pytest.mark.slow, pytest.mark.long]
for _package in ("fastapi", "uvicorn", "grpc", "prometheus_client", "mlperf_loadgen"):
    pytest.importorskip(_package)

RATE, QUERIES = 50.0, 500
"""Queries per second; fewest queries, of which LoadGen needs 459 to be sure of the 99th percentile."""


def test_every_query_is_answered(tmp_path: Path) -> None:
    import grpc

    from tecoexec.load import logs
    from tecoexec.load.loadgen import run_loadgen
    from tecoexec.load.settings import LoadSettings

    images = np.random.default_rng(1).random((16, 1, 3, 32, 32)).astype(np.float32)
    settings = LoadSettings("Server", False, RATE, 60.0, 3.0, QUERIES, 1, 0.0, len(images), tmp_path)
    for name in (logs.DETAIL, logs.SUMMARY, logs.ACCURACY, "mlperf_log_trace.json"):
        (tmp_path / name).touch()
    local = threading.local()
    with serving(f"digits={DIGITS / 'digits_dyn.onnx'}", grpc=True) as server:

        def serve(indices: Sequence[int]) -> list[Array]:
            if not hasattr(local, "call"):
                channel = grpc.insecure_channel(f"127.0.0.1:{server.grpc}")
                ways = {
                    "request_serializer": messages().ModelInferRequest.SerializeToString,
                    "response_deserializer": messages().ModelInferResponse.FromString,
                }
                local.call = channel.unary_unary(f"/{SERVICE}/ModelInfer", **ways)
            (index,) = indices
            given = {"name": "input", "datatype": "FP32", "shape": images[index].shape}
            message = messages().ModelInferRequest(
                model_name="digits", inputs=[given], raw_input_contents=[images[index].tobytes()]
            )
            found = local.call(message, timeout=60)
            return [np.frombuffer(found.raw_output_contents[0], np.float32).reshape(1, 10)]

        def nothing(indices: Sequence[int]) -> None:
            return None

        sut = run_loadgen(settings, serve, count=16, held=16, load=nothing, unload=nothing, max_batch=1, workers=16)
    assert sut.failure is None
    assert len(sut.served) >= QUERIES
    assert logs.read_result(tmp_path, "Server").valid is True
