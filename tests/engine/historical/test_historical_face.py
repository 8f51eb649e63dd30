"""Historical classes in scripts for detectors: names, tensors, timing, cards, built engines, attributes."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from support import SaveOnnx

from engine import ConfigError, ModelError
from engine.historical.keywords import as_arrays, card_of
from engine.tecoinfer_paddle import TecoInferEngine as PaddleEngine
from engine.tecoinfer_pytorch import TecoInferEngine

RELU = "g (float[N,4] input) => (float[N,4] y) { y = Relu(input) }"
SUB = "g (float[N,4] a, float[N,4] b) => (float[N,4] y) { y = Sub(a, b) }"
X = np.array([[1, -1, 2, -2]], np.float32)

faces = pytest.mark.parametrize("face", [TecoInferEngine, PaddleEngine])


# --------------------------------------------------------------------------------------------------------------- names


@faces
@pytest.mark.parametrize("name", ["input", "a", "b", ["images", "mask"], ["a", "mask"], ["x", "y", "z"]])
def test_unknown_input_names_warn(face: type[TecoInferEngine], name: object, save_onnx: SaveOnnx) -> None:
    with pytest.warns(UserWarning, match=r"input_name.*is not used.*a, b$"):
        engine = face(ckpt=save_onnx(SUB), target="onnx", input_name=name)  # type: ignore[arg-type]
    assert engine.input_names == ["a", "b"]
    np.testing.assert_array_equal(engine([X, X * 3]), X * -2)


@pytest.mark.parametrize("name", [["mask", "a"], ["b", "b"], ["b", "x"]])
def test_input_names_in_another_order_are_an_error(name: list[str], save_onnx: SaveOnnx) -> None:
    with pytest.raises(ConfigError, match=r"does not match the model's inputs: a, b; name each once, or none$"):
        TecoInferEngine(ckpt=save_onnx(SUB), target="onnx", input_name=name)


def test_names_of_all_inputs_are_honoured(save_onnx: SaveOnnx) -> None:
    engine = TecoInferEngine(ckpt=save_onnx(SUB), target="sdaa", input_name=["b", "a"], dtype="float32")
    assert engine.input_names == ["b", "a"]
    np.testing.assert_array_equal(engine([X, X * 3]), X * 2)


# ------------------------------------------------------------------------------------------------------------- tensors


class Tensor:
    """The part of a tensor's interface that is used."""

    def __init__(self, array: np.ndarray, dtype: str = "torch.float32") -> None:
        self.array, self.dtype, self.ndim, self.steps = array, dtype, array.ndim, ""

    def detach(self) -> Tensor:
        self.steps += "detach "
        return self

    def cpu(self) -> Tensor:
        self.steps += "cpu "
        return self

    def float(self) -> Tensor:
        return Tensor(self.array.astype(np.float32))

    def numpy(self) -> np.ndarray:
        assert self.dtype != "torch.bfloat16", "numpy has no bfloat16"
        return self.array


def test_tensors_are_known_by_their_methods() -> None:
    tensor = Tensor(X.T)
    found = as_arrays(tensor)
    np.testing.assert_array_equal(found, X.T)
    assert tensor.steps == "detach cpu "
    assert as_arrays(Tensor(X, "torch.bfloat16")).dtype == np.float32
    assert as_arrays(Tensor(np.array(3.0))).shape == ()
    assert as_arrays("text") == "text"
    mixed = as_arrays((Tensor(X), X))
    assert isinstance(mixed, list)
    assert mixed[1] is X


@faces
def test_tensors_in_a_call(face: type[TecoInferEngine], save_onnx: SaveOnnx) -> None:
    path = save_onnx(SUB)
    engine = face(ckpt=path, target="onnx")
    np.testing.assert_array_equal(engine([Tensor(X), X * 3], None, verbose=True), X * -2)


@pytest.mark.torch
@pytest.mark.parametrize("target", ["onnx", "sdaa"])
def test_torch_tensors(target: str, save_onnx: SaveOnnx) -> None:
    torch = pytest.importorskip("torch")
    path = save_onnx("g (float[N,4] x, int64[N] i, bool[N] m) => (float[N,4] y) { y = Relu(x) }")
    engine = TecoInferEngine(ckpt=path, target=target, dtype="float32")
    x = torch.arange(8.0).reshape(4, 2).t() - 3  # a view, not contiguous
    x.requires_grad_()
    i, m = torch.tensor([1, 2]), np.array([True, False])
    np.testing.assert_array_equal(engine([x, i, m]), np.maximum(x.detach().numpy(), 0))
    np.testing.assert_array_equal(engine((x.bfloat16(), i, torch.from_numpy(m))), np.maximum(x.detach().numpy(), 0))


# -------------------------------------------------------------------------------------------------------------- timing


def test_the_timing_of_the_simulated_card(save_onnx: SaveOnnx) -> None:
    engine = TecoInferEngine(ckpt=save_onnx(RELU), target="sdaa", batch_size=8, input_size=[[2, 4]])
    x = np.zeros((8, 4), np.float16)
    assert engine.module.simulated
    assert engine.module.get_infer_time() == [0.0] * 4
    engine(x)
    once = engine.module.get_infer_time()
    assert all(0 < ms < 1 for ms in once)
    calls = engine.engine.calls  # type: ignore[attr-defined]
    assert max(once) == pytest.approx(calls[0].latency * 1e3)
    engine.module.start_timing()
    assert engine.module.get_infer_time() == [0.0] * 4
    engine(x)
    engine(x[:2])  # of one SPA alone
    twice = engine.module.get_infer_time()
    assert twice == pytest.approx([once[0] * 2, *once[1:]])
    engine.release()
    assert engine.module.get_infer_time() == twice


def test_time_in_which_shards_of_a_spa_overlap_counts_once(save_onnx: SaveOnnx) -> None:
    engine = TecoInferEngine(ckpt=save_onnx(RELU), target="sdaa", batch_size=4, input_size=[[1, 4]])
    engine(np.zeros((16, 4), np.float16))  # four shards each
    assert max(engine.module.get_infer_time()) <= engine.engine.calls[0].latency * 1e3 * (1 + 1e-9)  # type: ignore[attr-defined]


@pytest.mark.parametrize("target", ["onnx", "null"])
def test_the_timing_on_other_targets_is_wall_time(target: str, save_onnx: SaveOnnx) -> None:
    engine = TecoInferEngine(ckpt=save_onnx(RELU), target=target)
    assert not engine.module.simulated
    engine(X)
    first = engine.run_time
    assert engine.module.get_infer_time() == [pytest.approx(first * 1e3)]
    engine.module.start_timing()
    engine(X)
    assert engine.module.get_infer_time() == [pytest.approx(engine.run_time * 1e3)]


# --------------------------------------------------------------------------------------------------------------- cards


def test_init_module(save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TECO_SIM_CARDS", "2")
    engine = TecoInferEngine(ckpt=save_onnx(RELU), target="sdaa", batch_size=4)
    first = engine.engine
    engine.init_module(0)
    assert engine.engine is first
    engine.init_module(1)
    assert (engine.rank, engine.engine.spec.rank, first.released) == (1, 1, True)
    assert [spa.device for spa in engine.engine.card.spas] == [4, 5, 6, 7]  # type: ignore[attr-defined]
    np.testing.assert_array_equal(engine(X), np.maximum(X, 0))
    with pytest.raises(ConfigError, match="card 2 does not exist"):
        engine.init_module(2)
    np.testing.assert_array_equal(engine(X), np.maximum(X, 0))
    engine.release()
    engine.init_module("1")  # type: ignore[arg-type]
    np.testing.assert_array_equal(engine(X), np.maximum(X, 0))


def test_card_of() -> None:
    assert [card_of(card) for card in (0, 3, "2", "sdaa:1", -1, np.int64(5))] == [0, 3, 2, 1, 0, 5]
    for wrong in ("", "x", None, 1.5, True):
        with pytest.raises(ConfigError, match=re.escape(f"card {wrong!r} must be the index of a card, such as 0")):
            card_of(wrong)


# ------------------------------------------------------------------------------------------------------- built engines


def test_a_saved_engine_by_the_old_ending(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    path = save_onnx(RELU)
    options = {"target": "sdaa", "batch_size": 8, "input_size": [[2, 4]]}
    TecoInferEngine(ckpt=path, dtype="float16", save_engine=True, **options).release()  # type: ignore[arg-type]
    old = path.with_suffix(".tecoengine").rename(tmp_path / "old.engine")
    engine = TecoInferEngine(ckpt=str(old), dtype="float16", **options)  # type: ignore[arg-type]
    engine.init_module(0)
    assert engine.engine.loaded  # type: ignore[attr-defined]
    assert (engine.dtype, engine.batch_size, engine.input_size) == ("float16", 8, [[2, 4]])
    np.testing.assert_array_equal(engine(X.astype(np.float16)), np.maximum(X, 0))
    with pytest.warns(UserWarning, match=r"old\.engine .*float16; dtype"):
        TecoInferEngine(ckpt=str(old), target="sdaa")
    with pytest.warns(UserWarning, match=r"pass_path default_pass\.py is ignored$"):
        TecoInferEngine(ckpt=str(old), target="sdaa", dtype="float16", pass_path=Path("default_pass.py"))


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("sdaa", "is not an engine of target sdaa"),
        ("onnx", "a built engine"),
        ("null", "a built engine"),
        ("cpu", "a built engine"),
    ],
)
def test_a_tensorrt_plan_of_another_machine_is_one_line(target: str, text: str, tmp_path: Path) -> None:
    plan = tmp_path / "m.engine"
    plan.write_bytes(b"ftrt" + bytes(range(256)) * 4)
    with pytest.raises(ModelError, match=text) as caught:
        TecoInferEngine(ckpt=plan, target=target)
    assert "\n" not in str(caught.value)
    assert str(plan) in str(caught.value)


# ---------------------------------------------------------------------------------------------------------- attributes


@faces
def test_attributes(face: type[TecoInferEngine], save_onnx: SaveOnnx) -> None:
    path = save_onnx(RELU)
    engine = face(ckpt=path, target="onnx", batch_size=8, input_size=[2, 4], rank=-1)
    assert (engine.input_names, engine.input_size, engine.batch_size) == (["input"], [[2, 4]], 8)
    assert (engine.dtype, engine.rank, engine.model_path) == ("float32", 0, str(path))
    assert [each.name for each in engine.session.get_inputs()] == ["input"]
    engine.release()
    assert engine.session is None
    other = face(ckpt=path, target="null", dtype="float16")
    assert (other.input_size, other.batch_size, other.session) == ([[None, 4]], 1, None)


def test_positional_arguments(save_onnx: SaveOnnx) -> None:
    path = str(save_onnx(RELU))
    torch_order = ("classification", "m", "tvm", path, 8, [[2, 4]], "input", "sdaa", "float16", False, True, 0)
    paddle_order = ("classification", "m", path, "sdaa", "float16", True, False, 8, [[2, 4]], "input", True, 0)
    for face, given in ((TecoInferEngine, torch_order), (PaddleEngine, (*paddle_order, "more", 7))):
        engine = face(*given)
        assert (engine.task, engine.model, engine.model_path) == ("classification", "m", path)
        assert (engine.target, engine.dtype, engine.batch_size, engine.input_size) == ("sdaa", "float16", 8, [[2, 4]])
        engine.release()
    assert PaddleEngine(None, None, path, "null", "float16").half is True


def test_unknown_keywords_of_the_paddle_face_name_the_caller(save_onnx: SaveOnnx) -> None:
    with pytest.warns(UserWarning, match="ignores unknown keywords: z") as caught:
        PaddleEngine(ckpt=save_onnx(RELU), target="null", z=1)
    assert caught[0].filename == __file__


# ---------------------------------------------------------------------------------------- the whole card's batch inside

GROUND = """
g (float[{b},3,8,8] images, int64[{b},5] input_ids, bool[{b},5] mask, bool[{b},5,5] text) => (float[{b},5,5] y) {{
  m = ReduceMean<axes=[1,2,3], keepdims=1>(images)
  k = Constant<value_ints=[1]>()
  f = Cast<to=1>(input_ids)
  u = Unsqueeze(f, k)
  t = Cast<to=1>(text)
  w = Add(t, u)
  o = Constant<value_ints=[1]>()
  s = Squeeze(m, o)
  y = Add(w, s)
}}
"""


@pytest.mark.parametrize("target", ["onnx", "sdaa", "null"])
@pytest.mark.parametrize("b", ["batch_size", "N", "1"])
def test_text_that_carries_the_batch_of_the_whole_card(target: str, b: str, save_onnx: SaveOnnx) -> None:
    path = save_onnx(GROUND.format(b=b))
    sizes = [[1, 3, 8, 8], [4, 5], [4, 5], [4, 5, 5]]
    with pytest.warns(UserWarning, match=r"input_size 4x5, 4x5, 4x5x5 .*card"):
        engine = TecoInferEngine(ckpt=path, target=target, batch_size=4, input_size=sizes, dtype="float32")
    chance = np.random.default_rng(0)
    images = chance.normal(size=(4, 3, 8, 8)).astype(np.float32)
    ids = np.arange(20).reshape(4, 5)
    mask, text = np.ones((4, 5), bool), chance.random((4, 5, 5)) < 0.5
    y = engine([images, ids, mask, text])
    assert y.shape == (4, 5, 5)
    if target != "null":
        want = text + ids[:, None] + images.mean((1, 2, 3))[:, None, None]
        np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)
    if target == "sdaa":
        assert engine.input_size == [[1, 3, 8, 8], [1, 5], [1, 5], [1, 5, 5]]
        assert engine.engine.shard_size == 1  # type: ignore[attr-defined]


def test_several_shares_of_the_batch_are_refused(save_onnx: SaveOnnx) -> None:
    path = save_onnx(GROUND.format(b="N"))
    with pytest.raises(ConfigError, match=r"batches 1, 2 and 8;.*SPA"):
        TecoInferEngine(ckpt=path, batch_size=8, input_size=[[1, 3, 8, 8], [2, 5], [8, 5], [8, 5, 5]])


def test_a_dimension_of_another_name_is_not_the_batch(save_onnx: SaveOnnx) -> None:
    path = save_onnx("g (float[N,4] x, float[anchors,4] t) => (float[N,4] y) { y = Relu(x) }")
    engine = TecoInferEngine(ckpt=path, target="sdaa", batch_size=8, input_size=[[2, 4], [8, 4]], dtype="float32")
    assert engine.input_size == [[2, 4], [8, 4]]


# ------------------------------------------------------------------------------------------------- sizes and warnings

JOINED = """
g (float[batch,3] images, int64[tokens,5] text) => (float[batch,8] y) {
  f = Cast<to=1>(text)
  y = Concat<axis=1>(images, f)
}
"""


@faces
@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"input_size": "1*4"}, r"input_size '1\*4' must be a list of shapes, one per input"),
        ({"input_size": [["a"]]}, "must be a list of shapes"),
        ({"batch_size": "8"}, "batch_size '8' must be a whole number"),
        ({"batch_size": 2.5}, "batch_size 2.5 must be a whole number"),
        ({"target": "sdaa:x"}, "card 'x' must be the index of a card"),
    ],
)
def test_invalid_values_are_one_line(
    face: type[TecoInferEngine], keywords: dict[str, object], words: str, save_onnx: SaveOnnx
) -> None:
    with pytest.raises(ConfigError, match=words):
        face(**{"ckpt": save_onnx(RELU), "target": "onnx", **keywords})  # type: ignore[arg-type]


def test_numpy_sizes_are_accepted(save_onnx: SaveOnnx) -> None:
    engine = TecoInferEngine(ckpt=save_onnx(RELU), target="onnx", batch_size=np.int64(8), input_size=np.array([[2, 4]]))
    assert (engine.input_size, engine.batch_size, type(engine.batch_size)) == ([[2, 4]], 8, int)


def test_two_incompatible_batches_are_one_line(save_onnx: SaveOnnx) -> None:
    words = r"input_size 2x3, 8x5 has inputs of 2 and of 8 samples, .* give every input the batch of one SPA, 2$"
    path = save_onnx(JOINED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # passes were not compared, as the model as it is does not run either
        with pytest.raises(ConfigError, match=words):
            TecoInferEngine(ckpt=path, target="sdaa", batch_size=8, input_size=[[2, 3], [8, 5]])
    engine = TecoInferEngine(ckpt=path, target="sdaa", batch_size=8, input_size=[[2, 3], [2, 5]])
    assert engine([np.zeros((8, 3), np.float32), np.ones((8, 5), np.int64)]).shape == (8, 8)


@faces
@pytest.mark.parametrize("target", ["onnx", "sdaa"])
def test_warnings_point_at_the_script(face: type[TecoInferEngine], target: str, save_onnx: SaveOnnx) -> None:
    path = save_onnx(JOINED.replace("tokens", "batch"))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        face(ckpt=path, target=target, batch_size=8, input_size=[[2, 3], [8, 5]], input_name="input", anything=1)
    assert len(said) == 3
    assert {one.filename for one in said} == {__file__}
