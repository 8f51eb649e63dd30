"""Batch axes on targets that do not split calls, and numerical tests of independence."""

from __future__ import annotations

import numpy as np
import pytest
from support import DIGITS, TVM, RunPython, SaveOnnx

from engine import EngineError, EngineSpec, InputError, TensorSpec, open_engine
from engine.batching.batch import Batching, compare_with_changed, compare_with_parts, samples_differ
from engine.batching.dims import shown_shape
from engine.signature import Array, BatchAxes

rng = np.random.default_rng(5)

F32 = np.dtype(np.float32)


def test_a_boolean_axis_is_rejected() -> None:
    with pytest.raises(TypeError, match=r"batch_axis.*True"):
        TensorSpec("x", F32, (4,), True)
    assert [TensorSpec("x", F32, (4,), axis).batched for axis in (0, 1, None)] == [True, True, False]


def test_shown_shape() -> None:
    tensor = TensorSpec("x", F32, (None, 2, None, None), 2, ("T", None, "batch", None))
    assert shown_shape(tensor) == "Tx2xNxN"


def test_dynamic_models_are_not_split(save_onnx: SaveOnnx) -> None:
    """With time first and without named symbols, the guessed batch axis must not change results."""
    path = save_onnx("g (float[T,1,3] x) => (float[T,1,3] y) <int64 a = {0}> { y = CumSum(x, a) }")
    x = rng.standard_normal((9, 1, 3)).astype(np.float32)
    with open_engine("onnx", EngineSpec(path, 2)) as engine:
        np.testing.assert_allclose(np.asarray(engine(x)), x.cumsum(0), rtol=1e-5)
        assert engine.independent is None


def test_the_graph_is_analysed_once(save_onnx: SaveOnnx) -> None:
    """Target cpu shares the result with the engine that it selected."""
    path = save_onnx("g (float[4,T,3] x) => (float[4,T,3] y) { y = Relu(x) }")
    for target in ("onnx", "cpu", "null"):
        with open_engine(target, EngineSpec(path, 4, dtype="float32")) as engine:
            assert (engine.batching.learn(), engine.batching.learn()) == (True, False)
            assert (engine.static_batch, engine.batch_axis, engine.independent) == (4, 0, True)
            engine.independent = False  # set by an engine
            assert engine.batching.independent is False


def test_an_engine_without_bound_shapes_is_not_analysed() -> None:
    batching = Batching(EngineSpec("gone.onnx"))
    batching.inputs = [TensorSpec("x", F32, (None, 3))]
    assert not batching.learn()
    with pytest.raises(InputError):
        batching.checked([np.zeros((2, 4), np.float32)])


@pytest.mark.parametrize("target", ["onnx", "null"])
def test_a_batch_symbol_on_any_axis(target: str, save_onnx: SaveOnnx) -> None:
    path = save_onnx(
        "g (float[batch,3] x, float[2,batch,3] s) => (float[batch,3] y, float[2,batch,3] t) "
        "{ y = Relu(x)\n t = Relu(s) }"
    )
    with open_engine(target, EngineSpec(path)) as engine:
        assert [tensor.batch_axis for tensor in (*engine.inputs, *engine.outputs)] == [0, 1, 0, 1]
        assert engine.inputs[1].symbols == (None, "batch", None)
        y, t = engine([np.ones((6, 3), np.float32), np.ones((2, 6, 3), np.float32)])
        assert (y.shape, t.shape) == ((6, 3), (2, 6, 3))
        with pytest.raises(InputError, match=r"input 's' has 5 samples.* 6"):
            engine([np.ones((6, 3), np.float32), np.ones((2, 5, 3), np.float32)])


@pytest.mark.parametrize("target", ["onnx", "sdaa", "cpu", "null", *TVM])
@pytest.mark.parametrize("batch", [1, 4, 7])
def test_a_leading_fixed_batch(target: str, batch: int, save_onnx: SaveOnnx) -> None:
    path = save_onnx("g (float[4,3] x) => (float[4,3] y) { y = Softmax<axis=1>(x) }")
    x = rng.standard_normal((batch, 3)).astype(np.float32)
    with open_engine(target, EngineSpec(path, 4, dtype="float32")) as engine:
        got = np.asarray(engine(x))
    assert got.shape == x.shape
    if target != "null":
        want = np.exp(x) / np.exp(x).sum(1, keepdims=True)
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_opening_a_dynamic_model_does_not_import_onnx(run_python: RunPython) -> None:
    code = (
        "import sys; from pathlib import Path; from engine import EngineSpec, open_engine; import numpy as np\n"
        f"with open_engine('onnx', EngineSpec(Path({str(DIGITS / 'digits_dyn.onnx')!r}))) as e:\n"
        "    e(np.zeros((3, 3, 32, 32), np.float32))\n"
        "print('onnx' in sys.modules, 'engine.batching.find' in sys.modules)"
    )
    done = run_python("-c", code)
    assert done.stdout.split() == ["False", "False"], done.stderr


# ------------------------------------------------------------------------------------------------------- by computing


def tensor(axis: int | None, *shape: int) -> TensorSpec:
    return TensorSpec("x", F32, shape, axis)


MODELS = {
    "each alone": (lambda x: np.tanh(x), True),
    "centred": (lambda x: x - x.mean(1, keepdims=True), False),
    "running": (lambda x: x.cumsum(1), False),
    "reversed": (lambda x: x[:, ::-1], False),
    "next": (lambda x: np.roll(x, -1, 1), False),
    "over the next": (lambda x: np.roll(x, -2, 1), False),
    "by its place": (lambda x: x * np.arange(1, x.shape[1] + 1, dtype=np.float32)[:, None], None),
    "largest wins": (lambda x: x == x.max(1, keepdims=True), False),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("batch", [3, 5, 8])
def test_dependence_is_detected(name: str, batch: int) -> None:
    model, independent = MODELS[name]

    def run(arrays: list[Array]) -> list[Array]:
        return [model(arrays[0])]

    x, spec = rng.standard_normal((3, batch, 4)).astype(np.float32), [tensor(1, 3, batch, 4)]
    assert samples_differ([x], spec)
    in_parts = compare_with_parts(run, [x], spec, spec, -(-batch // 2))
    assert (not in_parts) is (independent is True), in_parts
    if independent is not None:  # positions are the same in every call of a fixed batch
        changed = compare_with_changed(run, [x], spec, spec, batch)
        assert (not changed) is independent, changed


@pytest.mark.parametrize("x", [np.ones((3, 4, 2), np.float32), rng.random((3, 1, 2)).astype(np.float32)])
def test_inconclusive_calls(x: Array) -> None:
    assert not samples_differ([x, x], [tensor(1, *x.shape), tensor(None, *x.shape)])


# ----------------------------------------------------------------------------------------------------------------- int8


def test_calibration_keeps_dependent_samples_together(save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.backends import cpu

    path = save_onnx(
        "g (float[N,4] x) => (float[N,2] y) <float[4,2] w = {1,2,3,4,5,6,7,8}>"
        " { m = ReduceMean<axes=[0]>(x)\n c = Sub(x, m)\n y = MatMul(c, w) }"
    )
    monkeypatch.setattr(cpu, "openvino_installed", lambda: False)
    x = rng.standard_normal((6, 4)).astype(np.float32)
    with open_engine("cpu", EngineSpec(path, 6, dtype="int8", calibration=6)) as engine:
        shards = list(engine._shards([[x]]))  # type: ignore[attr-defined]
        assert [[array.shape for array in shard] for shard in shards] == [[(6, 4)]]
        engine.calibrate([[x]])
        got = np.asarray(engine(x))
    want = (x - x.mean(0)) @ np.arange(1, 9, dtype=np.float32).reshape(4, 2)
    assert np.abs(got - want).max() < 0.05 * np.abs(want).max()


def test_calibration_with_a_fixed_batch_of_dependent_samples(save_onnx: SaveOnnx) -> None:
    path = save_onnx(
        "g (float[4,4] x) => (float[4,2] y) <float[4,2] w = {1,2,3,4,5,6,7,8}>"
        " { m = ReduceMean<axes=[0]>(x)\n c = Sub(x, m)\n y = MatMul(c, w) }"
    )
    with open_engine("cpu", EngineSpec(path, 6, dtype="int8")) as engine:
        engine.independent = False  # as found by the analysis or in the first call
        with pytest.raises(InputError, match=r"6 samples.*--batch_size 4"):
            engine.calibrate([[rng.standard_normal((6, 4)).astype(np.float32)]])


@pytest.mark.parametrize("target", ["onnx", "cpu"])
def test_a_fixed_batch_of_dependent_samples_is_not_padded(target: str, save_onnx: SaveOnnx) -> None:
    path = save_onnx("g (float[4,3] x) => (float[4,3] y) { m = ReduceMean<axes=[0]>(x)\n y = Sub(x, m) }")
    with open_engine(target, EngineSpec(path, 4, dtype="float32")) as engine:
        with pytest.raises(EngineError, match="samples depend on"):
            engine(rng.standard_normal((3, 3)).astype(np.float32))
        assert engine.independent is False


def test_the_graph_corrects_a_wrong_guess(save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two unnamed dimensions of different sizes: both are guessed to be the batch; the analysis corrects it."""
    from engine.batching import find

    found = BatchAxes((0, None), (0, None))
    monkeypatch.setattr(find, "find_batching", lambda *_: found)
    path = save_onnx(
        "g (float[unk__1,3] x, float[unk__2,3] t) => (float[unk__1,3] y, float[unk__2,3] z) "
        "{ y = Relu(x)\n z = Relu(t) }"
    )
    with open_engine("onnx", EngineSpec(path)) as engine:
        assert [tensor.batch_axis for tensor in engine.inputs] == [0, 0]
        y, z = engine([np.ones((6, 3), np.float32), np.ones((2, 3), np.float32)])
        assert (y.shape, z.shape) == ((6, 3), (2, 3))
        assert [tensor.batch_axis for tensor in engine.inputs] == [0, None]
