"""``--launcher ray``: replicas by Ray Serve on a real local cluster, killed and deployed again under load."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from ray_cluster import ray_cluster, ray_settings
from served import Served, serving, tensor
from support import DIGITS, RunPython

from engine import Array, EngineSpec, open_engine
from serve.protocol.messages import SERVICE, messages

pytestmark = [pytest.mark.slow, pytest.mark.long]
for _package in ("fastapi", "uvicorn", "grpc", "prometheus_client", "ray.serve"):
    pytest.importorskip(_package)

THREADS, KILLS, REPLICAS = 4, 3, 1
MODEL = DIGITS / "digits_dyn.onnx"
IMAGES = np.random.default_rng(2).random((16, 1, 3, 32, 32)).astype(np.float32)
BODIES = [{"inputs": [tensor("input", image)]} for image in IMAGES]


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    with ray_settings() as settings, ray_cluster(settings) as joined:
        yield joined


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the model."""
    found = tmp_path_factory.mktemp("model") / "model.onnx"
    found.write_bytes(MODEL.read_bytes())
    return found


@pytest.fixture(scope="module")
def server(cluster: dict[str, str], file: Path) -> Iterator[Served]:
    words = (f"digits={file}", "--launcher", "ray", "--timeout", 100, "--max_queue", 100)
    with serving(*words, "--workers", REPLICAS, grpc=True, **joining(cluster)) as found:
        yield found


def joining(cluster: dict[str, str]) -> dict[str, str]:
    """Return the settings of a program that joins the cluster; its token is in the home folder."""
    return {key: value for key, value in cluster.items() if key.startswith("RAY_") or key == "HOME"}


@pytest.fixture(scope="module")
def expected() -> list[Array]:
    with open_engine("onnx", EngineSpec(ckpt=MODEL)) as engine:
        return [np.asarray(engine(image)) for image in IMAGES]


def replicas(model: str) -> list[int]:
    """Return the processes of a model's replicas."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            if f"ServeReplica:teco-{model}:".encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return sorted(found)


@contextlib.contextmanager
def load(server: Served, expected: list[Array]) -> Iterator[list[int]]:
    """Send requests from several threads during the block; each must have the bits of the engine."""
    wrong: list[str] = []
    counts, ended = [0] * THREADS, threading.Event()

    def send(place: int) -> None:
        number = place
        while not ended.is_set():
            number = (number + 1) % len(IMAGES)
            found = server.ask("/v2/models/digits/infer", BODIES[number])
            if found.status != 200:
                wrong.append(found.body.decode())
            elif np.array(found.json["outputs"][0]["data"], np.float32).tobytes() != expected[number].tobytes():
                wrong.append("other bits")
            counts[place] += 1

    threads = [threading.Thread(target=send, args=(place,), daemon=True) for place in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_requests_by_both_protocols(server: Served, expected: list[Array]) -> None:
    import grpc

    assert len(replicas("digits")) == REPLICAS
    with load(server, expected) as counts:
        while sum(counts) < 50:
            time.sleep(0.02)
    image = IMAGES[3]
    given = {"name": "input", "datatype": "FP32", "shape": image.shape}
    message = messages().ModelInferRequest(model_name="digits", inputs=[given], raw_input_contents=[image.tobytes()])
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        ways = {
            "request_serializer": messages().ModelInferRequest.SerializeToString,
            "response_deserializer": messages().ModelInferResponse.FromString,
        }
        found = channel.unary_unary(f"/{SERVICE}/ModelInfer", **ways)(message, timeout=60)
    assert found.raw_output_contents[0] == expected[3].tobytes()
    wrong = server.ask("/v2/models/digits/infer", {"inputs": [tensor("input", IMAGES[0][:, :2])]})
    assert wrong.status == 400


def test_texts_arrive_in_pieces(cluster: dict[str, str]) -> None:
    with serving("tiny_gpt", "--launcher", "ray", **joining(cluster)) as server:
        check_pieces(server)


def check_pieces(server: Served) -> None:
    body = {"model": "tiny_gpt", "prompt": "def main(", "max_tokens": 8, "temperature": 0}
    whole = server.ask("/v1/completions", body).json["choices"][0]["text"]
    events = server.ask("/v1/completions", {**body, "stream": True}).body.decode().split("\n\n")
    pieces = [json.loads(one.removeprefix("data: ")) for one in events if one.startswith("data: {")]
    assert len(pieces) > 2
    assert "".join(one["choices"][0]["text"] for one in pieces) == whole
    connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps({**body, "max_tokens": 100, "stream": True}))
    assert connection.getresponse().read(10)
    connection.close()  # the replica stops, and takes the next request
    assert server.ask("/v1/completions", body).json["choices"][0]["text"] == whole


def test_killed_replicas_lose_no_request(server: Served, expected: list[Array]) -> None:
    with load(server, expected) as counts:
        for _ in range(KILLS):
            while len(replicas("digits")) < REPLICAS:
                time.sleep(0.1)
            before = sum(counts)
            os.kill(replicas("digits")[0], signal.SIGKILL)
            while sum(counts) < before + 30:
                time.sleep(0.02)
        while len(replicas("digits")) < REPLICAS:
            time.sleep(0.1)


def test_a_rolling_update_under_load(server: Served, expected: list[Array]) -> None:
    before = replicas("digits")
    with load(server, expected) as counts:
        assert server.ask("/v2/repository/models/digits/load", b"").status == 200
        seen = sum(counts)
        while set(replicas("digits")) & set(before) or sum(counts) < seen + 30:
            time.sleep(0.1)
    assert len(replicas("digits")) == REPLICAS


def test_an_update_that_cannot_be_opened_leaves_the_model(server: Served, expected: list[Array], file: Path) -> None:
    content = file.read_bytes()
    with load(server, expected) as counts:
        file.write_bytes(b"broken")
        found = server.ask("/v2/repository/models/digits/load", b"")
        file.write_bytes(content)
        assert (found.status, "digits" in found.json["error"], "\n" in found.json["error"]) == (500, True, False)
        seen = sum(counts)
        while sum(counts) < seen + 30:
            time.sleep(0.02)
    assert server.ask("/v2/models/digits/ready").status == 200


def test_replicas_follow_the_load(cluster: dict[str, str], slow_model: Path) -> None:
    """Ray Serve adds a replica while more calls wait than one computes."""
    words = (f"slow={slow_model}", "--launcher", "ray", "--max_workers", 2, "--max_batch", 1, "--timeout", 200)
    body = {"inputs": [tensor("x", np.ones((1, 4), np.float32))]}
    with serving(*words, **joining(cluster)) as server:
        assert len(replicas("slow")) == 1
        ended = threading.Event()

        def send() -> None:
            while not ended.is_set():
                assert server.ask("/v2/models/slow/infer", body).status == 200

        threads = [threading.Thread(target=send, daemon=True) for _ in range(8)]
        for thread in threads:
            thread.start()
        while len(replicas("slow")) < 2 or b'teco_workers{model="slow"} 2.0' not in server.ask("/metrics").body:
            time.sleep(0.2)
        ended.set()
        for thread in threads:
            thread.join()


def test_a_model_that_cannot_be_opened_ends_the_start(
    cluster: dict[str, str], tmp_path: Path, run_python: RunPython
) -> None:
    file = tmp_path / "broken.onnx"
    file.write_bytes(b"broken")
    words = ("-m", "toolkit.cli", "serve", f"mine={file}", "--launcher", "ray", "--http_port", "0")
    done = run_python(*words, **joining(cluster))
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if line.startswith("error: mine: ")]
    assert "Traceback" not in done.stderr
