from __future__ import annotations

import copy
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from support import SaveOnnx

from engine import PASS_PATH, CardOptions, ConfigError, EngineSpec, Int8Options, open_engine
from engine.tecoinfer_paddle import TecoInferEngine as PaddleFace
from engine.tecoinfer_pytorch import TecoInferEngine


class OwnPath:
    """A path of a library of one's own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


@pytest.fixture
def model(save_onnx: SaveOnnx) -> Path:
    shaped = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"], name="abs")], "g", shaped[:1], shaped[1:])
    return save_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


@pytest.mark.parametrize("given", [str, Path, OwnPath], ids=["text", "Path", "PathLike"])
def test_a_path_of_any_kind_opens(given: Any, model: Path) -> None:
    spec = EngineSpec(given(model), pass_path=given(PASS_PATH / "default_pass.py"))
    assert (spec.ckpt, spec.pass_path) == (model, PASS_PATH / "default_pass.py")
    assert replace(spec, ckpt="other.onnx").ckpt == Path("other.onnx")
    with open_engine("onnx", spec) as engine:
        assert engine(-np.ones((2, 3), np.float32)).tolist() == np.ones((2, 3)).tolist()


@pytest.mark.parametrize("face", [TecoInferEngine, PaddleFace])
@pytest.mark.parametrize("given", [str, Path, OwnPath], ids=["text", "Path", "PathLike"])
def test_the_historical_classes_give_the_same(face: Any, given: Any, model: Path) -> None:
    with face(ckpt=given(model), target="onnx", input_size=[[2, 3]]).engine as engine:
        assert engine.spec.ckpt == model


REFUSED = {
    "bytes": (b"a.onnx", "ckpt b'a.onnx' is of type bytes; pass the path of the ONNX file"),
    "a number": (3, "ckpt 3 is of type int; pass the path of the ONNX file"),
    "what is loaded": (helper.ModelProto(), "is of type ModelProto; pass the path of the ONNX file"),
}


@pytest.mark.parametrize(("given", "said"), REFUSED.values(), ids=REFUSED)
def test_values_that_are_not_paths_are_refused(given: Any, said: str) -> None:
    for make in (EngineSpec, lambda ckpt: TecoInferEngine(ckpt=ckpt), lambda ckpt: PaddleFace(ckpt=ckpt)):
        with pytest.raises(ConfigError) as caught:
            make(given)
        assert str(caught.value).endswith(said)
        assert "\n" not in str(caught.value)


def test_a_missing_path_is_refused() -> None:
    none: Any = None
    with pytest.raises(ConfigError, match=r"^ckpt None .*NoneType; .*ONNX file$"):
        EngineSpec(none)
    with pytest.raises(ConfigError, match=r"^ckpt is empty; .*ONNX file$"):
        EngineSpec("")
    with pytest.raises(ConfigError, match=r"^TecoInferEngine needs ckpt"):
        TecoInferEngine(ckpt=none)
    in_bytes: Any = os.fsencode(PASS_PATH)
    with pytest.raises(ConfigError, match=r"^pass_path b'.*' is of type bytes; pass the path of a Python file with"):
        EngineSpec("a.onnx", pass_path=in_bytes)


def test_open_sizes_bind_open_dimensions(save_onnx: SaveOnnx) -> None:
    """One size of a position binds it; several, and sizes by symbol, go to dims; fixed dimensions stay."""
    path = save_onnx("one (float[n,3,h,w] x) => (float[n,3,h,w] y) { y = Relu(x) }")
    sizes = {(0, 1): (4,), (0, 2): (16,), (0, 3): (8, 32)}
    for target in ("onnx", "sdaa"):
        with open_engine(target, EngineSpec(path, open_sizes=sizes)) as engine:
            assert engine.inputs[0].shape == (None, 3, 16, None)
            assert engine.spec.dims == {"w": (8, 32)}
            assert np.shape(engine(np.zeros((1, 3, 16, 8), engine.input_dtype))) == (1, 3, 16, 8)
    with open_engine("onnx", EngineSpec(path, open_sizes=sizes, dims={"w": (4,)})) as engine:
        assert engine.spec.dims == {"w": (4,)}
    given = ((None, 3, 24, 40),)
    with open_engine("onnx", EngineSpec(path, open_sizes=sizes, input_size=given)) as engine:
        assert engine.inputs[0].shape == (None, 3, 24, 40)
    with open_engine("onnx", EngineSpec(path, open_sizes={"h": (16,), "w": (8, 32), "none": (7,)})) as engine:
        assert engine.inputs[0].shape == (None, 3, None, None)  # by symbol, which a model may lack
        assert engine.spec.dims == {"h": (16,), "w": (8, 32)}
    with pytest.raises(ConfigError, match=r"dimension 4 .*input 0.*4"):
        open_engine("onnx", EngineSpec(path, open_sizes={(0, 4): (1,)}))


@pytest.mark.parametrize(
    ("given", "declared", "expected"),
    [
        ((None, None, 8, 9), ("N", 8, 9, 3), (None, 8, 9, None)),
        ((None, 3, 8, 9), ("N", "h", "w", 3), (None, 8, 9, None)),
        ((None, 3, 8, 9), ("N", "c", "h", "w"), (None, 3, 8, 9)),
        ((None, 3, 8, 9), ("N", 3, 8, 9), (None, None, 8, 9)),
        ((None, None, 3, 3), ("N", 3, 3, 3), (None, None, 3, 3)),
        ((4, 8, 9, 3), ("N", 8, 9, 3), (4, 8, 9, 3)),
        ((None, 8), ("N", 8), (None, 8)),
    ],
)
def test_images_have_the_models_order_of_dimensions(given: Any, declared: Any, expected: Any) -> None:
    spec = EngineSpec(Path("m.onnx"), input_size=(given,), images=True).with_images([declared])
    assert spec.input_size == (expected,)
    assert not spec.images
    plain = EngineSpec(Path("m.onnx"), input_size=(given,))
    assert plain.with_images([declared]).input_size == (given,)


def test_options_of_cards_and_of_int8_are_given_and_read_by_name() -> None:
    own = {field.name for field in fields(EngineSpec)}
    card, int8 = ({field.name for field in fields(kind)} for kind in (CardOptions, Int8Options))
    assert (len(own), len(card), len(int8), card & int8) == (18, 6, 2, set())
    spec = EngineSpec("m.onnx", 8, rank=1, divided=False, calibration=64, min_cosine=0.5)
    assert (spec.rank, spec.divided, spec.calibration, spec.min_cosine) == (1, False, 64, 0.5)
    moved = replace(spec, rank=2, shard_tables=True)
    assert (moved.rank, moved.shard_tables, moved.divided, moved.batch_size) == (2, True, False, 8)
    assert spec == replace(moved, rank=1, shard_tables=False)
    assert hash(spec) == hash(replace(moved, rank=1, shard_tables=False))
    assert copy.deepcopy(spec) == spec
    for wrong in ({"calibration": 0}, {"min_cosine": 2.0}, {"streams": 0}):
        with pytest.raises(ConfigError):
            EngineSpec("m.onnx", **wrong)  # type: ignore[arg-type]
    too_many: Any = ("m.onnx", 8, None, (), None, None, 1)
    with pytest.raises(TypeError):  # what was the rank is not taken for the streams
        EngineSpec(*too_many)
