"""Target cuda: what it says where nothing is installed, and its plan handling on a stand-in for the GPU.

The stand-in's plan is an ONNX file that ONNX Runtime's CPU computes; everything around it (binding, passes, float16,
keys, splitting) is the real code. Tests that need the GPU say so where they skip.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import engine.backends.cuda
import engine.backends.trt
from engine.backends.cuda import CudaEngine
from engine.backends.ort import HostSession
from engine.backends.trt import Session
from engine.backends.trt_plan import Shapes, plan_path, read_record, record_path
from engine.base import PASS_PATH, ConfigError, EngineSpec, ModelError, TargetError
from engine.onnx.view import signature

HAS_TENSORRT = engine.backends.cuda.tensorrt_installed()
ROOT = Path(__file__).resolve().parents[3]


class StandIn:
    """In place of :class:`engine.backends.trt.TensorRT`; counts builds and notes the batches it is given."""

    version: ClassVar[str] = "10.9.0"
    gpu: ClassVar[str] = "NVIDIA stand-in"
    built: ClassVar[list[Shapes]] = []
    batches: ClassVar[list[int]] = []
    closed: ClassVar[list[bool]] = []

    def __init__(self, device: int) -> None:
        assert device == 0

    def build(self, model: onnx.ModelProto, shapes: Shapes) -> bytes:
        self.built.append(shapes)
        return model.SerializeToString()

    def open(self, plan: bytes) -> Session:
        session = HostSession(plan)
        names = [tensor.name for tensor in session.outputs]

        def run(feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            self.batches.append(len(next(iter(feed.values()))))
            return dict(zip(names, session.run_named(feed), strict=True))

        inputs, outputs, dims = signature(onnx.load_from_string(plan))
        shapes = {t.name: [[1, *t.shape[1:]], [4, *t.shape[1:]], [4, *t.shape[1:]]] for t in inputs}
        return Session(run, lambda: self.closed.append(True), lambda: (inputs, outputs, dims, shapes))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> type[StandIn]:
    for record in (StandIn.built, StandIn.batches, StandIn.closed):
        record.clear()
    monkeypatch.setattr(engine.backends.cuda, "tensorrt_installed", lambda: True)
    monkeypatch.setattr(engine.backends.trt, "TensorRT", StandIn)
    return StandIn


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Write x (N x 3 x H x W) -> Conv -> mean over H and W -> y (N x 4)."""
    weight = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Identity", ["c"], ["i"]),
        helper.make_node("ReduceMean", ["i"], ["y"], axes=[2, 3], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, "H", "W"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
        [numpy_helper.from_array(weight, "w")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    proto.metadata_props.add(key="labels", value="a,b,c,d")
    path = tmp_path / "small.onnx"
    onnx.save(proto, str(path))
    return path


def spec_of(model: Path, **changes: object) -> EngineSpec:
    base = EngineSpec(ckpt=model, batch_size=4, input_size=((4, 3, 8, 8),))
    return replace(base, **changes)  # type: ignore[arg-type]


def samples(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 3, 8, 8)).astype(np.float32)


# ------------------------------------------------------------------------------------------------- nothing installed


@pytest.mark.skipif(HAS_TENSORRT, reason="TensorRT is installed")
def test_missing_tensorrt_or_cuda_reports_the_packages_to_install(model: Path) -> None:
    with pytest.raises(TargetError) as caught:
        CudaEngine(spec_of(model))
    message = str(caught.value)
    assert message.startswith(
        "target 'cuda' needs TensorRT or ONNX Runtime with CUDA; "
        'for TensorRT run: pip install -c constraints.txt -e ".[tensorrt]", or replace onnxruntime by onnxruntime-gpu: '
        'pip install -c constraints.txt -e ".[cuda]"'
    )
    assert "CUDA provider" in message
    assert "\n" not in message


@pytest.mark.skipif(HAS_TENSORRT, reason="TensorRT is installed")
def test_a_plan_cannot_be_run_without_tensorrt(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"m\.engine .*TensorRT is not installed"):
        CudaEngine(EngineSpec(ckpt=tmp_path / "m.engine"))


def test_the_import_is_free_of_vendor_packages() -> None:
    code = (
        "import sys, engine.backends.trt\n"
        "heavy = {'tensorrt', 'polygraphy', 'onnx', 'onnxruntime', 'torch'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


# ------------------------------------------------------------------------------------------------------ the stand-in


@pytest.mark.parametrize("count", [1, 3, 4, 5, 9])
def test_any_batch_is_computed_in_runs_the_profile_allows(gpu: type[StandIn], model: Path, count: int) -> None:
    x = samples(count)
    with CudaEngine(spec_of(model)) as engine_:
        y = engine_(x)
        assert engine_.metadata == {"labels": "a,b,c,d"}
        assert engine_.describe() == "TensorRT 10.9.0 on NVIDIA stand-in, float32"
    assert gpu.built == [{"x": [[1, 3, 8, 8], [4, 3, 8, 8], [4, 3, 8, 8]]}]
    assert max(gpu.batches) <= 4
    assert gpu.closed == [True]
    assert np.allclose(y, HostSession(model).run([x])[0], atol=1e-6)


def test_the_larger_of_batch_size_and_input_size_is_one_run(gpu: type[StandIn], model: Path) -> None:
    CudaEngine(spec_of(model, batch_size=64)).release()
    CudaEngine(spec_of(model, batch_size=1, input_size=((16, 3, 8, 8),))).release()
    assert [shapes["x"][2][0] for shapes in gpu.built] == [64, 16]


def test_dynamic_dimensions_need_input_size(gpu: type[StandIn], model: Path) -> None:
    with pytest.raises(ConfigError, match="input_size"):
        CudaEngine(spec_of(model, input_size=None))


def test_float16_is_a_converted_model(gpu: type[StandIn], model: Path) -> None:
    with CudaEngine(spec_of(model, dtype="float16")) as engine_:
        assert engine_.inputs[0].dtype == np.float16
        with pytest.warns(UserWarning, match="cast to the model's float16"):
            y = engine_(samples(4))
    assert isinstance(y, np.ndarray)
    assert y.dtype == np.float16
    assert np.allclose(y, HostSession(model).run([samples(4)])[0], atol=1e-2)


def test_passes_are_run(gpu: type[StandIn], model: Path) -> None:
    CudaEngine(spec_of(model, pass_path=PASS_PATH / "default_pass.py", save_engine=True)).release()
    plan = onnx.load(str(plan_path(model)))
    assert [node.op_type for node in plan.graph.node] == ["Conv", "ReduceMean"]


def test_plans_are_written_only_on_request(gpu: type[StandIn], model: Path) -> None:
    CudaEngine(spec_of(model)).release()
    assert not plan_path(model).exists()


def test_a_saved_plan_is_used_again(gpu: type[StandIn], model: Path) -> None:
    for dtype in ("float16", "float16"):
        with CudaEngine(spec_of(model, save_engine=True, dtype=dtype)) as engine_:
            assert engine_.inputs[0].dtype == np.float16
            assert engine_.outputs[0].dtype == np.float16
            engine_(samples(4).astype(np.float16))
    assert len(gpu.built) == 1
    with CudaEngine(spec_of(model, dtype="float16")):  # also without save_engine
        assert len(gpu.built) == 1


def touch_model(path: Path) -> None:
    proto = onnx.load(str(path))
    proto.graph.name = "changed"
    onnx.save(proto, str(path))


def cut_plan(path: Path) -> None:
    plan_path(path).write_bytes(plan_path(path).read_bytes()[:-10])


def damage_record(path: Path) -> None:
    record_path(plan_path(path)).write_text("{", encoding="utf-8")


def drop_record(path: Path) -> None:
    record_path(plan_path(path)).unlink()


@pytest.mark.parametrize(
    ("change", "options", "reason"),
    [
        (touch_model, {}, "model_sha256 was"),
        (cut_plan, {}, "truncated"),
        (damage_record, {}, "is not a plan record"),
        (drop_record, {}, "does not exist"),
        (None, {"batch_size": 8}, "input_shapes was"),
        (None, {"dtype": "float16"}, "precision was"),
        (None, {"pass_path": PASS_PATH / "default_pass.py"}, "pass_sha256 was"),
    ],
)
def test_a_stale_plan_is_rebuilt_with_the_reason_in_the_log(
    gpu: type[StandIn],
    model: Path,
    caplog: pytest.LogCaptureFixture,
    change: Callable[[Path], None] | None,
    options: dict[str, object],
    reason: str,
) -> None:
    spec = spec_of(model, save_engine=True)
    CudaEngine(spec).release()
    if change is not None:
        change(model)
    with caplog.at_level(logging.INFO, logger="engine.backends.cuda"):
        CudaEngine(replace(spec, **options)).release()  # type: ignore[arg-type]
    assert len(gpu.built) == 2
    assert reason in caplog.text
    CudaEngine(replace(spec, **options)).release()  # type: ignore[arg-type]
    assert len(gpu.built) == 2  # the rebuilt one fits


@pytest.mark.parametrize(("name", "value"), [("version", "10.13.0"), ("gpu", "NVIDIA other")])
def test_another_library_or_gpu_makes_a_plan_stale(
    gpu: type[StandIn], model: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    CudaEngine(spec_of(model, save_engine=True)).release()
    monkeypatch.setattr(gpu, name, value)
    CudaEngine(spec_of(model)).release()
    assert len(gpu.built) == 2
    with pytest.raises(ModelError, match="was built for"):
        CudaEngine(EngineSpec(ckpt=plan_path(model)))


def test_a_plan_is_loaded_directly_with_its_record(gpu: type[StandIn], model: Path) -> None:
    CudaEngine(spec_of(model, save_engine=True, dtype="float16")).release()
    with CudaEngine(EngineSpec(ckpt=plan_path(model))) as engine_:
        assert engine_.dtype == "float16"
        assert engine_.metadata == {"labels": "a,b,c,d"}
        assert engine_.inputs[0].shape == (None, 3, 8, 8)
        y = engine_(samples(6).astype(np.float16))
    assert isinstance(y, np.ndarray)
    assert y.shape == (6, 4)
    with pytest.raises(ModelError, match="precision float16, not float32"):
        CudaEngine(EngineSpec(ckpt=plan_path(model), dtype="float32"))


def test_a_plan_is_loaded_directly_without_a_record(gpu: type[StandIn], model: Path) -> None:
    CudaEngine(spec_of(model, save_engine=True)).release()
    drop_record(model)
    with CudaEngine(EngineSpec(ckpt=plan_path(model), input_size=((4, 3, 8, 8),))) as engine_:
        y = engine_(samples(6))
    assert isinstance(y, np.ndarray)
    assert y.shape == (6, 4)


def test_a_plan_cut_short_is_refused(gpu: type[StandIn], model: Path) -> None:
    CudaEngine(spec_of(model, save_engine=True)).release()
    cut_plan(model)
    with pytest.raises(ModelError, match="truncated or was changed"):
        CudaEngine(EngineSpec(ckpt=plan_path(model)))


def test_a_missing_plan(gpu: type[StandIn], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        CudaEngine(EngineSpec(ckpt=tmp_path / "none.engine"))


def test_a_static_model_is_run_with_its_batch_size(gpu: type[StandIn], model: Path) -> None:
    proto = onnx.load(str(model))
    for axis, size in enumerate((2, 3, 8, 8)):
        proto.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = size
    proto.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 2
    onnx.save(proto, str(model))
    with CudaEngine(spec_of(model, input_size=None)) as engine_:
        y = engine_(samples(5))
    assert gpu.built == [{}]
    assert gpu.batches == [2, 2, 2]
    assert isinstance(y, np.ndarray)
    assert y.shape == (5, 4)


def test_several_inputs_keep_the_callers_order(gpu: type[StandIn], tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Sub", ["a", "b"], ["y"])],
        "two",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3]) for name in "ab"],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
    )
    path = tmp_path / "two.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    spec = EngineSpec(ckpt=path, batch_size=2, input_name=("b", "a"), save_engine=True)
    one, two = np.ones((3, 3), np.float32), np.full((3, 3), 2, np.float32)
    for _ in range(2):  # built, then loaded
        with CudaEngine(spec) as engine_:
            assert np.array_equal(engine_([one, two]), two - one)
    record = read_record(plan_path(path))
    assert record is not None
    assert [tensor.name for tensor in record.inputs] == ["a", "b"]
    with CudaEngine(EngineSpec(ckpt=plan_path(path))) as engine_:
        assert np.array_equal(engine_([two, one]), two - one)


# -------------------------------------------------------------------------------------------------------- a real GPU


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TENSORRT, reason="TensorRT and polygraphy are not installed")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_on_a_gpu_with_tensorrt(model: Path, dtype: str) -> None:
    spec = spec_of(model, dtype=dtype, save_engine=True)
    want = HostSession(model).run([samples(9)])[0]
    for ckpt in (model, model, plan_path(model)):  # built, loaded by its key, loaded directly
        with CudaEngine(replace(spec, ckpt=ckpt)) as engine_:
            got = engine_(samples(9).astype(dtype))
        assert np.allclose(got, want, atol=1e-4 if dtype == "float32" else 1e-2)
    drop_record(model)
    with CudaEngine(replace(spec, ckpt=plan_path(model), dtype=None)) as engine_:
        assert np.allclose(engine_(samples(9).astype(dtype)), want, atol=1e-2)


def cuda_provider_works() -> bool:
    from engine.backends.cuda import _probe
    from engine.backends.ort import cuda_session

    try:
        cuda_session(_probe())
    except TargetError:
        return False
    return True


@pytest.mark.skipif(HAS_TENSORRT, reason="TensorRT is installed and would compute")
@pytest.mark.skipif(not cuda_provider_works(), reason="ONNX Runtime's CUDA provider cannot start here")
def test_on_a_gpu_with_onnxruntime(model: Path) -> None:
    with pytest.warns(UserWarning, match="only TensorRT writes"):
        engine_ = CudaEngine(spec_of(model, save_engine=True))
    with engine_:
        assert "CUDA provider" in engine_.describe()
        got = engine_(samples(9))
    assert np.allclose(got, HostSession(model).run([samples(9)])[0], atol=1e-3)
