from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
from support import SaveOnnx

from engine import ConfigError, EngineError, TargetError
from engine.base import PASS_PATH
from engine.tecoinfer_paddle import TecoInferEngine as PaddleEngine
from engine.tecoinfer_pytorch import TecoInferEngine

RELU = "g (float[N,4] input) => (float[N,4] y) { y = Relu(input) }"
X = np.array([[1, -1, 2, -2]], np.float16)
KEYWORDS = {
    *("ckpt", "input_name", "target", "batch_size", "input_size", "dtype", "pass_path", "backend", "rank"),
    *("save_engine", "task", "model", "model_name", "devide", "divided", "card_bs1"),
}

faces = pytest.mark.parametrize("face", [TecoInferEngine, PaddleEngine])


def test_every_keyword_is_spelled_out() -> None:
    assert not KEYWORDS - inspect.signature(TecoInferEngine).parameters.keys()


@faces
@pytest.mark.parametrize(
    ("target", "backend"), [("onnx", "onnxruntime"), ("sdaa", "tvm"), ("null", "tvm"), ("cpu", "tvm")]
)
def test_a_call(face: type[TecoInferEngine], target: str, backend: str, save_onnx: SaveOnnx) -> None:
    engine = face(ckpt=str(save_onnx(RELU)), input_name="input", target=target, batch_size=1, input_size=[[1, 4]])
    assert engine.backend == backend
    assert engine.run_time == 0.0
    y = engine(X)
    assert isinstance(y, np.ndarray)
    assert engine.run_time > 0
    np.testing.assert_array_equal(engine([X]), y)
    engine.release()
    engine.release()
    with pytest.raises(EngineError, match="used after release"):
        engine(X)


def test_several_outputs_come_as_a_list(save_onnx: SaveOnnx) -> None:
    path = save_onnx("g (float[N,4] x) => (float[N,4] b, float[N,4] a) { a = Neg(x)\n b = Relu(x) }")
    b, a = TecoInferEngine(ckpt=path, target="onnx")(X.astype(np.float32))
    np.testing.assert_array_equal(a, -X)
    np.testing.assert_array_equal(b, np.maximum(X, 0))


def test_ckpt_or_model(save_onnx: SaveOnnx) -> None:
    path = save_onnx(RELU)
    assert TecoInferEngine(model=str(path), target="onnx").model_path == str(path)
    with pytest.raises(ConfigError, match="TecoInferEngine needs ckpt"):
        TecoInferEngine(target="onnx")


def test_unknown_keywords_warn_and_are_ignored(save_onnx: SaveOnnx) -> None:
    with pytest.warns(UserWarning, match="ignores unknown keywords: a_b, z") as caught:
        TecoInferEngine(ckpt=save_onnx(RELU), target="onnx", z=1, a_b=2)
    assert caught[0].filename == __file__


def test_the_passes_of_the_zoo_are_the_default(save_onnx: SaveOnnx) -> None:
    path = save_onnx(RELU)
    assert TecoInferEngine(ckpt=path, target="null").spec.pass_path == PASS_PATH / "default_pass.py"
    other = PASS_PATH / "resnet" / "resnet_pass.py"
    assert TecoInferEngine(ckpt=path, target="null", pass_path=str(other)).spec.pass_path == other


@pytest.mark.parametrize("keywords", [{"devide": False}, {"divided": False}, {"card_bs1": True}])
def test_one_spa(keywords: dict[str, bool], save_onnx: SaveOnnx) -> None:
    engine = TecoInferEngine(ckpt=save_onnx(RELU), target="sdaa", **keywords)  # type: ignore[arg-type]
    assert "1 SPA" in engine.engine.describe()


@pytest.mark.parametrize(
    ("input_size", "shapes"),
    [
        (None, None),
        ([], None),
        ([[2, 4]], ((2, 4),)),
        ([2, 4], ((2, 4),)),
        ([np.int64(2), np.int64(4)], ((2, 4),)),
        (((2, 4),), ((2, 4),)),
        ([np.array([2, 4])], ((2, 4),)),
    ],
)
def test_shapes(input_size: object, shapes: object, save_onnx: SaveOnnx) -> None:
    engine = TecoInferEngine(ckpt=save_onnx(RELU), target="null", input_size=input_size)  # type: ignore[arg-type]
    assert engine.spec.input_size == shapes


@pytest.mark.parametrize(
    ("target", "rank", "wanted"), [("null", 2, 2), ("null:1", 0, 1), ("null:3", 2, 3), ("null", -1, 0)]
)
def test_device_index(target: str, rank: int, wanted: int, save_onnx: SaveOnnx) -> None:
    engine = TecoInferEngine(ckpt=save_onnx(RELU), target=target, rank=rank)
    assert (engine.target, engine.spec.rank) == ("null", wanted)


def test_names(save_onnx: SaveOnnx) -> None:
    path = save_onnx("g (float[N,4] a, float[N,4] b) => (float[N,4] y) { y = Sub(a, b) }")
    x = X.astype(np.float32)
    assert TecoInferEngine(ckpt=path, target="onnx", input_name=["b", "a"])([x, x * 3])[0, 0] == 2
    for nothing in ("", None, []):
        assert TecoInferEngine(ckpt=path, target="onnx", input_name=nothing)([x, x * 3])[0, 0] == -2


def test_unknown_target(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="did you mean 'sdaa'"):
        TecoInferEngine(ckpt=tmp_path / "m.onnx", target="sda")


def test_the_paddle_interface_accepts_half(save_onnx: SaveOnnx) -> None:
    path = save_onnx(RELU)
    assert PaddleEngine(ckpt=path, target="null", half=True).half is True
    assert PaddleEngine(ckpt=path, target="null").half is False
    assert PaddleEngine(ckpt=path, target="null", dtype="float16").half is True


def test_extra_arguments_of_a_call_are_ignored(save_onnx: SaveOnnx) -> None:
    engine = TecoInferEngine(ckpt=save_onnx(RELU), target="null")
    assert engine(X.astype(np.float32), None, verbose=True).shape == (1, 4)
