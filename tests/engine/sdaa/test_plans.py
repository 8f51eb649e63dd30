"""Several plans of one model, samples that depend on one another, and shards made by the caller."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import SaveOnnx

from engine import ConfigError, EngineError, EngineSpec, InputError, open_engine
from engine.sdaa.card import CARDS, spa_count
from engine.sdaa.engine import SdaaEngine
from engine.sdaa.plan import PlanKey, shared_cost
from engine.tecoinfer_pytorch import TecoInferEngine
from tecoinfer_modelzoo.errors import DeviceOutOfMemory

rng = np.random.default_rng(3)

DEPEND = "samples depend on one another .*: the whole call runs on one SPA"


def sdaa(path: Path, **options: Any) -> SdaaEngine:
    return SdaaEngine(EngineSpec(path, **{"dtype": "float32", **options}))


def baseline(path: Path, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    with open_engine("onnx", EngineSpec(path)) as engine:
        results = engine(list(arrays))
    return results if isinstance(results, list) else [results]


def weights(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)


def recurrent(time: object, batch: object, feed_state: bool = True) -> onnx.ModelProto:
    """Return a GRU that takes time first: x [T, batch, 4], state [1, batch, 6]."""
    nodes = [helper.make_node("GRU", ["x", "w", "r", "", "", "h"], ["ys", "hn"], hidden_size=6)]
    nodes.append(helper.make_node("Squeeze", ["ys", "one"], ["y"]))
    inputs = [("x", [time, batch, 4]), ("h", [1, batch, 6])]
    outputs = [("y", [time, batch, 6]), ("hn", [1, batch, 6])]
    infos = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in side] for side in (inputs, outputs)]
    constants = [weights("w", 1, 18, 4), weights("r", 1, 18, 6), numpy_helper.from_array(np.array([1]), "one")]
    graph = helper.make_graph(nodes, "g", *infos, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


# ------------------------------------------------------------------------------------------------------- the batch axis


@pytest.mark.parametrize("batch", [1, 5, 8, 11])
def test_a_recurrent_model_is_split_along_its_batch(batch: int, save_onnx: SaveOnnx) -> None:
    path = save_onnx(recurrent("T", "batch"))
    x = rng.standard_normal((7, batch, 4)).astype(np.float32)
    h = rng.standard_normal((1, batch, 6)).astype(np.float32)
    with sdaa(path, batch_size=8, dims={"T": (7,)}) as engine:
        assert [tensor.batch_axis for tensor in engine.inputs] == [1, 1]
        assert [tensor.symbols for tensor in engine.inputs] == [("T", "batch", None), (None, "batch", None)]
        assert engine.shard_size == 2
        results = engine([x, h])
        assert sum(spa.shards for spa in engine.card.spas) == -(-batch // 2)
        assert engine.timeline.samples("engine") == batch
    for got, want in zip(results, baseline(path, [x, h]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_state_with_batch_axis_1(save_onnx: SaveOnnx) -> None:
    """As in voice activity detection: chunks [batch, 512], a state [2, batch, 128]."""
    path = save_onnx(
        "g (float[batch,4] x, float[2,batch,4] s) => (float[batch,4] y, float[2,batch,4] n) {"
        " a = Add(s, x)\n n = Tanh(a)\n f, l = Split<axis=0>(n)\n b = Squeeze(f)\n y = Mul(b, x) }"
    )
    x, s = rng.standard_normal((6, 4)).astype(np.float32), rng.standard_normal((2, 6, 4)).astype(np.float32)
    with sdaa(path, batch_size=8) as engine:
        assert [tensor.batch_axis for tensor in engine.inputs] == [0, 1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # whole or split: the answers are what counts here
            results = engine([x, s])
    for got, want in zip(results, baseline(path, [x, s]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------------------------------------------------ dependent

MIXING = {
    "running sum": "g (float[N,3] x) => (float[N,3] y) <int64 a = {0}> { y = CumSum(x, a) }",
    "flip": (
        "g (float[N,3] x) => (float[N,3] y) <int64[1] s = {-1}, int64[1] e = {-9223372036854775808}, "
        "int64[1] a = {0}, int64[1] p = {-1}> { y = Slice(x, s, e, a, p) }"
    ),
    "centring": "g (float[N,3] x) => (float[N,3] y) { m = ReduceMean<axes=[0]>(x)\n y = Sub(x, m) }",
    "similarity": "g (float[N,3] x) => (float[N,N] y) { t = Transpose<perm=[1,0]>(x)\n y = MatMul(x, t) }",
}


@pytest.mark.parametrize("name", MIXING)
@pytest.mark.parametrize("batch", [8, 5, 13, 2])
def test_samples_that_depend_on_one_another_are_not_split(name: str, batch: int, save_onnx: SaveOnnx) -> None:
    path = save_onnx(MIXING[name])
    x = rng.standard_normal((batch, 3)).astype(np.float32)
    (want,) = baseline(path, [x])
    with sdaa(path, batch_size=8) as engine:
        with pytest.warns(UserWarning, match=DEPEND) as said:
            got = engine(x)
        assert engine.independent is False
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(np.asarray(engine(x)), want, rtol=1e-5, atol=1e-6)  # and warns only once
        assert len(said) == 1
        assert [spa.shards for spa in engine.card.spas] == [2, 0, 0, 0]
        assert "the whole call on one" in engine.describe()


def test_old_plans_of_whole_calls_are_removed(save_onnx: SaveOnnx) -> None:
    path = save_onnx(MIXING["centring"])
    with sdaa(path, batch_size=8) as engine, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for batch in [*range(2, 25), 2]:
            x = rng.standard_normal((batch, 3)).astype(np.float32)
            np.testing.assert_allclose(np.asarray(engine(x)), baseline(path, [x])[0], rtol=1e-5, atol=1e-6)
        assert len(engine._plans) <= 17
        assert engine.card.memory == shared_cost(engine._plans.values()).memory


def test_random_numbers_are_never_compared(save_onnx: SaveOnnx) -> None:
    path = save_onnx("g (float[N,3] x) => (float[N,3] y) { r = RandomUniformLike(x)\n y = Add(x, r) }")
    with sdaa(path, batch_size=8) as engine:
        assert engine.independent is False
        with pytest.warns(UserWarning, match=DEPEND):
            assert np.asarray(engine(np.zeros((8, 3), np.float32))).shape == (8, 3)


def test_dependence_is_determined_by_the_first_call(save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch) -> None:
    unproven(monkeypatch)
    path = save_onnx("g (float[N,3] x) => (float[N,3] y) { y = Sigmoid(x) }")
    with sdaa(path, batch_size=8) as engine:
        assert engine.independent is None
        engine(np.ones((1, 3), np.float32))
        assert engine.independent is None  # one sample tells nothing
        engine(np.ones((5, 3), np.float32))
        assert engine.independent is None  # nor do equal ones
        engine(rng.standard_normal((5, 3)).astype(np.float32))
        assert engine.independent is True
        engine(rng.standard_normal((8, 3)).astype(np.float32))
        assert [spa.shards for spa in engine.card.spas] == [4, 3, 3, 1]


def unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the graph analysis leave independence open, as for custom operators."""
    from engine.batching import find

    real = find.find_batching
    doubt = {"independent": None, "reason": "a node of unknown kind"}
    monkeypatch.setattr(find, "find_batching", lambda *args: replace(real(*args), **doubt))


def test_an_unproven_float16_file_is_compared_in_float32(save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch) -> None:
    unproven(monkeypatch)
    path = save_onnx("g (float16[N,3] x) => (float16[N,3] y) { m = ReduceMean<axes=[0]>(x)\n y = Sub(x, m) }")
    x = rng.standard_normal((6, 3)).astype(np.float16)
    with sdaa(path, batch_size=8, dtype=None) as engine, pytest.warns(UserWarning, match=DEPEND):
        got = np.asarray(engine(x))
    wide = x.astype(np.float32)
    np.testing.assert_allclose(got, wide - wide.mean(0), atol=2e-3)


@pytest.mark.parametrize("target", ["onnx", "sdaa"])
def test_a_fixed_batch_of_dependent_samples_is_never_padded(target: str, save_onnx: SaveOnnx) -> None:
    path = save_onnx(MIXING["centring"].replace("N", "4"))
    x = rng.standard_normal((4, 3)).astype(np.float32)
    with open_engine(target, EngineSpec(path, 4, dtype="float32")) as engine, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        np.testing.assert_allclose(np.asarray(engine(x)), x - x.mean(0), atol=1e-6)
        for rows in (3, 6):
            with pytest.raises(EngineError, match=rf"fixed to 4 .*call of {rows} ") as said:
                engine(rng.standard_normal((rows, 3)).astype(np.float32))
            assert "export the model with a dynamic batch" in str(said.value)


def test_samples_of_a_fixed_batch_of_one_are_independent(save_onnx: SaveOnnx) -> None:
    path = save_onnx(MIXING["centring"].replace("N", "1"))
    with sdaa(path, batch_size=4) as engine:
        np.testing.assert_array_equal(np.asarray(engine(np.ones((6, 3), np.float32))), np.zeros((6, 3)))


def test_a_dependent_model_can_be_saved(save_onnx: SaveOnnx) -> None:
    path = save_onnx(MIXING["centring"])
    x = rng.standard_normal((8, 3)).astype(np.float32)
    sdaa(path, batch_size=8, save_engine=True).release()
    for ckpt in (path, path.with_suffix(".tecoengine")):
        with sdaa(ckpt, batch_size=8) as engine, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            assert engine.loaded
            if engine.independent is None and ckpt != path:  # it has a plan of 2 samples, and finds out by it
                with pytest.raises(EngineError, match=r"plan for 2 samples.*ONNX"):
                    engine(x)
                continue
            np.testing.assert_allclose(np.asarray(engine(x)), x - x.mean(0), atol=1e-6)


# ----------------------------------------------------------------------------------------------------------------- dims

SEQ = (
    "g (int64[batch,seq] ids, float[batch,seq] mask) => (float[batch,4] y) <float[9,4] table = {"
    + ",".join(str(i / 7) for i in range(36))
    + "}, int64[1] two = {2}, int64[1] one = {1}>"
    " { e = Gather(table, ids)\n m = Unsqueeze(mask, two)\n p = Mul(e, m)\n y = ReduceSum<keepdims=0>(p, one) }"
)


def sequences(batch: int, length: int) -> list[np.ndarray]:
    ids = rng.integers(0, 9, (batch, length))
    return [ids, (rng.random((batch, length)) > 0.3).astype(np.float32)]


def test_a_plan_for_each_size(save_onnx: SaveOnnx) -> None:
    path = save_onnx(SEQ)
    with sdaa(path, batch_size=8, dims={"seq": (128, 16, 64)}) as engine:
        assert engine.spec.dims == {"seq": (16, 64, 128)}
        assert list(engine._plans) == [PlanKey(2, (128,))]
        assert "plans for seq 16, 64, 128" in engine.describe()
        alone, largest = engine.card.memory, engine.cost
        for length in (64, 128, 16, 64):
            arrays = sequences(11, length)
            got = engine(arrays)
            np.testing.assert_allclose(np.asarray(got), baseline(path, arrays)[0], rtol=1e-5, atol=1e-6)
        assert {key.sizes for key in engine._plans} == {(16,), (64,), (128,)}
        costs = [engine._plans[PlanKey(2, (size,))].cost.compute for size in (16, 64, 128)]
        assert costs == sorted(costs)
        assert engine.cost == largest == engine._plans[PlanKey(2, (128,))].cost
        assert engine.card.memory == alone  # one set of weights, and the largest buffers
        report = engine.device_report()
        assert [plan["seq"] for plan in report["plans"]] == [128, 64, 16]
        assert report["memory_per_spa"] == alone


def test_a_size_without_a_plan(save_onnx: SaveOnnx) -> None:
    path = save_onnx(SEQ)
    for target in ("sdaa", "onnx"):
        with open_engine(target, EngineSpec(path, 8, dtype="float32", dims={"seq": (16, 32)})) as engine:
            with pytest.raises(InputError) as said:
                engine(sequences(8, 20))
            assert "input 'ids' has seq = 20, the engine has plans for 16,32" in str(said.value)
            assert "--dim seq=16,20,32" in str(said.value)
            with pytest.raises(InputError, match="input 'mask' has seq = 32, input 'ids' has 16"):
                engine([sequences(8, 16)[0], sequences(8, 32)[1]])


@pytest.mark.parametrize("target", ["sdaa", "onnx", "null"])
@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"dims": {"length": (8,)}},
            "--dim length: the model has no dimension 'length'; its symbolic dimensions are: seq",
        ),
        (
            {"dims": {"seq": (8, 9)}, "input_size": ((None, 8), (None, 8))},
            "--dim seq=8,9: input_size binds 'seq' to 8",
        ),
    ],
)
def test_sizes_that_do_not_fit_the_model(target: str, options: dict[str, Any], text: str, save_onnx: SaveOnnx) -> None:
    path = save_onnx(SEQ)
    with pytest.raises(ConfigError) as said:
        open_engine(target, EngineSpec(path, 8, dtype="float32", **options))
    assert text in str(said.value)


def test_the_batch_is_not_a_dim_option(save_onnx: SaveOnnx) -> None:
    with pytest.raises(ConfigError, match="--dim batch: 'batch' is the model's batch; use --batch_size for it"):
        sdaa(save_onnx("g (float[batch,3] x) => (float[batch,3] y) { y = Relu(x) }"), dims={"batch": (8,)})


def test_open_dimensions_report_the_missing_option(save_onnx: SaveOnnx) -> None:
    with pytest.raises(ConfigError) as said:
        sdaa(save_onnx(SEQ), batch_size=8)
    text = (
        "input 'ids' has dynamic dimensions (Nxseq); pass --dim seq=128, or one full shape per input as input_size or "
    )
    assert text + "--input_shapes, such as ids:16x128, mask:16x128" in str(said.value)


@pytest.mark.parametrize("sizes", [(), (-1,), (1.5,), (-3, 4)])
def test_sizes_are_whole_numbers(sizes: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigError, match=r"--dim seq: sizes.*at least 0"):
        EngineSpec(Path("m.onnx"), dims={"seq": sizes})


def test_a_spec_with_sizes_can_be_pickled() -> None:
    spec = EngineSpec(Path("m.onnx"), dims={"seq": (64, 16)}, input_size=((None, 3),))
    assert pickle.loads(pickle.dumps(spec)) == spec  # noqa: S301 -- of this process
    assert isinstance(hash(spec), int)


def test_a_plan_that_does_not_fit_is_found_when_the_engine_opens(
    save_onnx: SaveOnnx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (CARDS / "t1.yaml").read_text(encoding="utf-8").replace("value: 15296", "value: 1")
    (tmp_path / "small.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setenv("TECO_SIM_CARD", str(tmp_path / "small.yaml"))
    path = save_onnx(SEQ)
    sdaa(path, batch_size=8, dims={"seq": (16, 32)}).release()
    with pytest.raises(DeviceOutOfMemory, match=r"\.onnx needs"):
        sdaa(path, batch_size=8, dims={"seq": (16, 32_000)})


def test_several_plans_are_not_saved(save_onnx: SaveOnnx) -> None:
    path = save_onnx(SEQ)
    with pytest.raises(ConfigError, match=r"saved engine .*--dim seq=16,32 "):
        sdaa(path, batch_size=8, dims={"seq": (16, 32)}, save_engine=True)
    sdaa(path, batch_size=8, dims={"seq": (16,)}, save_engine=True).release()
    arrays = sequences(8, 16)
    for options in ({"dims": {"seq": (16,)}}, {"dims": {"seq": (16, 32)}}):
        with sdaa(path, batch_size=8, **options) as engine:
            assert engine.loaded is (options["dims"]["seq"] == (16,))
            np.testing.assert_allclose(np.asarray(engine(arrays)), baseline(path, arrays)[0], rtol=1e-5, atol=1e-6)
    with sdaa(path.with_suffix(".tecoengine")) as engine:
        np.testing.assert_allclose(np.asarray(engine(arrays)), baseline(path, arrays)[0], rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------------------------------------------- sizes and SPA


@pytest.mark.parametrize(("visible", "size"), [("0", 64), ("0,2", 32), ("3,1,0", 22), ("0,1,2,3", 16)])
def test_the_batch_is_divided_over_the_visible_spa(
    visible: str, size: int, save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SDAA_VISIBLE_DEVICES", visible)
    path = save_onnx("g (float[N,3,H,W] x) => (float[N,3,H,W] y) { y = Relu(x) }")
    for shape in ((None, 3, 8, 8), (None, None, 8, 8)):
        with sdaa(path, batch_size=64, input_size=(shape,)) as engine:
            assert engine.shard_size == size
            assert spa_count(engine.spec) == len(visible.split(","))
            assert engine.inputs[0].shape == (None, 3, 8, 8)
    assert spa_count(EngineSpec(path, 64, divided=False)) == 1


def test_the_profile_uses_the_same_spa(save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch) -> None:
    from toolkit.profile.card import prepare

    path = save_onnx("g (float[N,3] x) => (float[N,3] y) { y = Relu(x) }")
    for visible in ("0", "0,1,2"):
        monkeypatch.setenv("SDAA_VISIBLE_DEVICES", visible)
        for divided in (True, False):
            with sdaa(path, batch_size=64, divided=divided) as engine:
                assert prepare(engine.spec).batch == engine.shard_size


def test_the_historical_face_leaves_the_batch_to_the_card(save_onnx: SaveOnnx) -> None:
    path = save_onnx("g (float[N,3,H,W] x) => (float[N,3,H,W] y) { y = Relu(x) }")
    for shape in ([None, 3, 8, 8], [[None, 3, 8, 8]]):
        engine = TecoInferEngine(ckpt=path, batch_size=10, input_size=shape, target="sdaa")
        assert engine.engine.shard_size == 3  # type: ignore[attr-defined]
        engine.release()


def test_a_symbol_bound_once_is_bound_everywhere(save_onnx: SaveOnnx) -> None:
    with sdaa(save_onnx(SEQ), batch_size=8, input_size=((None, 16), (None, None))) as engine:
        assert [tensor.shape for tensor in engine.inputs] == [(None, 16), (None, 16)]


@pytest.mark.parametrize("rows", [np.ones, np.random.default_rng(4).standard_normal])
@pytest.mark.parametrize(
    "body",
    [
        "{ y = Concat<axis=0>(x, x) }",
        "<int64[2] t = {-1, 2}> { y = Reshape(x, t) }",
        "<int64[1] a = {0}> { s = ReduceSum<keepdims=0>(x, a) t = ReduceSum<keepdims=0>(s, a) y = Add(x, t) }",
    ],
)
def test_an_output_without_a_row_per_sample_is_that_of_the_whole_call(
    rows: Any, body: str, save_onnx: SaveOnnx
) -> None:
    """Equal samples have equal shards, which do not show dependence on the number of rows."""
    path = save_onnx(f"g (float[batch,4] x) => (float[?,?] y) {body}")
    with sdaa(path, batch_size=8) as engine:
        for batch in (8, 5, 1):
            x = np.asarray(rows((batch, 4)), np.float32)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", f".*{DEPEND}")
                np.testing.assert_allclose(engine(x), baseline(path, [x])[0], rtol=1e-5)


def test_an_axis_known_only_at_run_time(save_onnx: SaveOnnx) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[batch,4] x, int64 a) => (float y) { y = CumSum(x, a) }'
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    path = save_onnx(model)
    for x in (np.ones((8, 4), np.float32), rng.standard_normal((8, 4)).astype(np.float32)):
        arrays = [x, np.array(0)]
        with sdaa(path, batch_size=8) as engine, pytest.warns(UserWarning, match="'y' has no row per sample"):
            np.testing.assert_allclose(engine(arrays), x.cumsum(0), rtol=1e-5)


# ---------------------------------------------------------------------------------------------------------- call_shards


def test_shards_made_by_the_caller(save_onnx: SaveOnnx) -> None:
    path = save_onnx(SEQ)
    with sdaa(path, batch_size=8, dims={"seq": (16, 32)}) as engine:
        shards = [sequences(2, length) for length in (16, 32, 16, 16, 32, 16)]
        results = engine.call_shards(shards)
        assert [spa.shards for spa in engine.card.spas] == [2, 2, 1, 1]
        assert engine.run_time > 0
        assert (engine.timeline.count("engine"), engine.timeline.samples("engine")) == (1, 12)
        for shard, got in zip(shards, results, strict=True):
            np.testing.assert_allclose(got[0], baseline(path, shard)[0], rtol=1e-5, atol=1e-6)
        with pytest.raises(InputError, match=r"shard 1 .*3 .*takes 2"):
            engine.call_shards([sequences(2, 16), sequences(3, 16)])
        with pytest.raises(InputError, match="shard 0: input 'ids' has seq = 20"):
            engine.call_shards([sequences(2, 20)])
        with pytest.raises(InputError, match="got no shards"):
            engine.call_shards([])
        with pytest.raises(InputError, match="got no shards"):
            engine.call_shards(np.zeros(3))  # type: ignore[arg-type]
        with pytest.raises(InputError, match=r"shard 0:.*ndarray, not a list"):
            engine.call_shards(sequences(2, 16))  # type: ignore[arg-type]
    with pytest.raises(EngineError, match=r"after release\(\)"):
        engine.call_shards(shards)


def test_packed_graphs_are_one_shard_each(save_onnx: SaveOnnx) -> None:
    """Nodes are not a batch if the caller sets their sizes: edges connect the features of a graph."""
    path = save_onnx(
        "g (float[nodes,4] x, float[nodes,nodes] a) => (float[nodes,4] y) { m = MatMul(a, x)\n y = Relu(m) }"
    )
    shards = [
        [rng.standard_normal((n, 4)).astype(np.float32), rng.random((n, n)).astype(np.float32)] for n in (8, 8, 16)
    ]
    with sdaa(path, batch_size=4, dims={"nodes": (8, 16)}) as engine:
        results = engine.call_shards(shards)
        assert [spa.shards for spa in engine.card.spas] == [1, 1, 1, 0]
        np.testing.assert_allclose(np.asarray(engine(shards[2])), results[2][0], atol=1e-6)
    for (x, a), (got,) in zip(shards, results, strict=True):
        np.testing.assert_allclose(got, np.maximum(a @ x, 0), rtol=1e-4, atol=1e-5)


def test_other_targets_run_shards_one_after_another(save_onnx: SaveOnnx) -> None:
    path = save_onnx("g (float[N,3] x) => (float[N,3] y) { y = Neg(x) }")
    shards = [[rng.standard_normal((n, 3)).astype(np.float32)] for n in (2, 5)]
    with open_engine("onnx", EngineSpec(path)) as engine:
        results = engine.call_shards(shards)
        assert engine.timeline.count("engine") == 1
        assert engine.independent is None
    for (x,), (got,) in zip(shards, results, strict=True):
        np.testing.assert_array_equal(got, -x)
