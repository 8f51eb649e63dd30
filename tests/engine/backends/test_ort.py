from __future__ import annotations

import json
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import TVM, SaveOnnx

from engine import ConfigError, Engine, EngineError, EngineSpec, InputError, ModelError, TargetError, open_engine
from engine.backends.ort import HostSession, cuda_session, open_session

DYNAMIC = "g (float[N,4] x) => (float[N,2] y) <float[4,2] w={1,2,3,4,5,6,7,8}> { y = MatMul(x, w) }"
STATIC = DYNAMIC.replace("[N,", "[16,")
WEIGHT = np.arange(1, 9, dtype=np.float32).reshape(4, 2)


def opened(path: Path, **options: object) -> Engine:
    return open_engine("onnx", EngineSpec(ckpt=path, **options))  # type: ignore[arg-type]


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("text", [DYNAMIC, STATIC], ids=["dynamic", "static"])
@pytest.mark.parametrize("batch", [1, 7, 16, 64, 70])
def test_any_batch(text: str, batch: int, save_onnx: SaveOnnx) -> None:
    x = random(batch, 4)
    with opened(save_onnx(text)) as engine:
        y = engine(x)
    assert isinstance(y, np.ndarray)
    assert y.shape == (batch, 2)
    np.testing.assert_allclose(y, x @ WEIGHT, rtol=1e-5, atol=1e-5)
    # the same in one call as row by row
    with opened(save_onnx(text)) as engine:
        np.testing.assert_array_equal(y, np.concatenate([engine(row[None]) for row in x]))


def test_several_inputs_and_outputs_of_several_kinds(save_onnx: SaveOnnx) -> None:
    path = save_onnx(
        """g (float[16,4] x, int64[16] ids, bool[16,1] mask, float[3,4] table)
        => (float[16,4] masked, int64[16] next, bool[16,1] not_mask, float[16,4] rows)
        <int64 one={1}> {
            zero = Sub(x, x)
            masked = Where(mask, x, zero)
            next = Add(ids, one)
            not_mask = Not(mask)
            rows = Gather(table, ids)
        }"""
    )
    engine = opened(path, input_name=("x", "mask", "table", "ids"))
    for batch in (1, 16, 37):
        x, table = random(batch, 4), random(3, 4)
        ids, mask = np.arange(batch) % 3, (np.arange(batch) % 2 == 0)[:, None]
        masked, following, not_mask, rows = engine([x, mask, table, ids])
        np.testing.assert_array_equal(masked, np.where(mask, x, 0))
        np.testing.assert_array_equal(following, ids + 1)
        np.testing.assert_array_equal(not_mask, ~mask)
        np.testing.assert_array_equal(rows, table[ids])
        assert (following.dtype, not_mask.dtype) == (np.int64, np.bool_)


def test_output_without_batch(save_onnx: SaveOnnx) -> None:
    text = "g (float[4,2] x) => (float[4,2] y, float s) { y = Relu(x)\n s = ReduceSum<keepdims=0>(x) }"
    engine = opened(save_onnx(text))
    assert engine(np.ones((4, 2), np.float32))[1] == 8
    for batch in (3, 6):
        with pytest.raises(EngineError, match=r"fixed to 4 .*ReduceSum"):
            engine(random(batch, 2))
    constant = opened(save_onnx("g (float[4,2] x) => (float[4,2] y, float[3] s) <float[3] s={1,2,3}> { y = Relu(x) }"))
    for batch in (1, 6):
        np.testing.assert_array_equal(constant(random(batch, 2))[1], [1, 2, 3])


def test_layouts_of_the_callers_array_do_not_matter(save_onnx: SaveOnnx) -> None:
    engine, x = opened(save_onnx(DYNAMIC)), random(8, 4)
    want = engine(x)
    np.testing.assert_array_equal(engine(np.asfortranarray(x)), want)
    np.testing.assert_array_equal(engine(np.repeat(x, 2, axis=0)[::2]), want)
    np.testing.assert_array_equal(engine(x.astype(">f4")), want)
    frozen = x.copy()
    frozen.setflags(write=False)
    np.testing.assert_array_equal(engine(frozen), want)
    np.testing.assert_array_equal(engine(x[::-1])[::-1], want)


def test_a_session_serves_several_threads(save_onnx: SaveOnnx) -> None:
    engine = opened(save_onnx(STATIC))
    xs = [random(batch, 4) * batch for batch in range(1, 30)]
    with ThreadPoolExecutor(4) as pool:
        for x, y in zip(xs, pool.map(engine, xs), strict=True):
            np.testing.assert_allclose(y, x @ WEIGHT, rtol=1e-4, atol=1e-4)


def test_nan_is_passed_on(save_onnx: SaveOnnx) -> None:
    x = random(3, 4)
    x[1, 2] = np.nan
    np.testing.assert_array_equal(np.isnan(opened(save_onnx(DYNAMIC))(x)).any(axis=1), [False, True, False])


# ----------------------------------------------------------------------------------------------------------- float16


def test_float32_model_as_float16(save_onnx: SaveOnnx) -> None:
    engine = opened(save_onnx(DYNAMIC), dtype="float16")
    assert engine.input_dtype == "float16"
    y = engine(np.ones((2, 4), np.float16))
    assert y.dtype == np.float16
    np.testing.assert_array_equal(y, [[16, 20], [16, 20]])


def test_float16_model_fed_float32_is_cast_with_one_warning(save_onnx: SaveOnnx) -> None:
    engine = opened(save_onnx("g (float16[N,4] x) => (float16[N,4] y) { y = Relu(x) }"))
    assert engine.input_dtype == "float16"
    assert engine.describe().endswith("CPU, float16")  # what runs, not what would be the default
    with pytest.warns(UserWarning, match="'x': float32 cast to the model's float16") as caught:
        y = engine(np.ones((2, 4), np.float32))
    assert len(caught) == 1
    engine(np.ones((2, 4), np.float32))  # a second warning would be an error here
    assert y.dtype == np.float16


def test_float16_model_is_not_converted_again(save_onnx: SaveOnnx) -> None:
    engine = opened(save_onnx("g (float16[N,4] x) => (float16[N,4] y) { y = Relu(x) }"), dtype="float16")
    np.testing.assert_array_equal(engine(np.ones((2, 4), np.float16)), np.ones((2, 4)))


def test_a_model_without_float_inputs_is_converted_too(save_onnx: SaveOnnx) -> None:
    text = "g (int64[N] i) => (float[N,2] y) <float[3,2] w={0.1,0.2,0.3,0.4,0.5,0.6}> { y = Gather(w, i) }"
    engine = opened(save_onnx(text), dtype="float16")
    y = engine(np.array([0, 2]))
    assert y.dtype == np.float16
    assert engine.describe().endswith("float16")


def test_metadata_survives_the_conversion(save_onnx: SaveOnnx) -> None:
    model = onnx.load(save_onnx(DYNAMIC))
    model.metadata_props.add(key="class_labels", value='["a", "b"]')
    for dtype in ("float32", "float16"):
        assert opened(save_onnx(model), dtype=dtype).metadata == {"class_labels": '["a", "b"]'}


def test_weights_beyond_float16_make_no_numpy_warning(save_onnx: SaveOnnx) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine = opened(
            save_onnx("g (float[N,2] x) => (float[N,2] y) <float[2] w={1e6,1e-9}> { y = Mul(x, w) }"), dtype="float16"
        )
    np.testing.assert_array_equal(engine(np.ones((1, 2), np.float16)), [[np.inf, 0]])


# ---------------------------------------------------------------------------------------------------------- bad models


@pytest.mark.parametrize("target", ["onnx", "sdaa", "null", *TVM])
@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "does not exist; pass the path of an .onnx file"),
        (b"", "is empty (0 bytes); export it again"),
        (b"hello, this is a text file\n", "is not ONNX or is cut short"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "is not ONNX or is cut short"),
        (b"\x08\x08", "ONNX graph"),
    ],
)
def test_bad_files(target: str, content: bytes | None, text: str, tmp_path: Path) -> None:
    for name in ("bad.onnx", "bad.json", "bad.textproto"):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ModelError) as caught:
            open_engine(target, EngineSpec(ckpt=path))
        assert text in str(caught.value)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("target", ["onnx", "sdaa", "null", *TVM])
def test_a_truncated_file_at_any_length(target: str, save_onnx: SaveOnnx, tmp_path: Path) -> None:
    whole = save_onnx(DYNAMIC).read_bytes()
    for length in range(0, len(whole), 7):
        (tmp_path / "cut.onnx").write_bytes(whole[:length])
        with pytest.raises(ModelError, match=r"cut\.onnx"):
            open_engine(target, EngineSpec(ckpt=tmp_path / "cut.onnx"))


@pytest.mark.parametrize("target", ["onnx", "sdaa", "null", *TVM])
def test_a_folder_is_not_a_model(target: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a folder"):
        open_engine(target, EngineSpec(ckpt=tmp_path))


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_an_unreadable_file(save_onnx: SaveOnnx) -> None:
    path = save_onnx(DYNAMIC)
    path.chmod(0)
    with pytest.raises(ModelError, match="cannot be read"):
        opened(path)


@pytest.mark.parametrize("target", ["onnx", "sdaa", "null", *TVM])
@pytest.mark.parametrize(
    ("ir", "opset", "text"),
    [(99, 17, "IR version 99 is newer than"), (8, 999, "opset 999 is outside 7 to"), (8, 4, "opset 4 is outside 7 to")],
)
def test_versions_out_of_range(target: str, ir: int, opset: int, text: str, save_onnx: SaveOnnx) -> None:
    if target == "onnx" and opset == 4:
        pytest.skip("ONNX Runtime loads it, with a warning that it is not supported")
    model = onnx.load(save_onnx("g (float[N,4] x) => (float[N,4] y) { y = Sigmoid(x) }"))
    model.ir_version = ir
    model.opset_import[0].version = opset
    with pytest.raises(ModelError) as caught:
        open_engine(target, EngineSpec(ckpt=save_onnx(model)))
    assert text in str(caught.value)
    assert "export with" in str(caught.value)


@pytest.mark.parametrize("target", ["onnx", "sdaa"])
def test_an_unknown_operator(target: str, save_onnx: SaveOnnx) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "custom" : 1]>
    g (float[N,4] x) => (float[N,4] y) { y = custom.Add(x) }"""
    with pytest.raises(ModelError) as caught:
        open_engine(target, EngineSpec(ckpt=save_onnx(text)))
    assert "custom" in str(caught.value)
    assert "model.onnx: ONNX Runtime" in str(caught.value)


def external(tmp_path: Path) -> Path:
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 64])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(tmp_path / "big.onnx"), save_as_external_data=True, location="big.data", size_threshold=0)
    return tmp_path / "big.onnx"


@pytest.mark.parametrize("target", ["onnx", "sdaa", "null", *TVM])
def test_external_data(target: str, tmp_path: Path) -> None:
    path = external(tmp_path)
    with open_engine(target, EngineSpec(ckpt=path)) as engine:
        assert engine(np.ones((3, 64), engine.input_dtype)).shape == (3, 64)
    data = (tmp_path / "big.data").read_bytes()
    (tmp_path / "big.data").write_bytes(data[:1000])
    if target != "null":  # which computes nothing, so the weights' values are nothing to it
        with pytest.raises(ModelError, match=r"big\.onnx"):
            open_engine(target, EngineSpec(ckpt=path))
    (tmp_path / "big.data").unlink()
    with pytest.raises(ModelError, match=r"'big\.data' of weights 'w'"):
        open_engine(target, EngineSpec(ckpt=path))


@pytest.mark.parametrize("target", ["onnx", "sdaa", "null", *TVM])
def test_nodes_out_of_order_are_sorted(target: str, save_onnx: SaveOnnx) -> None:
    model = onnx.load(save_onnx("g (float[N,4] x) => (float[N,4] y) { a = Relu(x)\n b = Neg(a)\n y = Exp(b) }"))
    nodes = [model.graph.node[i] for i in (2, 0, 1)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    with open_engine(target, EngineSpec(ckpt=save_onnx(model), dtype="float32")) as engine:
        y = engine(np.zeros((2, 4), np.float32))
    assert (y == (0 if target == "null" else 1)).all()


@pytest.mark.parametrize("target", ["onnx", "sdaa", "null", *TVM])
def test_a_cycle_is_an_error(target: str, save_onnx: SaveOnnx) -> None:
    model = onnx.load(save_onnx("g (float[N,4] x) => (float[N,4] y) { a = Add(x, x)\n b = Neg(a)\n y = Exp(b) }"))
    model.graph.node[0].input[1] = "b"
    with pytest.raises(ModelError, match=r"model\.onnx: .*cycle: .*Add"):
        open_engine(target, EngineSpec(ckpt=save_onnx(model)))


def test_a_type_numpy_lacks(save_onnx: SaveOnnx) -> None:
    with pytest.raises(ModelError, match=r"'x' has type tensor\(bfloat16\), which numpy arrays cannot hold"):
        opened(save_onnx("g (bfloat16[N] x) => (float[N] y) { y = Cast<to=1>(x) }"))


def test_an_error_while_computing_is_one_line(save_onnx: SaveOnnx) -> None:
    engine = opened(save_onnx("g (float[N,4] x, int64[M] i) => (float[M,4] y) { y = Gather(x, i) }"))
    with pytest.raises(EngineError, match=r"computing:.*out of data bounds") as caught:
        engine([np.ones((2, 4), np.float32), np.array([7])])
    assert "\n" not in str(caught.value)


def test_wrong_input_and_spec(save_onnx: SaveOnnx) -> None:
    with pytest.raises(InputError, match="2x5, the model takes 16x4"):
        opened(save_onnx(STATIC))(random(2, 5))
    with pytest.raises(ConfigError, match="does not fit input 'x'"):
        opened(save_onnx(STATIC), input_size=((16, 5),))


# ------------------------------------------------------------------------------------------------------------- session


def test_session_from_path_bytes_and_model(save_onnx: SaveOnnx) -> None:
    path, x = save_onnx(DYNAMIC), random(3, 4)
    want = HostSession(path).run([x])[0]
    for model in (str(path), path.read_bytes(), onnx.load(path)):
        np.testing.assert_array_equal(HostSession(model, threads=1).run([x])[0], want)
    np.testing.assert_array_equal(open_session(path).run_named({"x": x})[0], want)


def test_cuda_session_reports_missing_packages(save_onnx: SaveOnnx) -> None:
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has a CUDA provider")
    with pytest.raises(TargetError, match="has no CUDA provider"):
        cuda_session(save_onnx(DYNAMIC))


def test_release_frees_the_session(save_onnx: SaveOnnx) -> None:
    engine = opened(save_onnx(DYNAMIC))
    engine.release()
    assert not hasattr(engine, "_host")
    with pytest.raises(EngineError, match="used after release"):
        engine(random(1, 4))
    assert "ONNX Runtime" in engine.describe()


@pytest.mark.parametrize("target", ["onnx", "sdaa", *TVM])
def test_a_declared_size_of_0_is_an_array_without_elements(target: str, save_onnx: SaveOnnx) -> None:
    """Such an input has no samples, so it is not a batch and nothing is split."""
    path = save_onnx(
        """g (float[0,4] x, float[3] s) => (float[4] y, float[0,4] z) <int64[1] axes={0}> {
        y = ReduceSum<keepdims=0>(x, axes)
        z = Relu(x) }"""
    )
    with open_engine(target, EngineSpec(path, dtype="float32")) as engine:
        assert [spec.batched for spec in engine.inputs] == [False, True]
        y, z = engine([np.zeros((0, 4), np.float32), np.zeros(3, np.float32)])
        np.testing.assert_array_equal(y, np.zeros(4))
        assert z.shape == (0, 4)
        with pytest.raises(InputError, match="'x' has shape 2x4, the model takes 0x4"):
            engine([np.zeros((2, 4), np.float32), np.zeros(3, np.float32)])


@pytest.mark.parametrize("target", ["onnx", "sdaa"])
@pytest.mark.parametrize(
    "text",
    [
        "g (seq(float[N]) x) => (float[N] y) { y = ConcatFromSequence<axis=0>(x) }",
        "g (float[4] x) => (seq(float[2]) y) { y = SplitToSequence(x) }",
    ],
)
def test_sequences_in_or_out_are_one_clear_line(text: str, target: str, save_onnx: SaveOnnx) -> None:
    with pytest.raises(ModelError, match="with tensors in and out") as caught:
        open_engine(target, EngineSpec(save_onnx(text), dtype="float32"))
    assert "\n" not in str(caught.value)


def test_a_session_can_be_profiled(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    session = HostSession(save_onnx(DYNAMIC), profile_prefix=tmp_path / "run")
    session.run([random(2, 4)])
    file = session.end_profiling()
    assert file.parent == tmp_path
    assert any(event.get("args", {}).get("op_name") == "MatMul" for event in json.loads(file.read_text("utf-8")))
