"""Clients that are slow, broken or hostile: each is answered or cut off, and the others are served."""

from __future__ import annotations

import contextlib
import gzip
import json
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from served import Served, serving, tensor

pytestmark = pytest.mark.slow
for _package in ("fastapi", "uvicorn", "grpc", "prometheus_client"):
    pytest.importorskip(_package)

CONNECTIONS = 1000


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with serving("digits", "--max_body", "1", "--max_tensor", "0.5", grpc=True) as found:
        yield found


def is_serving(server: Served) -> bool:
    body = {"inputs": [tensor("input", np.zeros((1, 3, 32, 32), np.float32))]}
    return server.ask("/v2/models/digits/infer", body).status == 200


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def exchanged(port: int, *parts: bytes) -> bytes:
    """Send bytes, end the sending, and return what comes back until the end."""
    with connected(port) as sock:
        with contextlib.suppress(OSError):  # the server may have closed the connection already
            for part in parts:
                sock.sendall(part)
            sock.shutdown(socket.SHUT_WR)
        found = b""
        with contextlib.suppress(ConnectionResetError):
            while part := sock.recv(65536):
                found += part
        return found


def test_a_body_that_is_too_large(server: Served) -> None:
    for headers in ({}, {"transfer_encoding": "chunked"}):
        body = iter([b"x" * 65536] * 32) if headers else b"x" * (2 << 20)
        try:
            found = server.ask("/v2/models/digits/infer", body, "POST")  # type: ignore[arg-type]
        except (BrokenPipeError, ConnectionResetError):
            continue  # answered and closed while the client was still sending
        assert (found.status, "--max_body" in found.json["error"]) == (413, True)
    assert is_serving(server)


def test_a_tensor_that_is_too_large(server: Served) -> None:
    array = np.zeros((60, 3, 32, 32), np.float32)
    head = {
        "name": "input",
        "shape": list(array.shape),
        "datatype": "FP32",
        "parameters": {"binary_data_size": array.nbytes},
    }
    start = json.dumps({"inputs": [head]}).encode()
    size = str(len(start))
    found = server.ask("/v2/models/digits/infer", start + array.tobytes(), inference_header_content_length=size)
    assert found.status == 413


def test_a_body_that_grows_when_it_is_decompressed(server: Served) -> None:
    bomb = gzip.compress(b"0" * (300 << 20))
    assert len(bomb) < 1 << 20
    found = server.ask("/v2/models/digits/infer", bomb, content_encoding="gzip")
    assert found.status == 413
    for body, encoding, status in ((b"xx", "gzip", 400), (bomb[:20_000], "gzip", 413), (b"xx", "br", 415)):
        assert server.ask("/v2/models/digits/infer", body, content_encoding=encoding).status == status
    memory = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * resource.getpagesize()
    assert memory < 1 << 30


def test_headers_that_are_too_large(server: Served) -> None:
    found = exchanged(server.http, b"GET /v2 HTTP/1.1\r\nHost: a\r\n", b"X-A: " + b"a" * 200_000 + b"\r\n\r\n")
    assert found == b"" or found.split()[1] in (b"400", b"431")
    many = b"".join(b"X-%d: a\r\n" % number for number in range(20_000))
    found = exchanged(server.http, b"GET /v2 HTTP/1.1\r\nHost: a\r\n" + many + b"\r\n")
    assert found == b"" or found.split()[1] in (b"400", b"431")
    assert is_serving(server)


@settings(max_examples=25)
@given(st.binary(max_size=300))
def test_any_bytes_on_the_http_port(server: Served, data: bytes) -> None:
    found = exchanged(server.http, data)
    assert found == b"" or found.startswith(b"HTTP/1.1 ")
    assert server.process.poll() is None


@settings(max_examples=25)
@given(st.binary(max_size=200))
def test_any_body(server: Served, data: bytes) -> None:
    for path in ("/v2/models/digits/infer", "/v1/completions"):
        found = server.ask(path, data, "POST")
        assert found.status == 400
        assert "error" in found.json


@settings(max_examples=25)
@given(st.binary(max_size=300))
def test_any_bytes_on_the_grpc_port(server: Served, data: bytes) -> None:
    with connected(server.grpc) as sock, contextlib.suppress(OSError):
        sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + data)
    assert server.process.poll() is None


@settings(max_examples=25)
@given(st.binary(max_size=200))
def test_any_message(server: Served, data: bytes) -> None:
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError) as caught:
            call(data, timeout=60)
    assert caught.value.code().name in (
        "INTERNAL",
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "RESOURCE_EXHAUSTED",
        "UNIMPLEMENTED",
    )


def test_idle_and_half_open_connections(server: Served) -> None:
    """Connections that send nothing, a part of a header or a part of a body do not keep others from being served."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * CONNECTIONS:
        pytest.skip(f"this system allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * CONNECTIONS), hard))
    starts = (b"", b"GET /v2 HT", b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 500\r\n\r\n{")
    with contextlib.ExitStack() as stack:
        for number in range(CONNECTIONS):
            sock = stack.enter_context(connected(server.http))
            sock.sendall(starts[number % 3])
        assert is_serving(server)
        assert server.ask("/v2/health/ready").status == 200
    assert is_serving(server)


def test_a_body_that_does_not_arrive() -> None:
    with serving("digits", "--body_timeout", "0.2") as server, connected(server.http) as sock:
        sock.sendall(b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 500\r\n\r\n{")
        assert sock.recv(4096).split()[1] == b"408"
        assert is_serving(server)


def test_a_client_that_does_not_read(server: Served) -> None:
    """Answers that nobody takes fill buffers of the system; the server goes on."""
    body = json.dumps({"inputs": [tensor("input", np.zeros((1, 3, 32, 32), np.float32))]}).encode()
    head = b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            sock = stack.enter_context(connected(server.http))
            sock.sendall((head + body) * 3)
        assert is_serving(server)
    assert is_serving(server)
