"""Models of several networks: the task's answer, and each network by its name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from served import Served, serving
from support import ROOT

from engine import Array, EngineSpec, open_engine
from serve.protocol.datatypes import DATATYPES, datatype_of

pytestmark = [pytest.mark.slow, pytest.mark.long]
for _package in ("fastapi", "uvicorn", "grpc", "prometheus_client", "tritonclient"):
    pytest.importorskip(_package)

FOLDER = ROOT / "example/nlp/tiny_marian"


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with serving("tiny_marian", "digits", grpc=True) as found:
        yield found


def test_the_answer_of_the_task(server: Served) -> None:
    sentence = (FOLDER / "data/sentences.txt").read_text(encoding="utf-8").splitlines()[0]
    found = server.ask("/v2/models/tiny_marian/answer", sentence.encode(), content_type="text/plain")
    assert found.status == 200, found.body
    assert found.json["answers"][0]["text"]


def test_metadata_lists_the_networks(server: Served) -> None:
    found = server.ask("/v2/models/tiny_marian").json
    assert (found["inputs"], found["parameters"]["networks"]) == ([], ["tiny_marian.encoder", "tiny_marian.decoder"])
    encoder = server.ask("/v2/models/tiny_marian.encoder").json
    assert (encoder["name"], len(encoder["inputs"])) == ("tiny_marian.encoder", 2)
    assert server.ask("/v2/models/tiny_marian.encoder/ready").json["ready"] is True
    assert server.lines[0].startswith("tiny_marian: translation on ")
    assert "tiny_marian.encoder batches" in server.lines[0]


def inputs_of(server: Served) -> dict[str, Array]:
    """Return inputs of the encoder: tokens of two sentences, and a mask without padding."""
    found = {}
    for one in server.ask("/v2/models/tiny_marian.encoder").json["inputs"]:
        shape = [size if size > 0 else fixed for size, fixed in zip(one["shape"], (2, 16), strict=True)]
        found[one["name"]] = np.ones(shape, DATATYPES[one["datatype"]])
    return found


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_tensors_of_a_network(server: Served, protocol: str) -> None:
    kind = pytest.importorskip(f"tritonclient.{protocol}")
    inputs = inputs_of(server)
    with open_engine("onnx", EngineSpec(ckpt=FOLDER / "tiny_marian_encoder_dyn.onnx")) as engine:
        expected: Any = engine([inputs[spec.name] for spec in engine.inputs])
        outputs = [spec.name for spec in engine.outputs]
    given = []
    for name, array in inputs.items():
        one = kind.InferInput(name, array.shape, datatype_of(array.dtype))
        one.set_data_from_numpy(array)
        given.append(one)
    with kind.InferenceServerClient(f"127.0.0.1:{getattr(server, protocol)}") as client:
        assert client.is_model_ready("tiny_marian.encoder")
        found = client.infer("tiny_marian.encoder", given, model_version="1")
        first = expected[0] if isinstance(expected, list) else expected
        assert found.as_numpy(outputs[0]).tobytes() == first.tobytes()
        with pytest.raises(Exception, match=r"tiny_marian\.encoder, tiny_marian\.decoder"):
            client.infer("tiny_marian", given)


@pytest.mark.parametrize("name", ["tiny_marian.none", "none.encoder", "digits.model", "digits.", ".encoder"])
def test_unknown_networks(server: Served, name: str) -> None:
    found = server.ask(f"/v2/models/{name}/infer", {"inputs": []})
    assert (found.status, "tiny_marian.decoder" in found.json["error"]) == (404, True)
    assert server.ask("/v2/models/tiny_marian.encoder/versions/3").status == 404
    assert 'model="tiny_marian.none"' not in server.ask("/metrics").body.decode()
