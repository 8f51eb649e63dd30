"""Files in a form (``multipart/form-data``), as of ``curl -F`` and of HTML."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import Reply, Served, serving
from support import DIGITS

pytestmark = [pytest.mark.slow, pytest.mark.long]
for _package in ("fastapi", "uvicorn", "grpc", "prometheus_client", "python_multipart"):
    pytest.importorskip(_package)

FOLDER = DIGITS / "data" / "val"
IMAGE = FOLDER / "7" / "0081.png"
PATH = "/v2/models/digits/answer"


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with serving("digits", "language_id", "--max_samples", 3, "--max_body", "0.5") as found:
        yield found


def posted(server: Served, *parts: tuple[str, bytes], path: str = PATH, boundary: str = "x") -> Reply:
    """Send parts, each the headers after ``Content-Disposition: form-data;`` and the content."""
    body = b"".join(
        f"--x\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + content + b"\r\n" for head, content in parts
    )
    kind = f"multipart/form-data; boundary={boundary}" if boundary else "multipart/form-data"
    return server.ask(path, body + b"--x--\r\n", content_type=kind)


def single(server: Served, file: Path = IMAGE) -> Any:
    found = server.ask(PATH, file.read_bytes(), content_type="image/png").json["answers"][0]
    return found["answer"]


def test_curl_sends_a_file(server: Served) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is missing")
    words = ["curl", "-s", "-F", f"image=@{IMAGE}", f"http://127.0.0.1:{server.http}{PATH}"]
    done = subprocess.run(words, capture_output=True, check=True, timeout=60)
    (found,) = json.loads(done.stdout)["answers"]
    assert (found["name"], found["answer"]) == (IMAGE.name, single(server))


def test_several_files(server: Served) -> None:
    files = [next((FOLDER / digit).iterdir()) for digit in "345"]
    parts = [(f'name="file"; filename="{file.name}"', file.read_bytes()) for file in files]
    found = posted(server, *parts)
    assert found.status == 200, found.body
    assert [one["name"] for one in found.json["answers"]] == [file.name for file in files]
    assert [one["answer"] for one in found.json["answers"]] == [single(server, file) for file in files]
    assert set(found.json["timing"]) >= {"queue_s", "infer_s", "total_s"}


def test_a_field_is_a_text(server: Served) -> None:
    found = posted(server, ('name="text"', b"the weather is fine today"), path="/v2/models/language_id/answer")
    assert found.json["answers"][0]["answer"][0]["label"] == "English"


@pytest.mark.parametrize(
    ("parts", "status", "word"),
    [
        ([], 400, "no file"),
        ([('name="a"; filename="a.png"', b"")], 400, "'a.png'"),
        ([('name="a"; filename="a.png"', b"no image")], 400, "a.png: "),
        ([('name="a"; filename="a.pkl"', b"x")], 415, "'a.pkl'"),
        ([('name="a"; filename="a.png"', IMAGE.read_bytes())] * 4, 400, "3"),
        ([('name="a"; filename="a.png"', bytes(600_000))], 413, "--max_body"),
        ([('filename="a.png"', b"x")], 400, "form"),
        ([('name="text"', b"text for a task of images")], 400, "text"),
    ],
)
def test_wrong_forms(server: Served, parts: list[tuple[str, bytes]], status: int, word: str) -> None:
    found = posted(server, *parts)
    assert (found.status, "\n" in found.json["error"]) == (status, False)
    assert word in found.json["error"]


@pytest.mark.parametrize("boundary", ["", "other"])
def test_wrong_boundaries(server: Served, boundary: str) -> None:
    found = posted(server, ('name="a"; filename="a.png"', IMAGE.read_bytes()), boundary=boundary)
    assert (found.status, "form" in found.json["error"]) == (400, True)


def test_the_description_has_the_form(server: Served) -> None:
    found = server.ask("/openapi.json").json["paths"][PATH]["post"]["requestBody"]["content"]
    assert found["multipart/form-data"]["schema"]["type"] == "object"
