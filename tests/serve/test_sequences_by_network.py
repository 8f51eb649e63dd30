"""Recordings that arrive in requests, by Triton's clients: the answers are those of the model's own stream."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from served import Served, serving, tensor
from support import ROOT

from engine import Array, EngineSpec, open_engine
from utils.postprocess.audio.speech_segments import Rules
from utils.preprocess.audio.reading import read_sound
from utils.tasks.model import Model
from utils.tasks.voice_activity.steps import Layout, VoiceStream

pytestmark = [pytest.mark.slow, pytest.mark.long]
for _package in ("fastapi", "uvicorn", "grpc", "prometheus_client", "tritonclient"):
    pytest.importorskip(_package)

FOLDER = ROOT / "example/speech/silero_vad"
SOUNDS = [read_sound(FOLDER / f"data/samples/two_phrases_{name}.wav").samples for name in ("it", "en")]
PATH = "/v2/models/silero_vad/infer"


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with serving("silero_vad", "--workers", 2, grpc=True) as found:
        yield found


@pytest.fixture(scope="module")
def expected() -> list[list[tuple[float, ...]]]:
    """Segments of each recording, by the stream of the model's folder."""
    found = []
    with open_engine("onnx", EngineSpec(ckpt=FOLDER / "silero_vad_dyn.onnx", batch_size=1)) as engine:
        layout = Layout.of(Model.of(engine), SimpleNamespace(rate=16000))
        for sound in SOUNDS:
            stream = VoiceStream(engine, layout, Rules(layout.rate, layout.chunk))
            found.append([tuple(one) for one in stream.feed(sound) + stream.finish()])
    return found


def pieces(sound: Array, size: int = 4000) -> list[Array]:
    return [sound[start : start + size] for start in range(0, len(sound), size)]


def given(kind: Any, piece: Array) -> list[Any]:
    found = kind.InferInput("samples", list(piece.shape), "FP32")
    found.set_data_from_numpy(piece)
    return [found]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_two_recordings_in_turn(server: Served, expected: list[list[tuple[float, ...]]], protocol: str) -> None:
    kind = pytest.importorskip(f"tritonclient.{protocol}")
    found: list[list[tuple[float, ...]]] = [[], []]
    ids = [7, "a text"]
    with kind.InferenceServerClient(f"127.0.0.1:{getattr(server, protocol)}") as client:
        parts = [pieces(sound) for sound in SOUNDS]
        for place in range(max(map(len, parts))):
            for number, some in enumerate(parts):
                if place < len(some):
                    marks = {"sequence_start": place == 0, "sequence_end": place == len(some) - 1}
                    answer = client.infer("silero_vad", given(kind, some[place]), sequence_id=ids[number], **marks)
                    found[number] += map(tuple, answer.as_numpy("segments").tolist())
    assert found == expected


def test_by_a_stream(server: Served, expected: list[list[tuple[float, ...]]]) -> None:
    kind = pytest.importorskip("tritonclient.grpc")
    found: list[Any] = []
    parts = pieces(SOUNDS[0], 16_000)
    with kind.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        client.start_stream(lambda result, error: found.append(error or result.as_numpy("segments").tolist()))
        for place, part in enumerate(parts):
            marks = {"sequence_start": place == 0, "sequence_end": place == len(parts) - 1}
            client.async_stream_infer("silero_vad", given(kind, part), sequence_id=3, **marks)
        client.stop_stream()
    assert [tuple(one) for some in found for one in some] == expected[0]


def test_killed_processes_lose_no_sequence(server: Served, expected: list[list[tuple[float, ...]]]) -> None:
    """The state is in the server, so another process goes on, also with the request that was computed."""
    found: list[tuple[float, ...]] = []
    parts = pieces(SOUNDS[0], 16_000)
    for place, part in enumerate(parts):
        if place % 3 == 1:
            os.kill(server.children()[0], signal.SIGKILL)
        marks = {"sequence_id": 11, "sequence_start": place == 0, "sequence_end": place == len(parts) - 1}
        answer = server.ask(PATH, {"inputs": [tensor("samples", part)], "parameters": marks})
        assert answer.status == 200, answer.body
        segments = next(one for one in answer.json["outputs"] if one["name"] == "segments")
        found += map(tuple, np.reshape(segments["data"], (-1, 2)).tolist())
    assert found == expected[0]


def test_the_metadata_has_the_tensors_of_a_sequence(server: Served) -> None:
    about = server.ask("/v2/models/silero_vad").json["parameters"]["sequence"]
    assert about["inputs"] == [{"name": "samples", "datatype": "FP32", "shape": [-1]}]
    assert [one["name"] for one in about["outputs"]] == ["probabilities", "segments"]
    assert "sequence" in server.ask("/v2").json["extensions"]


def asked(server: Served, part: Array, **parameters: Any) -> Any:
    return server.ask(PATH, {"inputs": [tensor("samples", part)], "parameters": parameters})


def test_sequences_that_are_not_open(server: Served) -> None:
    found = asked(server, SOUNDS[0][:512], sequence_id=99)
    assert (found.status, "sequence_start" in found.json["error"]) == (400, True)
    found = asked(server, SOUNDS[0][:512].astype(np.float64), sequence_id=99, sequence_start=True)
    assert found.status == 200  # numbers in JSON
    wrong = {"inputs": [tensor("samples", SOUNDS[0][:512].reshape(1, -1))], "parameters": {"sequence_id": 99}}
    assert server.ask(PATH, wrong).status == 400
    assert asked(server, SOUNDS[0][512:1024], sequence_id=99, sequence_end=True).status == 200


def test_limits_and_expiry() -> None:
    with serving("silero_vad", "--max_sequences", 2, "--sequence_timeout", 2) as server:
        part = SOUNDS[0][:512]
        assert [asked(server, part, sequence_id=n, sequence_start=True).status for n in (1, 2, 3)] == [200, 200, 429]
        assert 'teco_open_sequences{model="silero_vad"} 2' in server.ask("/metrics").body.decode()
        time.sleep(2.1)
        assert asked(server, part, sequence_id=1).status == 400
        assert asked(server, part, sequence_id=3, sequence_start=True).status == 200
        assert server.ask("/v2/repository/models/silero_vad/load", b"").status == 200
        assert asked(server, part, sequence_id=3).status == 400
