"""The Open Inference Protocol over gRPC."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import Served, serving, tensor
from support import DIGITS, RunPython

from engine import Array
from serve.protocol.compile import PROTO
from serve.protocol.messages import COMPILED, SERVICE, messages

grpc = pytest.importorskip("grpc")
for _package in ("fastapi", "uvicorn", "prometheus_client"):
    pytest.importorskip(_package)

Call = Callable[..., Any]
WORD = "abc"


def caller(server: Served, **how: Any) -> tuple[Any, Call]:
    """Return a channel, and a function that makes a call by its name and the fields of its message."""
    channel = grpc.insecure_channel(f"127.0.0.1:{server.grpc}", options=[("grpc.max_receive_message_length", -1)])

    def call(name: str, /, message: Any = None, **fields: Any) -> Any:
        known = messages().calls[name]
        sent = getattr(messages(), known.input_type.name)(**fields) if message is None else message
        ways = {
            "request_serializer": type(sent).SerializeToString,
            "response_deserializer": getattr(messages(), known.output_type.name).FromString,
        }
        return channel.unary_unary(f"/{SERVICE}/{name}", **ways)(sent, timeout=60, **how)

    return channel, call


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with serving("digits", f"raw={DIGITS / 'digits_dyn.onnx'}", grpc=True) as found:
        yield found


@pytest.fixture(scope="module")
def call(server: Served) -> Iterator[Call]:
    channel, found = caller(server)
    with channel:
        yield found


@pytest.fixture(scope="module")
def image() -> Array:
    return np.random.default_rng(1).random((2, 3, 32, 32)).astype(np.float32)


def request(image: Array, **fields: Any) -> Any:
    given = {"name": "input", "datatype": "FP32", "shape": image.shape}
    return messages().ModelInferRequest(
        model_name="digits", inputs=[given], raw_input_contents=[image.tobytes()], **fields
    )


def test_compiled_messages_are_those_of_the_proto(tmp_path: Path, run_python: RunPython) -> None:
    pytest.importorskip("grpc_tools")
    code = (
        "import sys; from pathlib import Path; from serve.protocol.compile import compile_proto; "
        "compile_proto(Path(sys.argv[1]))"
    )
    done = run_python("-c", code, tmp_path / "again.binpb")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "again.binpb").read_bytes() == COMPILED.read_bytes(), f"run: python -m {PROTO.stem}"


def test_messages_have_the_published_numbers() -> None:
    fields = {one.name: one.number for one in messages().ModelInferRequest.DESCRIPTOR.fields}
    names = ("model_name", "model_version", "id", "parameters", "inputs", "outputs", "raw_input_contents")
    assert fields == dict(zip(names, range(1, 8), strict=True))
    assert len(messages().calls) == 10
    with pytest.raises(AttributeError):
        messages().NoSuchMessage  # noqa: B018


@pytest.mark.slow
def test_metadata(call: Call) -> None:
    assert call("ServerLive").live
    assert call("ServerReady").ready
    assert call("ModelReady", name="digits").ready
    assert call("ServerMetadata").name == "teco-serve"
    found = call("ModelMetadata", name="digits")
    assert [(one.name, one.datatype, list(one.shape)) for one in found.inputs] == [("input", "FP32", [-1, 3, 32, 32])]
    assert {one.name: one.state for one in call("RepositoryIndex").models} == {"digits": "READY", "raw": "READY"}


@pytest.mark.slow
def test_tensors_have_the_bits_of_rest(server: Served, call: Call, image: Array) -> None:
    found = call("ModelInfer", request(image, id="9"))
    rest = server.ask("/v2/models/digits/infer", {"inputs": [tensor("input", image)]}).json
    assert (found.model_name, found.id, list(found.outputs[0].shape)) == ("digits", "9", [2, 10])
    assert found.raw_output_contents[0] == np.array(rest["outputs"][0]["data"], np.float32).tobytes()
    given = {"name": "input", "datatype": "FP32", "shape": image.shape, "contents": {"fp32_contents": image.ravel()}}
    assert call("ModelInfer", model_name="raw", inputs=[given]).raw_output_contents == found.raw_output_contents


@pytest.mark.slow
def test_best_classes(call: Call, image: Array) -> None:
    name = call("ModelMetadata", name="digits").outputs[0].name
    wanted = {"name": name, "parameters": {"classification": messages().InferParameter(int64_param=1)}}
    found = call("ModelInfer", request(image, outputs=[wanted]))
    assert (found.outputs[0].datatype, list(found.outputs[0].shape)) == ("BYTES", [2, 1])
    assert found.raw_output_contents[0].count(b":") == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda one: one.ClearField("inputs"), "INVALID_ARGUMENT"),
        (lambda one: one.raw_input_contents.append(b""), "INVALID_ARGUMENT"),
        (lambda one: setattr(one, "model_name", "none"), "NOT_FOUND"),
        (lambda one: setattr(one, "model_version", "3"), "NOT_FOUND"),
        (lambda one: one.inputs[0].shape.append(2), "INVALID_ARGUMENT"),
        (lambda one: one.inputs[0].shape.append(1 << 50), "RESOURCE_EXHAUSTED"),
        (lambda one: one.inputs[0].contents.fp32_contents.append(1), "INVALID_ARGUMENT"),
        (lambda one: setattr(one.inputs[0], "datatype", "FP16"), "INVALID_ARGUMENT"),
        (lambda one: setattr(one.inputs[0], "name", "x"), "INVALID_ARGUMENT"),
        (
            lambda one: one.parameters["priority"].MergeFrom(messages().InferParameter(string_param="a")),
            "INVALID_ARGUMENT",
        ),
        (
            lambda one: one.parameters["sequence_id"].MergeFrom(messages().InferParameter(int64_param=3)),
            "UNIMPLEMENTED",
        ),
        (lambda one: one.outputs.add(name="none"), "INVALID_ARGUMENT"),
    ],
)
def test_wrong_requests(call: Call, image: Array, change: Callable[[Any], Any], code: str) -> None:
    message = request(image)
    change(message)
    with pytest.raises(grpc.RpcError) as caught:
        call("ModelInfer", message)
    assert caught.value.code().name == code
    assert "\n" not in caught.value.details()


@pytest.mark.slow
def test_contents_in_the_wrong_field(call: Call, image: Array) -> None:
    given = {"name": "input", "datatype": "FP32", "shape": image.shape, "contents": {"fp64_contents": image.ravel()}}
    with pytest.raises(grpc.RpcError) as caught:
        call("ModelInfer", model_name="raw", inputs=[given])
    assert "fp32_contents" in caught.value.details()


@pytest.mark.slow
def test_messages_that_are_too_large(image: Array) -> None:
    with serving("digits", "--max_body", "0.01", grpc=True) as server:
        channel, call = caller(server)
        with channel, pytest.raises(grpc.RpcError) as caught:
            call("ModelInfer", request(np.zeros((100, 3, 32, 32), np.float32)))
        assert caught.value.code().name == "RESOURCE_EXHAUSTED"


@pytest.mark.slow
def test_models_are_unloaded_and_loaded_by_grpc(call: Call, image: Array) -> None:
    call("RepositoryModelUnload", model_name="raw")
    assert not call("ModelReady", name="raw").ready
    with pytest.raises(grpc.RpcError) as caught:
        call("ModelInfer", model_name="raw")
    assert caught.value.code().name == "UNAVAILABLE"
    call("RepositoryModelLoad", model_name="raw")
    assert call("ModelReady", name="raw").ready
    parameter = {"config": messages().ModelRepositoryParameter(string_param="{}")}
    with pytest.raises(grpc.RpcError) as caught:
        call("RepositoryModelLoad", model_name="raw", parameters=parameter)
    assert caught.value.code().name == "UNIMPLEMENTED"


@pytest.mark.slow
def test_token_by_metadata(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(WORD)
    with serving("digits", "--token_file", tmp_path / "token", grpc=True) as server:
        channel, call = caller(server)
        with channel:
            assert call("ServerLive").live
            with pytest.raises(grpc.RpcError) as caught:
                call("ModelMetadata", name="digits")
            assert caught.value.code().name == "UNAUTHENTICATED"
        channel, call = caller(server, metadata=[("authorization", f"Bearer {WORD}")])
        with channel:
            assert call("ModelMetadata", name="digits").name == "digits"


def test_a_client_library_with_its_own_messages_can_be_imported(run_python: RunPython) -> None:
    pytest.importorskip("tritonclient.grpc")
    code = "from serve.protocol.messages import messages; messages().ModelInferRequest; import tritonclient.grpc"
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    assert sys.executable
