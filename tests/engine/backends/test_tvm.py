"""Target tvm beside ONNX Runtime: values, plans, cache, saved plans, and refusals."""

from __future__ import annotations

import json
import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from lookup_models import lookup_model
from onnx import TensorProto
from support import ROOT, RunPython, SaveOnnx

from engine import ConfigError, EngineError, EngineSpec, ModelError, TargetError, open_engine
from engine.backends import tvm_schedule
from engine.backends.tvm import CACHE_VARIABLE, TvmEngine
from engine.backends.tvm_plan import record_path
from engine.backends.tvm_runtime import TARGET_VARIABLE, Compiler
from engine.onnx import load_model, to_float16

needs_tvm = pytest.mark.skipif(find_spec("tvm") is None, reason="tvm is not installed")

NET = """g (float[batch,3,8,8] x) => (float[batch,5] y) <float[16,3,3,3] w, float[5,16] v> {
    c = Conv<pads=[1,1,1,1]>(x, w) r = Relu(c) m = ReduceMean<axes=[2,3], keepdims=0>(r) y = Gemm<transB=1>(m, v)
}"""
"""A small network; its weights are set by :func:`net`."""


BRANCHES = "then_branch = a () => (float[1] u) { u = Relu(x) }, else_branch = b () => (float[1] v) { v = Abs(x) }"


def net(save_onnx: SaveOnnx, name: str = "net.onnx") -> Path:
    """Write the network with random weights, and metadata."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\n' + NET.replace(" <float[16,3,3,3] w, float[5,16] v>", "")
    )
    rng = np.random.default_rng(0)
    for tensor, shape in (("w", (16, 3, 3, 3)), ("v", (5, 16))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), tensor))
    model.metadata_props.add(key="labels", value="a b c d e")
    return save_onnx(model, name)


def images(count: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(1).normal(size=(count, 3, 8, 8)).astype(dtype)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; returns the folder of compiled plans."""
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tvm"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the shapes of the first input of every compilation."""
    compiled: list[str] = []
    build = Compiler.build

    def recorded(self: Compiler, model: onnx.ModelProto, tiled: bool = True) -> tuple[object, bool]:
        compiled.append("x".join(str(d.dim_value) for d in model.graph.input[0].type.tensor_type.shape.dim))
        return build(self, model, tiled)

    monkeypatch.setattr(Compiler, "build", recorded)
    return compiled


def judged(path: Path, *inputs: np.ndarray) -> list[np.ndarray]:
    """Return ONNX Runtime's outputs."""
    with open_engine("onnx", EngineSpec(path)) as engine:
        found = engine(list(inputs))
    return found if isinstance(found, list) else [found]


@needs_tvm
def test_any_number_of_samples_with_few_plans(
    save_onnx: SaveOnnx, cache: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.backends.tvm.REPEATED", 2)
    path = net(save_onnx)
    with open_engine("tvm", EngineSpec(path, batch_size=4)) as engine:
        assert engine.metadata == {"labels": "a b c d e"}
        assert (engine.dtype, engine.independent, engine.input_dtype) == ("float32", True, "float32")
        assert engine.describe().startswith("TVM ")
        for count in (4, 1, 3, 6, 9, 2, 1):
            np.testing.assert_allclose(engine(images(count)), judged(path, images(count))[0], rtol=1e-4, atol=1e-5)
            assert opened == ["4x3x8x8"]
        np.testing.assert_allclose(engine(images(1)), judged(path, images(1))[0], rtol=1e-4, atol=1e-5)
    assert opened == ["4x3x8x8", "1x3x8x8"]
    assert len(list(cache.glob("*.so"))) == 2


@needs_tvm
def test_a_plan_is_compiled_once_for_all_processes(
    save_onnx: SaveOnnx, cache: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = net(save_onnx)
    want = judged(path, images(2))[0]

    def compute() -> int:
        with open_engine("tvm", EngineSpec(path, batch_size=2)) as engine:
            np.testing.assert_allclose(engine(images(2)), want, rtol=1e-4, atol=1e-5)
        return len(opened)

    assert [compute(), compute()] == [1, 1]
    [library] = cache.glob("*.so")
    content = library.read_bytes()
    library.unlink()  # it is mapped into this process
    library.write_bytes(content[:-1])
    library.chmod(0o600)
    assert compute() == 2
    library.chmod(0o666)  # another user may have written it
    assert compute() == 3
    record_path(library).write_text("{")
    assert compute() == 4
    cache.chmod(0o777)
    assert compute() == 4
    assert cache.stat().st_mode & 0o777 == 0o755
    monkeypatch.setattr(tvm_schedule, "VERSION", "another")
    assert compute() == 5
    model = load_model(path)
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4] + b"\0\0\0\0"
    onnx.save(model, path)
    want = judged(path, images(2))[0]
    assert compute() == 6


@needs_tvm
def test_a_batch_that_is_too_large_is_not_compiled_ahead_nor_padded_to(
    save_onnx: SaveOnnx, cache: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_onnx("g (float[batch,4] x) => (float[batch,4] y) { y = Relu(x) }")
    monkeypatch.setattr("engine.backends.tvm.MOST_AHEAD", 1000)
    monkeypatch.setattr("engine.backends.tvm.MOST_PADDED", 1000)
    with open_engine("tvm", EngineSpec(path, batch_size=64)) as engine:
        assert opened == []
        x = np.array([[-1, 0, 1, 2]], np.float32)
        np.testing.assert_array_equal(engine(x), np.maximum(x, 0))
    assert opened == ["1x4"]


@needs_tvm
def test_the_cache_has_a_bound(
    save_onnx: SaveOnnx, cache: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = net(save_onnx)
    monkeypatch.setenv(CACHE_VARIABLE, "0")
    with open_engine("tvm", EngineSpec(path, batch_size=2)) as engine:
        np.testing.assert_allclose(engine(images(2)), judged(path, images(2))[0], rtol=1e-4, atol=1e-5)
    assert not cache.exists()
    monkeypatch.setenv(CACHE_VARIABLE, "1")
    cache.mkdir(parents=True)
    old = cache / "old.so"
    old.write_bytes(bytes(990_000))
    record_path(old).write_text("{}")
    os.utime(old, (1, 1))
    open_engine("tvm", EngineSpec(path, batch_size=2)).release()
    [kept] = cache.glob("*.so")
    assert sorted(file.name for file in cache.iterdir()) == [".lock", kept.name, record_path(kept).name]
    before = kept.stat().st_mtime_ns
    open_engine("tvm", EngineSpec(path, batch_size=2)).release()
    assert kept.stat().st_mtime_ns > before  # used last
    assert opened == ["2x3x8x8"] * 2
    monkeypatch.setenv(CACHE_VARIABLE, "1 GB")
    with pytest.raises(ConfigError, match=CACHE_VARIABLE) as refused:
        open_engine("tvm", EngineSpec(path))
    assert "\n" not in str(refused.value)


@needs_tvm
@pytest.mark.parametrize(("kind", "size"), [(TensorProto.FLOAT, 4), (TensorProto.FLOAT16, 2)])
def test_weights_beyond_two_gigabytes_are_refused_before_they_are_read(
    kind: int, size: int, tmp_path: Path, cache: Path
) -> None:
    rows = 2**31 // 4 // 4096 + 1
    with (tmp_path / "big.data").open("wb") as file:
        file.truncate(rows * 4096 * size)  # a hole
    table = TensorProto(name="t", dims=[rows, 4096], data_type=kind, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "big.data"), ("length", str(rows * 4096 * size))):
        table.external_data.add(key=key, value=value)
    path = tmp_path / "big.onnx"
    onnx.save(lookup_model(table, "initializer"), str(path))
    with pytest.raises(ModelError, match=r"big\.onnx.* 2\.1 GB") as refused:
        TvmEngine(EngineSpec(path))
    assert "\n" not in str(refused.value)


@needs_tvm
def test_a_saved_plan_is_opened_without_the_model(
    save_onnx: SaveOnnx, cache: Path, opened: list[str], tmp_path: Path
) -> None:
    path = net(save_onnx)
    want = judged(path, images(5))[0]
    for _ in range(2):  # compiled, and from the cache
        open_engine("tvm", EngineSpec(path, batch_size=2, save_engine=True)).release()
        assert opened == ["2x3x8x8"]
    (tmp_path / "elsewhere").mkdir()
    moved = tmp_path / "elsewhere" / "net.so"
    for file in (path.with_suffix(".so"), record_path(path.with_suffix(".so"))):
        shutil.move(file, moved.parent / file.name)
    path.unlink()
    shutil.rmtree(cache)
    with open_engine("tvm", EngineSpec(moved)) as engine:
        assert engine.metadata == {"labels": "a b c d e"}
        np.testing.assert_allclose(engine(images(5)), want, rtol=1e-4, atol=1e-5)
    assert opened == ["2x3x8x8"]
    with pytest.raises(ModelError, match="float16"):
        open_engine("tvm", EngineSpec(moved, dtype="float16"))
    record = record_path(moved)
    good = record.read_text()
    for change, named in (
        ({"key": {"tvm": "0.1"}}, r"TVM 0\.1"),
        ({"key": {"target": '{"kind": "cuda"}'}}, "target cuda"),
        ({"key": {"target": "cuda"}}, "not a plan record"),
        ({"processor": "i386 +x87"}, "i386"),
        ({"library_sha256": "0" * 64}, "changed"),
        ({"outputs": 3}, "not a plan record"),
    ):
        changed = json.loads(good)
        for name, value in change.items():
            changed[name] = {**changed[name], **value} if isinstance(value, dict) else value
        record.write_text(json.dumps(changed))
        with pytest.raises(ModelError, match=named) as refused:
            open_engine("tvm", EngineSpec(moved))
        assert "\n" not in str(refused.value)
    record.unlink()
    with pytest.raises(ModelError, match="cannot be read"):
        open_engine("tvm", EngineSpec(moved))


@needs_tvm
@pytest.mark.parametrize("linker", ["", "/bin/false"])
def test_without_a_linker_nothing_is_stored(
    linker: str, save_onnx: SaveOnnx, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = net(save_onnx)
    if linker:
        monkeypatch.setenv("CXX", linker)
    else:
        monkeypatch.setenv("PATH", str(tmp_path))
    with open_engine("tvm", EngineSpec(path, batch_size=2)) as engine:
        np.testing.assert_allclose(engine(images(2)), judged(path, images(2))[0], rtol=1e-4, atol=1e-5)
    assert not list(cache.iterdir())
    with pytest.raises(ConfigError, match="linker") as refused:
        open_engine("tvm", EngineSpec(path, batch_size=2, save_engine=True))
    assert "\n" not in str(refused.value)
    assert sorted(file.name for file in path.parent.iterdir() if file.is_file()) == [path.name]


@needs_tvm
def test_other_targets_refuse_a_saved_plan_in_one_line(save_onnx: SaveOnnx, cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.so"
    path.write_bytes(b"\x7fELF")
    for target in ("onnx", "sdaa"):
        with pytest.raises(ModelError, match=r"net\.so") as refused:
            open_engine(target, EngineSpec(path))
        assert "\n" not in str(refused.value)


@needs_tvm
def test_sizes_of_dimensions(save_onnx: SaveOnnx, cache: Path, opened: list[str]) -> None:
    path = save_onnx("g (float[batch,seq,4] x) => (float[batch,seq,4] y) { y = Softmax(x) }")
    x = np.random.default_rng(0).normal(size=(3, 6, 4)).astype(np.float32)
    with open_engine("tvm", EngineSpec(path, batch_size=3, dims={"seq": (4, 6)})) as engine:
        assert opened == ["3x6x4"]
        for size in (4, 6, 4):
            np.testing.assert_allclose(engine(x[:, :size]), judged(path, x[:, :size])[0], rtol=1e-5)
        assert opened == ["3x6x4", "3x4x4"]
    with open_engine("tvm", EngineSpec(path, batch_size=3)) as engine:  # a size that was not announced
        np.testing.assert_allclose(engine(x[:, :6]), judged(path, x[:, :6])[0], rtol=1e-5)
    with pytest.raises(ConfigError, match="seq"):
        open_engine("tvm", EngineSpec(path, batch_size=3, dims={"seq": (4, 6)}, save_engine=True))
    with pytest.raises(ConfigError, match="--dim"):
        open_engine("tvm", EngineSpec(path, batch_size=3, save_engine=True))


@needs_tvm
def test_many_sizes_are_reported(save_onnx: SaveOnnx, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.backends.tvm.MANY_PLANS", 2)
    monkeypatch.setattr("engine.backends.tvm.KEPT_PLANS", 1)
    path = save_onnx("g (float[batch,seq] x) => (float[batch,seq] y) { y = Relu(x) }")
    with TvmEngine(EngineSpec(path)) as engine:
        engine(np.ones((1, 3), np.float32))
        with pytest.warns(UserWarning, match="--dim"):
            engine(np.ones((1, 4), np.float32))
        assert len(engine._plans) == 1


@needs_tvm
def test_dependent_samples_are_computed_whole(save_onnx: SaveOnnx, cache: Path, opened: list[str]) -> None:
    path = save_onnx("g (float[batch,4] x) => (float[batch,4] y) <int64 axis = {0}> { y = CumSum(x, axis) }")
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    with open_engine("tvm", EngineSpec(path, batch_size=2)) as engine:
        assert engine.independent is False
        np.testing.assert_allclose(engine(x), judged(path, x)[0], rtol=1e-5, atol=1e-6)
    assert opened == ["2x4", "5x4"]


@needs_tvm
@pytest.mark.parametrize("asked", [None, "float16"])
def test_float16_is_of_weights_and_ends(save_onnx: SaveOnnx, cache: Path, asked: str | None) -> None:
    path = net(save_onnx)
    if asked is None:  # a float16 file
        onnx.save(to_float16(load_model(path)), path)
    with open_engine("tvm", EngineSpec(path, batch_size=2, dtype=asked)) as engine:
        assert (engine.dtype, engine.input_dtype, engine.outputs[0].dtype.name) == ("float16", "float16", "float16")
        got = np.asarray(engine(images(2, "float16")))
    with open_engine("onnx", EngineSpec(path, dtype=asked)) as engine:
        want = np.asarray(engine(images(2, "float16")))
    assert got.dtype == want.dtype == np.float16
    np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=2e-3, atol=2e-3)


@needs_tvm
@pytest.mark.parametrize(("columns", "inlined"), [(18, False), (19, True)])
def test_a_reader_of_a_part_is_not_inlined(
    columns: int,
    inlined: bool,
    save_onnx: SaveOnnx,
    cache: Path,
    opened: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """TVM's scheduler would inline it, and then writes beyond the end of each row of its result."""
    used: list[str] = []
    inline = tvm_schedule._Kernel._inlined

    def recorded(self: Any, primitive: Any, block: Any) -> None:
        used.append(primitive.__name__)
        inline(self, primitive, block)

    monkeypatch.setattr(tvm_schedule._Kernel, "_inlined", recorded)
    path = save_onnx(
        f"g (float[batch,12] x, float[12,19] w) => (float[batch,{columns}] y) <int64[1] a = {{0}}, "
        f"int64[1] b = {{{columns}}}, int64[1] axis = {{1}}> "
        "{ m = MatMul(x, w) s = Slice(m, a, b, axis) y = Tanh(s) }"
    )
    rng = np.random.default_rng(0)
    feed = [rng.normal(size=shape).astype(np.float32) for shape in ((30, 12), (12, 19))]
    with open_engine("tvm", EngineSpec(path, batch_size=30)) as engine:
        np.testing.assert_allclose(engine(feed), judged(path, *feed)[0], rtol=1e-5, atol=1e-6)
    assert opened == ["30x12"]
    assert ("reverse_compute_inline" in used) == inlined


@needs_tvm
@pytest.mark.parametrize("way", ["refused", "wrong"])
def test_a_plan_without_the_schedule_is_the_fallback(
    way: str, save_onnx: SaveOnnx, cache: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def scheduled(module: Any) -> tuple[Any, bool]:
        if way == "refused":
            raise RuntimeError("the scheduler failed")
        return module, False

    def differs(self: TvmEngine, *args: Any) -> str:
        return "" if way == "refused" or len(opened) > 1 else "output 'y': other values"

    monkeypatch.setattr(tvm_schedule, "scheduled", scheduled)
    monkeypatch.setattr(TvmEngine, "_differs", differs)
    path = net(save_onnx)
    with open_engine("tvm", EngineSpec(path, batch_size=2)) as engine:
        np.testing.assert_allclose(engine(images(2)), judged(path, images(2))[0], rtol=1e-4, atol=1e-5)
    assert len(opened) == {"refused": 1, "wrong": 2}[way]


@needs_tvm
def test_nan_is_not_hidden(save_onnx: SaveOnnx, cache: Path) -> None:
    path = save_onnx(
        "g (float[batch,4] x) => (float[batch,4] a, float[batch,4] b) <float lo = {-1}, float hi = {1}> "
        "{ a = Relu(x) b = Clip(x, lo, hi) }"
    )
    x = np.array([[np.nan, -np.inf, np.inf, 0.5]], np.float32)
    with open_engine("tvm", EngineSpec(path)) as engine:
        for got, want in zip(engine(x), judged(path, x), strict=True):
            np.testing.assert_array_equal(got, want)


@needs_tvm
def test_an_index_out_of_range_is_an_error(save_onnx: SaveOnnx, cache: Path) -> None:
    path = save_onnx("g (float[4,3] t, int64[n] i) => (float[n,3] y) { y = Gather(t, i) }")
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    with open_engine("tvm", EngineSpec(path, batch_size=3)) as engine:
        assert np.array_equal(engine([table, np.array([0, -1, 3])]), table[[0, -1, 3]])
        for index in (4, -5, 1 << 40):
            with pytest.raises(EngineError, match="'y'"):
                engine([table, np.array([0, 1, index])])
        assert np.array_equal(engine([table, np.array([2, 2, 2])]), table[[2, 2, 2]])


@needs_tvm
@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("g (float[n,4] x) => (float[n,4] y) <int64[1] s = {4}> { y = ReverseSequence(x, s) }", "ReverseSequence"),
        (f"g (bool[1] c, float[1] x) => (float[1] y) {{ y = If(c) <{BRANCHES}> }}", "If"),
        ("g (string[n] x) => (string[n] y) { y = Identity(x) }", "'x'"),
    ],
)  # fmt: skip
def test_what_tvm_lacks_is_refused_by_name(
    text: str, named: str, save_onnx: SaveOnnx, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = save_onnx(text)
    with pytest.raises(ModelError, match=named) as refused:
        open_engine("tvm", EngineSpec(path))
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert capfd.readouterr() == ("", "")


@needs_tvm
def test_calls_side_by_side(save_onnx: SaveOnnx, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.backends.tvm.usable_cores", lambda: 2)
    path = net(save_onnx)
    want = judged(path, images(4))[0]
    with open_engine("tvm", EngineSpec(path, batch_size=4, streams=2)) as engine:
        assert engine.streams == 2
        for future in [engine.run_async(images(4)) for _ in range(12)]:
            np.testing.assert_allclose(future.result(), want, rtol=1e-4, atol=1e-5)


@needs_tvm
@pytest.mark.parametrize(
    ("given", "error"),
    [("nonsense", ConfigError), ('{"kind": 3}', ConfigError), ("{", ConfigError), ("cuda", TargetError)],
)
def test_targets_that_cannot_be_used(
    given: str, error: type[Exception], save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TARGET_VARIABLE, given)
    with pytest.raises(error, match=TARGET_VARIABLE) as refused:
        open_engine("tvm", EngineSpec(net(save_onnx)))
    assert "\n" not in str(refused.value)


@needs_tvm
def test_a_target_of_the_users_own(
    save_onnx: SaveOnnx, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, saved = net(save_onnx), tmp_path / "net.so"
    want = judged(path, images(2))[0]
    for target, processor in (("llvm", ""), ('{"kind": "llvm", "mcpu": "x86-64"}', "x86-64")):
        monkeypatch.setenv(TARGET_VARIABLE, target)
        open_engine("tvm", EngineSpec(path, batch_size=2, save_engine=True)).release()
        with open_engine("tvm", EngineSpec(saved)) as engine:
            np.testing.assert_allclose(engine(images(2)), want, rtol=1e-4, atol=1e-5)
        assert json.loads(record_path(saved).read_text())["processor"] == processor
    monkeypatch.delenv(TARGET_VARIABLE)
    with pytest.raises(ModelError, match="x86-64"):
        open_engine("tvm", EngineSpec(saved))


def test_a_missing_package_is_named_with_its_command(save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tvm", None)
    with pytest.raises(TargetError, match=r"pip install .*\[tvm\]"):
        open_engine("tvm", EngineSpec(net(save_onnx)))


@needs_tvm
def test_tvm_is_imported_for_its_target_only(run_python: RunPython, save_onnx: SaveOnnx) -> None:
    code = (
        "import sys; from engine import EngineSpec, available_targets, open_engine; "
        f"open_engine('onnx', EngineSpec({str(net(save_onnx))!r})); assert 'tvm' in available_targets(); "
        "print([name for name in sys.modules if name.partition('.')[0] in ('tvm', 'tvm_ffi')])"
    )
    assert run_python("-c", code).stdout.strip() == "[]"


@needs_tvm
@pytest.mark.slow
@pytest.mark.long  # test_tvm_recurrent.py computes every kind of layer, this model's among them
def test_a_recurrent_model(cache: Path) -> None:
    path = ROOT / "example/ocr/digit_crnn/digit_crnn_dyn.onnx"
    x = np.random.default_rng(0).random((2, 1, 32, 32), np.float32)
    with open_engine("tvm", EngineSpec(path, batch_size=2, dims={"width": (32,)})) as engine:
        np.testing.assert_allclose(engine(x), judged(path, x)[0], atol=1e-5)


@needs_tvm
@pytest.mark.slow
@pytest.mark.long  # test_forked_engines.py has the same with a queue
def test_a_forked_child_computes_and_ends(run_python: RunPython, cache: Path, save_onnx: SaveOnnx) -> None:
    code = f"""
import os, sys, numpy as np
from engine import EngineSpec, open_engine
engine = open_engine("tvm", EngineSpec({str(net(save_onnx))!r}, batch_size=8))
x = np.random.default_rng(0).random((8, 3, 8, 8), np.float32)
want = engine(x)
child = os.fork()
assert np.array_equal(engine(x), want)
if not child:
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
    done = run_python("-c", code, TECO_CACHE_DIR=str(cache.parent))
    assert (done.returncode, done.stderr) == (0, "")


@needs_tvm
@pytest.mark.slow
@pytest.mark.parametrize(
    ("channels", "size", "stride", "groups"), [(1, 7, 1, 1), (6, 9, 2, 1), (8, 8, 1, 8), (33, 5, 2, 1)]
)
def test_convolutions_of_odd_sizes(
    channels: int, size: int, stride: int, groups: int, save_onnx: SaveOnnx, cache: Path
) -> None:
    rng = np.random.default_rng(channels)
    graph = onnx.parser.parse_graph(
        f"g (float[batch,{channels},{size},{size}] x) => (float[batch,{2 * channels},h,w] y) "
        f"{{ c = Conv<pads=[1,0,1,2], strides=[{stride},{stride}], group={groups}>(x, k) y = Relu(c) }}"
    )
    kernel = rng.normal(size=(2 * channels, channels // groups, 3, 3)).astype(np.float32)
    graph.initializer.append(onnx.numpy_helper.from_array(kernel, "k"))
    path = save_onnx(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8))
    x = rng.normal(size=(3, channels, size, size)).astype(np.float32)
    with open_engine("tvm", EngineSpec(path, batch_size=3)) as engine:
        np.testing.assert_allclose(engine(x), judged(path, x)[0], rtol=1e-4, atol=1e-4)


@needs_tvm
@pytest.mark.slow
@pytest.mark.parametrize(
    "shapes", [((5, 7), (7, 197)), ((1, 64), (64, 10)), ((48, 96), (96, 128)), ((2, 3, 9), (2, 9, 40))]
)
def test_products_of_odd_sizes(shapes: tuple[tuple[int, ...], ...], save_onnx: SaveOnnx, cache: Path) -> None:
    left, right = shapes
    rank = f"{', '.join(map(str, (*left[:-1], right[-1])))}"
    path = save_onnx(
        f"g (float{list(left)} a, float{list(right)} b) => (float[{rank}] y) {{ m = MatMul(a, b) y = Tanh(m) }}"
    )
    rng = np.random.default_rng(0)
    feed = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    with open_engine("tvm", EngineSpec(path, batch_size=left[0])) as engine:
        np.testing.assert_allclose(engine(feed), judged(path, *feed)[0], rtol=1e-4, atol=1e-5)
