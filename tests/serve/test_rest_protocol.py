"""The Open Inference Protocol over REST, asked by curl and Python's HTTP client."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import Served, serving, tensor
from support import DIGITS, ROOT

from engine import Array, EngineSpec, open_engine

pytestmark = pytest.mark.slow
for _package in ("fastapi", "uvicorn", "grpc", "prometheus_client"):
    pytest.importorskip(_package)

INFER = "/v2/models/digits/infer"
HEADER = "inference-header-content-length"


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with serving("digits", f"raw={DIGITS / 'digits_dyn.onnx'}") as found:
        yield found


@pytest.fixture(scope="module")
def image() -> Array:
    return np.random.default_rng(1).random((2, 3, 32, 32)).astype(np.float32)


@pytest.fixture(scope="module")
def scores(image: Array) -> Array:
    """The engine's own answer, without a server."""
    with open_engine("onnx", EngineSpec(ckpt=DIGITS / "digits_dyn.onnx")) as engine:
        found = engine(image)
    assert isinstance(found, np.ndarray)
    return found


def test_server_and_models_describe_themselves(server: Served) -> None:
    assert server.ask("/v2/health/live").json == {"live": True}
    assert server.ask("/v2/health/ready").status == 200
    found = server.ask("/v2").json
    assert found["name"] == "teco-serve"
    assert {"binary_tensor_data", "model_repository"} <= set(found["extensions"])
    about = server.ask("/v2/models/digits").json
    assert (about["name"], about["versions"], about["platform"]) == ("digits", ["1"], "tecoinfer_onnx")
    assert about["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 3, 32, 32]}]
    assert [one["datatype"] for one in about["outputs"]] == ["FP32"]
    assert about["parameters"]["labels"] == list("0123456789")
    assert (about["parameters"]["task"], about["parameters"]["batching"]) == ("classification", True)
    assert server.ask("/v2/models/raw").json["parameters"]["task"] is None
    assert server.ask("/v2/models/digits/ready").json == {"name": "digits", "ready": True}
    assert server.ask("/v2/models/digits/versions/1").json == about


def test_tensors_in_json(server: Served, image: Array, scores: Array) -> None:
    found = server.ask(INFER, {"id": "7", "inputs": [tensor("input", image)]})
    assert (found.status, found.headers["content-type"]) == (200, "application/json")
    assert (found.json["id"], found.json["model_name"], found.json["model_version"]) == ("7", "digits", "1")
    (output,) = found.json["outputs"]
    assert (output["shape"], output["datatype"]) == ([2, 10], "FP32")
    assert np.array_equal(np.array(output["data"], np.float32).reshape(2, 10), scores)


def binary_body(image: Array, **fields: Any) -> tuple[bytes, str]:
    data = image.tobytes()
    entry = {"name": "input", "shape": list(image.shape), "datatype": "FP32"}
    head = json.dumps({"inputs": [{**entry, "parameters": {"binary_data_size": len(data)}}], **fields}).encode()
    return head + data, str(len(head))


def test_binary_tensors(server: Served, image: Array, scores: Array) -> None:
    body, size = binary_body(image, parameters={"binary_data_output": True})
    found = server.ask(INFER, body, inference_header_content_length=size)
    assert found.status == 200
    split = int(found.headers[HEADER])
    (output,) = json.loads(found.body[:split])["outputs"]
    assert output["parameters"] == {"binary_data_size": 80}
    assert found.body[split:] == scores.tobytes()


def test_outputs_by_request(server: Served, image: Array, scores: Array) -> None:
    name = server.ask("/v2/models/digits").json["outputs"][0]["name"]
    body, size = binary_body(image, outputs=[{"name": name, "parameters": {"classification": 2}}])
    found = server.ask(INFER, body, inference_header_content_length=size)
    (output,) = found.json["outputs"]
    assert (output["datatype"], output["shape"]) == ("BYTES", [2, 2])
    best = scores.argmax(axis=1)
    assert [text.split(":")[1:] for text in output["data"][::2]] == [[str(place), str(place)] for place in best]
    body, size = binary_body(image, outputs=[{"name": name, "parameters": {"binary_data": True}}])
    assert server.ask(INFER, body, inference_header_content_length=size).body.endswith(scores.tobytes())


def test_compressed_bodies(server: Served, image: Array, scores: Array) -> None:
    content = json.dumps({"inputs": [tensor("input", image)]}).encode()
    found = server.ask(INFER, gzip.compress(content), content_encoding="gzip")
    assert np.array_equal(np.array(found.json["outputs"][0]["data"], np.float32), scores.ravel())


GOOD: dict[str, Any] = {"name": "input", "shape": [1, 3, 32, 32], "datatype": "FP32", "data": [0.5] * 3072}


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, ("JSON",)),
        (b"[]", 400, ("object",)),
        (b"{", 400, ("JSON",)),
        (b'{"inputs": [NaN]}', 400, ("NaN",)),
        (b"[" * 100_000, 400, ("JSON",)),
        (b'{"inputs": ' + b"9" * 5000 + b"}", 400, ("JSON",)),
        ({}, 400, ("inputs",)),
        ({"inputs": "x"}, 400, ("inputs",)),
        ({"inputs": []}, 400, ("'input'", "missing")),
        ({"inputs": [GOOD, GOOD]}, 400, ("twice",)),
        ({"inputs": [{**GOOD, "name": "other"}]}, 400, ("'input'", "missing")),
        ({"inputs": [GOOD, {**GOOD, "name": "other"}]}, 400, ("'other'", "unknown")),
        ({"inputs": [{**GOOD, "datatype": "FP64"}]}, 400, ("FP64", "FP32")),
        ({"inputs": [{**GOOD, "shape": [1, 3, 32, 31]}]}, 400, ("3072", "2976")),
        ({"inputs": [{**GOOD, "shape": [3, 1, 32, 32]}]}, 400, ("[3, 1, 32, 32]", "[-1, 3, 32, 32]")),
        ({"inputs": [{**GOOD, "shape": [0, 3, 32, 32], "data": []}]}, 400, ("[0, 3, 32, 32]",)),
        ({"inputs": [{**GOOD, "shape": [1 << 40, 3, 32, 32]}]}, 413, ("bytes",)),
        ({"inputs": [{**GOOD, "data": ["a"] * 3072}]}, 400, ("FP32",)),
        (json.dumps({"inputs": [{**GOOD, "data": [7] * 3072}]}).replace("7]", "1e999]"), 400, ("beyond FP32",)),
        ({"inputs": [{**GOOD, "parameters": {"binary_data_size": 12288}}]}, 400, ("binary_data_size",)),
        ({"inputs": [{**GOOD, "parameters": {"shared_memory_region": "x"}}]}, 400, ("shared memory",)),
        ({"inputs": [GOOD], "outputs": [{"name": "none"}]}, 400, ("'none'", "unknown")),
        ({"inputs": [GOOD], "parameters": {"priority": "high"}}, 400, ("priority",)),
        ({"inputs": [GOOD], "parameters": {"timeout": -1}}, 400, ("timeout",)),
        ({"inputs": [GOOD], "parameters": {"sequence_id": 4}}, 400, ("sequence",)),
        ({"inputs": [GOOD], "id": 4}, 400, ("id",)),
    ],
)
def test_wrong_requests_get_one_line(server: Served, body: Any, status: int, words: tuple[str, ...]) -> None:
    found = server.ask(INFER, body, "POST")
    assert found.status == status
    text = found.json["error"]
    assert "\n" not in text
    assert all(word in text for word in words), text
    assert str(DIGITS) not in text


@pytest.mark.parametrize(("header", "extra"), [("-1", b""), ("99999999", b""), ("x", b""), (None, b"1234")])
def test_wrong_binary_sizes(server: Served, image: Array, header: str | None, extra: bytes) -> None:
    body, size = binary_body(image)
    found = server.ask(INFER, body + extra, inference_header_content_length=header or size)
    assert (found.status, "\n" in found.json["error"]) == (400, False)


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/v2/models/none", "GET", 404),
        ("/v2/models/none/infer", "POST", 404),
        ("/v2/models/..%2f..%2fetc/infer", "POST", 404),
        ("/v2/models/digits/versions/2", "GET", 404),
        ("/v2/models/digits/versions/2/infer", "POST", 404),
        ("/v2/models/digits/infer", "GET", 405),
        ("/none", "GET", 404),
        ("/static/..%2fapp.py", "GET", 404),
        ("/models/none", "GET", 404),
    ],
)
def test_unknown_places(server: Served, path: str, method: str, status: int) -> None:
    found = server.ask(path, b"{}" if method == "POST" else None, method)
    assert (found.status, list(found.json)) == (status, ["error"])


def test_models_are_unloaded_and_loaded(image: Array) -> None:
    with serving("digits", f"raw={DIGITS / 'digits_dyn.onnx'}") as server:
        before = server.children()
        assert server.ask("/v2/repository/models/raw/unload", b"{}").status == 200
        states = {one["name"]: one["state"] for one in server.ask("/v2/repository/index", b"").json}
        assert states == {"digits": "READY", "raw": "UNAVAILABLE"}
        assert len(server.children()) == len(before) - 1
        assert [one["name"] for one in server.ask("/v2/repository/index", {"ready": True}).json] == ["digits"]
        refused = server.ask("/v2/models/raw/infer", {"inputs": [tensor("input", image)]})
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert server.ask("/v2/models/raw/ready").status == 503
        assert server.ask("/v2/health/ready").status == 200  # unloaded on purpose
        assert server.ask("/v2/repository/models/raw/load", b"{}").status == 200
        assert server.ask("/v2/models/raw/infer", {"inputs": [tensor("input", image)]}).status == 200
        assert server.ask("/v2/repository/models/digits/load", b"").status == 200  # again
        assert server.ask(INFER, {"inputs": [tensor("input", image)]}).status == 200
        for parameters in ({"config": "{}"}, {"file:1/model.onnx": "AAAA"}):
            found = server.ask("/v2/repository/models/raw/load", {"parameters": parameters})
            assert found.status == 400
        assert server.ask("/v2/repository/models/none/load", b"").status == 404


def test_metrics_count_requests(server: Served, image: Array) -> None:
    def value(name: str) -> float:
        text = server.ask("/metrics").body.decode()
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    good = 'teco_requests_total{code="OK",kind="infer",model="digits"'
    bad = 'teco_requests_total{code="INVALID_ARGUMENT",kind="infer",model="digits"'
    before = value(good), value(bad)
    server.ask(INFER, {"inputs": [tensor("input", image)]})
    server.ask(INFER, {"inputs": []})
    assert (value(good), value(bad)) == (before[0] + 1, before[1] + 1)
    assert value('teco_model_ready{model="digits"}') == 1
    assert value('teco_queue_length{model="digits"}') == 0
    assert value('teco_batch_rows_sum{model="digits"}') >= 2


def test_access_log_has_a_json_line_per_request(tmp_path: Path, image: Array) -> None:
    log = tmp_path / "access.jsonl"
    with serving("digits", "--access_log", log) as server:
        server.ask(INFER, {"inputs": [tensor("input", image)]})
        server.ask("/v2/models/none")
    first, second = map(json.loads, log.read_text().splitlines())
    assert first["schema_version"] == second["schema_version"] == 1
    assert (first["protocol"], first["method"], first["path"], first["status"]) == ("http", "POST", INFER, 200)
    assert (first["model"], first["kind"], first["batch"], first["client"]) == ("digits", "infer", 2, "127.0.0.1")
    assert first["seconds"] >= first["compute_s"] > 0
    assert (second["status"], second["code"], "model" in second) == (404, "NOT_FOUND", False)


def test_token(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("s3cret\n")
    with serving("digits", "--token_file", secret) as server:
        assert server.ask("/v2/health/ready").status == 200
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "s3cret"}):
            found = server.ask("/v2/models/digits", **headers)
            assert (found.status, found.headers["www-authenticate"]) == (401, "Bearer")
        assert server.ask("/v2/models/digits", authorization="Bearer s3cret").status == 200
        assert server.ask("/metrics").status == 401
        assert server.ask("/models/digits").status == 200  # the page asks for the token itself


def test_pages_of_other_sites_are_refused(server: Served) -> None:
    assert server.ask("/v2/repository/index", b"", origin="http://example.com").status == 403
    assert server.ask("/v2/repository/index", b"", origin=f"http://127.0.0.1:{server.http}").status == 200


def test_tls(tmp_path: Path) -> None:
    openssl, curl = shutil.which("openssl"), shutil.which("curl")
    if openssl is None or curl is None:
        pytest.skip("openssl or curl is missing")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2"]
    words += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([openssl, *map(str, words)], check=True, capture_output=True)
    with serving("digits", "--tls_cert", certificate, "--tls_key", key) as server:
        where = f"https://127.0.0.1:{server.http}/v2/health/live"
        found = subprocess.run([curl, "-s", "--cacert", certificate, where], capture_output=True, check=False)
        assert json.loads(found.stdout) == {"live": True}
        assert subprocess.run([curl, "-s", where], capture_output=True, check=False).returncode != 0


def test_curl(server: Served, tmp_path: Path, image: Array, scores: Array) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is missing")
    body, size = binary_body(image, parameters={"binary_data_output": True})
    (tmp_path / "body").write_bytes(body)
    words = ["-s", "--data-binary", f"@{tmp_path / 'body'}", "-H", f"Inference-Header-Content-Length: {size}"]
    where = f"http://127.0.0.1:{server.http}{INFER}"
    found = subprocess.run([curl, *words, where], capture_output=True, check=True)
    assert struct.unpack("<20f", found.stdout[-80:]) == tuple(scores.ravel().tolist())


def test_openapi_describes_the_answers_of_each_model(server: Served) -> None:
    found = server.ask("/openapi.json").json
    assert found["openapi"].startswith("3.")
    of_digits = found["paths"]["/v2/models/digits/answer"]["post"]
    assert "image/png" in of_digits["requestBody"]["content"]
    assert "text/plain" not in of_digits["requestBody"]["content"]
    assert "/v2/models/raw/answer" not in found["paths"]
    assert {"/v2/models/{name}/infer", "/v1/completions", "/v2/repository/index"} <= set(found["paths"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_accepted_requests_are_answered_at_the_end(number: int, slow_model: Path) -> None:
    with serving(f"slow={slow_model}") as server:
        found: list[int] = []
        body = {"inputs": [tensor("x", np.ones((1, 4), np.float32))]}
        threads = [
            threading.Thread(target=lambda: found.append(server.ask("/v2/models/slow/infer", body).status))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        while not found and not re.search(r'teco_queue_length\{model="slow"\} 3', server.ask("/metrics").body.decode()):
            time.sleep(0.005)
        children = server.children()
        code, err = server.stop(number)
        for thread in threads:
            thread.join()
        assert (code, err, found) == (0, "", [200] * 4)
        assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def test_a_server_that_is_ended_while_it_opens_models(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "toolkit.cli", "serve", "digits", "language_id", "--http_port", "0"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    tasks, children = Path(f"/proc/{process.pid}/task"), list[str]()
    while not children:
        children = [pid for task in tasks.iterdir() for pid in (task / "children").read_text().split()]
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert out == "" or "serving" in out  # it may have opened them just before
    while any(Path(f"/proc/{pid}").exists() for pid in children):  # they see the end when they have started
        time.sleep(0.05)
