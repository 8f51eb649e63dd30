"""Continuation of texts in the form of OpenAI's API."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest
from served import Served, serving
from support import ROOT, RunPython

pytestmark = pytest.mark.slow
for _package in ("fastapi", "uvicorn", "grpc", "prometheus_client", "tokenizers"):
    pytest.importorskip(_package)

PROMPT = "def main("


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with serving("tiny_gpt", "digits") as found:
        yield found


def ask(server: Served, **fields: Any) -> Any:
    return server.ask("/v1/completions", {"model": "tiny_gpt", "prompt": PROMPT, "temperature": 0, **fields})


def streamed(server: Served, **fields: Any) -> list[str]:
    """Return the data of the events of a stream."""
    found = ask(server, stream=True, **fields)
    assert found.headers["content-type"].startswith("text/event-stream")
    lines = found.body.decode().split("\n\n")
    assert lines.pop() == ""
    assert all(line.startswith("data: ") for line in lines)
    return [line.removeprefix("data: ") for line in lines]


def test_the_text_is_that_of_the_script(server: Served, run_python: RunPython) -> None:
    words = ["--text", PROMPT, "--target", "onnx", "--max_new_tokens", "12", "--json", "-"]
    done = run_python(ROOT / "example/nlp/tiny_gpt/example_single_batch.py", *words)
    (script,) = json.loads(done.stdout)["answers"]
    found = ask(server, max_tokens=12).json
    (choice,) = found["choices"]
    assert choice["text"] == script["answer"]["text"]
    assert found["object"] == "text_completion"
    assert found["usage"]["completion_tokens"] == script["answer"]["tokens"]
    assert found["usage"]["total_tokens"] == found["usage"]["prompt_tokens"] + found["usage"]["completion_tokens"]
    assert choice["finish_reason"] in ("stop", "length")


@pytest.mark.parametrize(
    "fields", [{"max_tokens": 20}, {"max_tokens": 30, "temperature": 0.9, "seed": 3}, {"stop": ["("], "max_tokens": 30}]
)
def test_a_stream_has_the_same_text(server: Served, fields: dict[str, Any]) -> None:
    (choice,) = ask(server, **fields).json["choices"]
    events = streamed(server, **fields)
    assert events.pop() == "[DONE]"
    pieces = [json.loads(event)["choices"][0] for event in events]
    assert "".join(piece["text"] for piece in pieces) == choice["text"]
    assert [piece["finish_reason"] for piece in pieces] == [None] * (len(pieces) - 1) + [choice["finish_reason"]]
    assert len(pieces) > 2 or len(choice["text"]) < 5
    assert all(stop not in choice["text"] for stop in fields.get("stop", ()))


def test_sampling_depends_on_the_seed(server: Served) -> None:
    texts = [ask(server, temperature=1.0, max_tokens=20, seed=seed).json["choices"][0]["text"] for seed in (1, 2, 1)]
    assert texts[0] == texts[2] != texts[1]


def test_a_stream_whose_client_leaves_is_stopped(server: Served) -> None:
    """The engine process is free for the next request; a text of this length takes longer than the test's limit."""
    connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=60)
    body = {"model": "tiny_gpt", "prompt": PROMPT, "stream": True, "max_tokens": 200, "temperature": 0.5}
    connection.request("POST", "/v1/completions", json.dumps(body))
    connection.getresponse().read(20)
    connection.close()
    assert ask(server, max_tokens=1).status == 200


def test_models_that_continue_texts_are_listed(server: Served) -> None:
    assert [one["id"] for one in server.ask("/v1/models").json["data"]] == ["tiny_gpt"]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"prompt": ""}, 400),
        ({"prompt": ["a", "b"]}, 400),
        ({"prompt": 5}, 400),
        ({"max_tokens": 0}, 400),
        ({"max_tokens": 1.5}, 400),
        ({"max_tokens": 100_000}, 400),
        ({"temperature": -1}, 400),
        ({"temperature": "hot"}, 400),
        ({"top_p": 0}, 400),
        ({"stop": [""]}, 400),
        ({"n": 2}, 400),
        ({"echo": True}, 400),
        ({"model": "none"}, 404),
        ({"model": 3}, 400),
        ({"seed": -1}, 400),
        ({"model": "digits"}, 400),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_wrong_requests(server: Served, fields: dict[str, Any], status: int, stream: bool) -> None:
    found = ask(server, stream=stream, **fields)
    assert found.status == status
    assert set(found.json["error"]) == {"message", "type", "param", "code"}


def test_openai_client(server: Served) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.http}/v1", api_key="none")
    whole = client.completions.create(model="tiny_gpt", prompt=PROMPT, max_tokens=8, temperature=0)
    pieces = client.completions.create(model="tiny_gpt", prompt=PROMPT, max_tokens=8, temperature=0, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces) == whole.choices[0].text


def test_stream_is_true_or_false(server: Served) -> None:
    for stream, status in (("yes", 400), (1, 400), (None, 200)):
        assert ask(server, stream=stream).status == status
