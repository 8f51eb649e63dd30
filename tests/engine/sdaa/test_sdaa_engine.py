from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import SaveOnnx

from engine import ConfigError, Engine, EngineError, EngineSpec, ModelError, open_engine
from engine.backends.ort import HostSession
from engine.sdaa.device import Card
from utils.datasets import load_dataset
from utils.metrics import TopK
from utils.pipeline import evaluate
from utils.postprocess.pytorch.classification import scores
from utils.preprocess.pytorch.classification import preprocess

rng = np.random.default_rng(0)


def opened(path: Path, **options: object) -> Engine:
    return open_engine("sdaa", EngineSpec(ckpt=path, **options))  # type: ignore[arg-type]


def build(nodes: list[onnx.NodeProto], tail: list[int], **weights: np.ndarray) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *tail])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def node(op: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], **attributes)


MODELS = {
    "mlp": (
        build(
            [node("MatMul", "x w", "a"), node("Add", "a b", "h"), node("Relu", "h", "r"), node("Gemm", "r v c", "y")],
            [37],
            w=rng.standard_normal((37, 129)),
            b=rng.standard_normal(129),
            v=rng.standard_normal((129, 10)),
            c=rng.standard_normal(10),
        ),
        [37],
    ),
    "conv": (
        build(
            [
                node("Conv", "x w b", "a", pads=[1, 1, 1, 1]),
                node("Relu", "a", "r"),
                node("GlobalAveragePool", "r", "p"),
                node("Flatten", "p", "y"),
            ],
            [3, 12, 12],
            w=rng.standard_normal((8, 3, 3, 3)),
            b=rng.standard_normal(8),
        ),
        [3, 12, 12],
    ),
    "lstm": (
        build(
            [
                node("Transpose", "x", "t", perm=[1, 0, 2]),
                helper.make_node("LSTM", ["t", "w", "r"], ["", "h"], hidden_size=6),
                node("Transpose", "h", "y", perm=[1, 0, 2]),
            ],
            [5, 4],
            w=rng.standard_normal((1, 24, 4)),
            r=rng.standard_normal((1, 24, 6)),
        ),
        [5, 4],
    ),
    "softmax": (build([node("Softmax", "x", "y")], [33]), [33]),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("spas", [1, 3, 4])
def test_sharded_equals_unsharded_bit_for_bit(
    name: str, spas: int, save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_ENGINE_NUMS", str(spas))
    model, tail = MODELS[name]
    whole = HostSession(model)
    for batch_size in (1, 7, 64):
        with opened(save_onnx(model), batch_size=batch_size, dtype="float32") as engine:
            for batch in (1, 7, 64):
                x = rng.standard_normal((batch, *tail)).astype(np.float32)
                np.testing.assert_array_equal(engine(x), whole.run([x])[0])


def test_float16_does_not_depend_on_the_number_of_spa(save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tail = MODELS["mlp"]
    x = rng.standard_normal((30, *tail)).astype(np.float16)
    answers = []
    for spas in (1, 3, 4):
        monkeypatch.setenv("MAX_ENGINE_NUMS", str(spas))
        with opened(save_onnx(model), batch_size=16) as engine:
            answers.append(engine(x))
    assert answers[0].dtype == np.float16
    np.testing.assert_array_equal(answers[0], answers[1])
    np.testing.assert_array_equal(answers[0], answers[2])


def card(engine: Engine) -> Card:
    return engine.card  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(
    ("spas", "batch_size", "size", "shards"),
    [("4", 64, 16, [1, 1, 1, 1]), ("3", 64, 22, [1, 1, 1]), ("1", 64, 64, [1]), ("4", 1, 1, [16, 16, 16, 16])],
)
def test_the_batch_of_the_card_is_divided_over_its_spa(
    spas: str, batch_size: int, size: int, shards: list[int], save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_ENGINE_NUMS", spas)
    model, tail = MODELS["softmax"]
    with opened(save_onnx(model), batch_size=batch_size) as engine:
        assert f"{spas} SPA x batch {size}, float16 storage" in engine.describe()
        engine(np.zeros((64, *tail), np.float16))
        assert [spa.shards for spa in card(engine).spas] == shards


def test_input_size_is_per_spa(save_onnx: SaveOnnx) -> None:
    model, _ = MODELS["softmax"]
    with opened(save_onnx(model), batch_size=64, input_size=((5, 33),)) as engine:
        assert "4 SPA x batch 5," in engine.describe()


def test_one_spa_where_nothing_is_to_be_divided(save_onnx: SaveOnnx) -> None:
    model, _ = MODELS["softmax"]
    with opened(save_onnx(model), divided=False, batch_size=8) as engine:
        assert "1 SPA x batch 8," in engine.describe()


@pytest.mark.parametrize("batch", [1, 7, 16, 64, 70])
def test_a_static_model_takes_any_batch(batch: int, save_onnx: SaveOnnx) -> None:
    text = "g (float[16,2] x) => (float[16,2] y) { y = Mul(x, x) }"
    with opened(save_onnx(text), batch_size=batch) as engine:
        x = rng.standard_normal((batch, 2)).astype(np.float16)
        np.testing.assert_array_equal(engine(x), x * x)


def test_several_inputs_in_the_callers_order(save_onnx: SaveOnnx) -> None:
    text = """g (float[N,2] x, int64[N] i, float[3,2] table) => (int64[N] j, float[N,2] y, float s) <int64 one={1}> {
        row = Gather(table, i)
        y = Add(x, row)
        j = Add(i, one)
        s = ReduceSum<keepdims=0>(table)
    }"""
    path = save_onnx(text)
    for batch in (1, 2, 4, 9):
        x, i = rng.standard_normal((batch, 2)).astype(np.float16), np.arange(batch) % 3
        table = np.arange(6, dtype=np.float16).reshape(3, 2)
        with opened(path, batch_size=4, input_name=("x", "table", "i")) as engine:
            assert engine.input_dtype == "float16"
            j, y, s = engine([x, table, i])
        np.testing.assert_array_equal(j, i + 1)
        np.testing.assert_array_equal(y, x + table[i])
        assert s == 15


def test_an_output_that_sums_the_samples_is_that_of_the_whole_call(save_onnx: SaveOnnx) -> None:
    text = "g (float[N,2] x) => (float[N,2] y, float s) { y = Relu(x)\n s = ReduceSum<keepdims=0>(x) }"
    x = np.arange(16, dtype=np.float16).reshape(8, 2)
    said = "samples depend on one another .*: the whole call runs on one SPA"
    with opened(save_onnx(text), batch_size=8) as engine, pytest.warns(UserWarning, match=said):
        y, s = engine(x)
    np.testing.assert_array_equal(y, x)
    assert s == x.sum()


def test_dynamic_sizes_must_be_given(save_onnx: SaveOnnx) -> None:
    path = save_onnx("g (float[N,3,H,W] x) => (float[N,3,H,W] y) { y = Relu(x) }")
    with pytest.raises(
        ConfigError, match=r"input 'x' has dynamic dimensions \(Nx3xHxW\); pass --dim H=128 --dim W=128, or one"
    ):
        opened(path)
    with opened(path, input_size=((1, 3, 8, 8),)) as engine:
        assert engine(np.zeros((5, 3, 8, 8), np.float16)).shape == (5, 3, 8, 8)


def test_a_size_the_model_cannot_take_names_the_file(save_onnx: SaveOnnx) -> None:
    model = onnx.load(
        save_onnx("g (float[N,K] x) => (float[N,2] y) <float[4,2] w={1,2,3,4,5,6,7,8}> { y = MatMul(x, w) }")
    )
    with pytest.raises(ModelError, match=r"model\.onnx: "):
        opened(save_onnx(model), input_size=((1, 5),))


def test_a_float16_file_in_float32(save_onnx: SaveOnnx) -> None:
    path = save_onnx("g (float16[N,2] x) => (float16[N,2] y) { s = Mul(x, x)\n y = Sqrt(s) }")
    with opened(path, dtype="float32", batch_size=4) as engine:
        y = engine(np.full((3, 2), 300, np.float32))
    assert (engine.input_dtype, y.dtype) == ("float32", np.float32)
    np.testing.assert_array_equal(y, np.full((3, 2), 300))


def test_release(save_onnx: SaveOnnx) -> None:
    engine = opened(save_onnx(MODELS["softmax"][0]))
    engine.release()
    engine.release()
    assert not hasattr(engine, "_session")
    assert engine.describe().startswith("simulated T1 card")
    assert engine.simulated
    with pytest.raises(EngineError):
        engine(np.zeros((1, 33), np.float16))


# -------------------------------------------------------------------------------------------------------- a pass file

SQUARES = "g (float[N,2] x, float[N,2] p) => (float[N,2] y, float[N,2] z) { s = Mul(x, x)\n y = Sqrt(s)\n z = Neg(p) }"


def with_pass(tmp_path: Path, save_onnx: SaveOnnx, code: str) -> Engine:
    (tmp_path / "my_pass.py").write_text(code)
    return opened(save_onnx(SQUARES), pass_path=tmp_path / "my_pass.py", batch_size=4)


def test_skip_ops_of_a_pass_file(tmp_path: Path, save_onnx: SaveOnnx) -> None:
    x = np.full((3, 2), 300, np.float16)
    for code, answer in (("", np.inf), ("skip_ops = ['Mul']", np.inf), ("skip_ops = ['Mul', 'Sqrt']", 300)):
        with with_pass(tmp_path, save_onnx, code) as engine:
            y, _ = engine([x, x])
        assert y.dtype == np.float16
        np.testing.assert_array_equal(y, np.full((3, 2), answer))


def test_skip_input_name_of_a_pass_file(tmp_path: Path, save_onnx: SaveOnnx) -> None:
    with with_pass(tmp_path, save_onnx, "skip_input_name = 'p'") as engine:
        assert [tensor.dtype for tensor in engine.inputs] == [np.float16, np.float32]
        _, z = engine([np.ones((2, 2), np.float16), np.full((2, 2), 0.1, np.float32)])
    np.testing.assert_array_equal(z, np.full((2, 2), -np.float16(0.1)))


def test_need_convert_of_a_pass_file(tmp_path: Path, save_onnx: SaveOnnx) -> None:
    with with_pass(tmp_path, save_onnx, "need_convert = False") as engine:
        assert engine.input_dtype == "float32"
        assert "float16" not in engine.describe()
        y, _ = engine([np.full((2, 2), 300, np.float32)] * 2)
    assert (y.dtype, y[0, 0]) == (np.float32, 300)


# --------------------------------------------------------------------------------------------------------------- digits


@pytest.fixture(scope="module")
def images() -> tuple[np.ndarray, np.ndarray]:
    from support import DIGITS

    (batch,) = load_dataset(DIGITS / "data" / "val").batches(360)
    return preprocess(batch.samples, "float32", 32, 32), batch.targets


def predicted(target: str, path: Path, x: np.ndarray, batch_size: int) -> np.ndarray:
    per_spa = max(1, batch_size // 4)
    with open_engine(target, EngineSpec(path, batch_size, ((per_spa, 3, 32, 32),))) as engine:
        x = x.astype(engine.input_dtype)
        parts = [engine(x[i : i + batch_size]) for i in range(0, len(x), batch_size)]
    return np.concatenate(parts).argmax(axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits_dyn.onnx", "digits.onnx", "digits_float16_dyn.onnx"])
def test_digits_have_the_same_top1_everywhere(
    name: str, images: tuple[np.ndarray, np.ndarray], digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, labels = images
    baseline = predicted("onnx", digits / name, x, 64)
    assert (baseline == labels).mean() >= 0.98
    sizes = (1, 7, 64, 360) if name == "digits_dyn.onnx" else (7, 360)
    for batch_size in sizes:
        np.testing.assert_array_equal(predicted("onnx", digits / name, x, batch_size), baseline)
        for spas in ("1", "3", "4"):
            monkeypatch.setenv("MAX_ENGINE_NUMS", spas)
            top1 = (predicted("sdaa", digits / name, x, batch_size) == labels).mean()
            assert top1 == (baseline == labels).mean(), (batch_size, spas)


def test_digits_sharded_and_unsharded_scores_are_equal_in_float32(
    images: tuple[np.ndarray, np.ndarray], digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, _ = images
    with open_engine("onnx", EngineSpec(digits / "digits_dyn.onnx")) as engine:
        whole = engine(x)
    for spas in ("1", "3", "4"):
        monkeypatch.setenv("MAX_ENGINE_NUMS", spas)
        for batch in (1, 7, 64, 360):
            with opened(
                digits / "digits_dyn.onnx",
                batch_size=batch,
                input_size=((max(1, batch // 4), 3, 32, 32),),
                dtype="float32",
            ) as engine:
                np.testing.assert_array_equal(engine(x[:batch]), whole[:batch])


def test_digits_evaluated_through_the_pipeline(digits: Path) -> None:
    metrics = {}
    for target in ("onnx", "sdaa"):
        with open_engine(target, EngineSpec(digits / "digits_dyn.onnx", 64, ((16, 3, 32, 32),))) as engine:
            dtype = engine.input_dtype
            report = evaluate(
                engine,
                load_dataset(digits / "data" / "val").batches(64),
                lambda samples, dtype=dtype: preprocess(samples, dtype, 32, 32),
                scores,
                TopK(1),
            )
        assert (report.samples, report.steps, report.failures) == (360, 6, [])
        assert report.simulated == (target == "sdaa")
        metrics[target] = report.metric
    assert metrics["onnx"] == metrics["sdaa"] >= 0.98
