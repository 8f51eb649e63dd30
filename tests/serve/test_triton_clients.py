"""Triton's own client libraries: HTTP and gRPC, synchronous and asynchronous."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from served import Served, serving
from support import DIGITS

from engine import Array, EngineSpec, open_engine

pytestmark = pytest.mark.slow
for _package in ("fastapi", "uvicorn", "grpc", "prometheus_client"):
    pytest.importorskip(_package)


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with serving("digits", grpc=True) as found:
        yield found


@pytest.fixture(scope="module")
def images() -> Array:
    return np.random.default_rng(4).random((64, 1, 3, 32, 32)).astype(np.float32)


@pytest.fixture(scope="module")
def scores(images: Array) -> list[Array]:
    """The engine's answer to each image alone."""
    with open_engine("onnx", EngineSpec(ckpt=DIGITS / "digits_dyn.onnx")) as engine:
        return [np.asarray(engine(image)) for image in images]


def checked(client: Any, kind: Any, images: Array, scores: list[Array]) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("digits")
    given = kind.InferInput("input", images[0].shape, "FP32")
    given.set_data_from_numpy(images[0])
    found = client.infer("digits", [given], request_id="5", priority=2, timeout=20_000_000)
    name = NAME
    assert found.as_numpy(name).tobytes() == scores[0].tobytes()
    best = client.infer("digits", [given], outputs=[kind.InferRequestedOutput(name, class_count=3)]).as_numpy(name)
    assert best.shape == (1, 3)
    assert int(best[0, 0].decode().split(":")[1]) == int(scores[0].argmax())
    wrong = kind.InferInput("input", [1, 2], "FP32")
    wrong.set_data_from_numpy(np.zeros((1, 2), np.float32))
    with pytest.raises(Exception, match=r"\[-1, 3, 32, 32\]"):
        client.infer("digits", [wrong])


with open_engine("onnx", EngineSpec(ckpt=DIGITS / "digits_dyn.onnx")) as _engine:
    NAME = _engine.outputs[0].name


def test_http(server: Served, images: Array, scores: list[Array]) -> None:
    kind = pytest.importorskip("tritonclient.http")
    with kind.InferenceServerClient(f"127.0.0.1:{server.http}", concurrency=8) as client:
        checked(client, kind, images, scores)
        assert client.get_model_metadata("digits")["inputs"][0]["name"] == "input"
        assert client.get_model_repository_index()[0]["state"] == "READY"
        given = kind.InferInput("input", images[0].shape, "FP32")
        given.set_data_from_numpy(images[0], binary_data=False)
        wanted = kind.InferRequestedOutput(NAME, binary_data=False)
        assert client.infer("digits", [given], outputs=[wanted]).as_numpy(NAME).tobytes() == scores[0].tobytes()
        packed = client.infer("digits", [given], request_compression_algorithm="gzip")
        assert packed.as_numpy(NAME).tobytes() == scores[0].tobytes()
        waiting = []
        for image in images:
            each = kind.InferInput("input", image.shape, "FP32")
            each.set_data_from_numpy(image)
            waiting.append(client.async_infer("digits", [each]))
        found = [one.get_result().as_numpy(NAME).tobytes() for one in waiting]
        assert found == [one.tobytes() for one in scores]


def test_http_asyncio(server: Served, images: Array, scores: list[Array]) -> None:
    kind = pytest.importorskip("tritonclient.http.aio")
    from tritonclient.http import InferInput

    async def ask() -> list[bytes]:
        async with kind.InferenceServerClient(f"127.0.0.1:{server.http}") as client:

            async def one(image: Array) -> bytes:
                given = InferInput("input", image.shape, "FP32")
                given.set_data_from_numpy(image)
                return bytes((await client.infer("digits", [given])).as_numpy(NAME).tobytes())

            return await asyncio.gather(*map(one, images))

    assert asyncio.run(ask()) == [one.tobytes() for one in scores]


def test_grpc(server: Served, images: Array, scores: list[Array]) -> None:
    kind = pytest.importorskip("tritonclient.grpc")
    with kind.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        checked(client, kind, images, scores)
        assert client.get_model_metadata("digits").inputs[0].name == "input"
        assert client.get_model_repository_index().models[0].state == "READY"
        found: list[Any] = []
        client.start_stream(lambda result, error: found.append(error or result.as_numpy(NAME).tobytes()))
        for image in images[:8]:
            given = kind.InferInput("input", image.shape, "FP32")
            given.set_data_from_numpy(image)
            client.async_stream_infer("digits", [given])
        client.stop_stream()
        assert found == [one.tobytes() for one in scores[:8]]


def test_grpc_asyncio(server: Served, images: Array, scores: list[Array]) -> None:
    kind = pytest.importorskip("tritonclient.grpc.aio")

    async def ask() -> list[bytes]:
        async with kind.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:

            async def one(image: Array) -> bytes:
                given = kind.InferInput("input", list(image.shape), "FP32")
                given.set_data_from_numpy(image)
                return bytes((await client.infer("digits", [given])).as_numpy(NAME).tobytes())

            return [answer for _ in range(4) for answer in await asyncio.gather(*map(one, images))]

    assert asyncio.run(ask()) == [one.tobytes() for one in scores] * 4
