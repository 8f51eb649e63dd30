"""Messages whose tensors are cut out before the protobuf library decodes the rest: the same as the library reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("google.protobuf")

from serve.errors import ServeError
from serve.protocol import infer_messages
from serve.protocol.infer_messages import decoded, decoded_infer, parsed_request
from serve.protocol.messages import messages
from serve.settings import Limits

TENSORS = st.lists(st.binary(max_size=300), max_size=4)
NAMES = st.text(max_size=8)


@pytest.fixture(autouse=True, scope="module")
def every_size() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(infer_messages, "LARGE", 0)
        yield


def message(names: list[str], tensors: list[bytes], identifier: str) -> Any:
    inputs = [{"name": name, "datatype": "FP32", "shape": [1]} for name in names]
    found = messages().ModelInferRequest(model_name="m", id=identifier, inputs=inputs, raw_input_contents=tensors)
    found.parameters["priority"].int64_param = 3
    return found


def outcome(content: bytes) -> tuple[Any, list[bytes]] | str:
    """Return what is read of some bytes: the message without its tensors, and these; or the error."""
    try:
        found = decoded_infer(content)
    except ServeError as error:
        return str(error)
    tensors = [bytes(one) for one in found.raw]
    rest = messages().ModelInferRequest()
    rest.CopyFrom(found.message)
    rest.ClearField("raw_input_contents")
    return rest, tensors


def by_library(content: bytes) -> tuple[Any, list[bytes]] | str:
    try:
        found = decoded("ModelInferRequest", content)
    except ServeError as error:
        return str(error)
    tensors = list(found.raw_input_contents)
    found.ClearField("raw_input_contents")
    return found, tensors


@settings(max_examples=30)
@given(st.lists(NAMES, max_size=3), TENSORS, NAMES)
def test_every_message_is_read_as_by_the_library(names: list[str], tensors: list[bytes], identifier: str) -> None:
    content = message(names, tensors, identifier).SerializeToString()
    assert outcome(content) == by_library(content)


@settings(max_examples=100)
@given(TENSORS, st.data())
def test_damaged_messages_are_read_as_by_the_library(tensors: list[bytes], data: st.DataObject) -> None:
    content = bytearray(message(["x"], tensors, "a").SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    damaged = bytes(content[: data.draw(st.integers(0, len(content)))])
    assert outcome(damaged) == by_library(damaged)


def test_tensors_of_large_messages_share_the_memory_of_the_message() -> None:
    array = np.arange(20_000, dtype=np.float32)
    sent = message(["x"], [array.tobytes()], "a")
    sent.inputs[0].shape[:] = array.shape
    content = sent.SerializeToString()
    found = parsed_request(decoded_infer(content), Limits()).inputs["x"]
    assert found.tobytes() == array.tobytes()
    assert np.shares_memory(found, np.frombuffer(content, np.uint8))
