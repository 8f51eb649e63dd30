"""Target ``cuda``: an NVIDIA GPU, on TensorRT if it is installed, else on ONNX Runtime's CUDA provider."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.backends.trt_plan import (
    PlanKey,
    PlanRecord,
    Shapes,
    bound_dims,
    is_whole,
    plan_path,
    profile_shapes,
    read_plan,
    read_record,
    record_path,
    smallest_shape,
    stale_reason,
    write_plan,
)
from engine.base import Array, ConfigError, Engine, EngineSpec, ModelError, TargetError
from engine.batching.batch import batch_of
from tecoinfer_modelzoo import install_command
from tecoinfer_modelzoo.text import user_stacklevel

if TYPE_CHECKING:
    from onnx import ModelProto

    from engine.backends.trt import Session, TensorRT
    from engine.signature import Dim

_log = logging.getLogger(__name__)


def _needs() -> str:
    return (
        "target 'cuda' needs TensorRT or ONNX Runtime with CUDA; for TensorRT run: "
        f"{install_command('tensorrt')}, or replace onnxruntime by onnxruntime-gpu: {install_command('cuda')}"
    )


def tensorrt_installed() -> bool:
    """Return whether TensorRT and polygraphy are installed, without importing them."""
    return all(importlib.util.find_spec(name) for name in ("tensorrt", "polygraphy"))


class CudaEngine(Engine):
    """Target ``cuda``.

    One plan serves every size of ``dims``, from the smallest to the largest. One run takes up to ``batch_size``
    samples, or the batch of ``input_size`` if that is larger; a larger call is computed in several runs. The plan
    beside the model is used if its key matches; with ``save_engine``, a new plan is written if it does not. A ``ckpt``
    with suffix ``.engine`` is loaded directly.
    """

    outputs_owned = inputs_untouched = concurrent_calls = True

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self._close: Callable[[], None] | None = None
        self._rows: int | None = None
        if tensorrt_installed():
            from engine.backends.trt import TensorRT

            self._open_tensorrt(TensorRT(spec.rank))
        elif spec.ckpt.suffix == ".engine":
            command = install_command("tensorrt")
            raise TargetError(f"{spec.ckpt} is a TensorRT plan and TensorRT is not installed; run: {command}")
        else:
            self._open_onnxruntime()

    # ------------------------------------------------------------------------------------------------------ TensorRT

    def _open_tensorrt(self, backend: TensorRT) -> None:
        session, shapes = (
            self._plan_file(backend) if self.spec.ckpt.suffix == ".engine" else self._plan_of_model(backend)
        )
        self._run, self._close = session.run, session.close
        lead = shapes.get(self.inputs[self.lead].name) if self.inputs else None
        self._rows = self.static_batch or (lead[2][self.batch_axis] if lead else None)
        self._what = f"TensorRT {backend.version} on {backend.gpu}"

    def _plan_file(self, backend: TensorRT) -> tuple[Session, Shapes]:
        """Load a plan without its model; without a record it has no metadata, and its inputs come from the plan."""
        path = self.spec.ckpt
        if not path.is_file():
            raise ModelError(f"{path} does not exist; check ckpt")
        plan, record = read_plan(path), read_record(path)
        if record is None:
            session = backend.open(plan)
            inputs, outputs, dims, shapes = session.signature()
            if self.spec.dtype is None and any(tensor.dtype.name == "float16" for tensor in inputs):
                self.dtype = "float16"
            self.bind(inputs, outputs, dims)
            return session, shapes
        if not is_whole(record, plan):
            raise ModelError(f"{path} is truncated or was changed after it was built; rebuild it from the ONNX model")
        here = {"tensorrt": backend.version, "gpu": backend.gpu, "precision": self.spec.dtype or record.key.precision}
        for field, want in here.items():
            if getattr(record.key, field) != want:
                raise ModelError(
                    f"{path} was built for {field} {getattr(record.key, field)}, not {want}; "
                    "rebuild it from the ONNX model"
                )
        self.dtype, self.metadata = record.key.precision, record.metadata
        self.bind(record.inputs, record.outputs, record.dims)
        return backend.open(plan), record.key.input_shapes

    def _plan_of_model(self, backend: TensorRT) -> tuple[Session, Shapes]:
        from engine.onnx.load import file_hash, load_model
        from engine.onnx.view import metadata, signature

        model = load_model(self.spec.ckpt)
        self.metadata = metadata(model)
        inputs, outputs, declared = signature(model)
        self.bind(inputs, outputs, declared)
        by_name = {tensor.name: shape for tensor, shape in zip(inputs, declared, strict=True)}
        ordered = [by_name[tensor.name] for tensor in self.inputs]
        dims = dict(zip([t.name for t in self.inputs], bound_dims(self.inputs, ordered, self.spec), strict=True))
        shapes = profile_shapes(self.inputs, ordered, self._batch(), self.spec.dims)
        pass_path = self.spec.pass_path
        pass_hash = hashlib.sha256(pass_path.read_bytes()).hexdigest() if pass_path else ""
        key = PlanKey(file_hash(self.spec.ckpt), pass_hash, shapes, self.dtype, backend.version, backend.gpu)
        found = self._fitting_plan(key)
        if found is None:
            found = self._build(backend, model, key, dims)
        record, plan = found
        dtypes = {tensor.name: tensor.dtype for tensor in record.inputs}
        self.inputs = [replace(tensor, dtype=dtypes[tensor.name]) for tensor in self.inputs]
        self.outputs = record.outputs
        return backend.open(plan), shapes

    def _batch(self) -> int:
        """Return the largest number of samples in one run."""
        sizes = self.spec.input_size
        given = sizes[self.lead][self.batch_axis] if sizes and self.inputs[self.lead].batched else None
        return max(self.spec.batch_size, given or 1)

    def _fitting_plan(self, key: PlanKey) -> tuple[PlanRecord, bytes] | None:
        path = plan_path(self.spec.ckpt)
        if not path.is_file():
            return None
        try:
            record, plan = read_record(path), read_plan(path)
        except ModelError as error:
            reason: str | None = str(error)
        else:
            reason = stale_reason(record, key, plan) if record else f"{record_path(path)} does not exist"
            if record and reason is None:
                return record, plan
        _log.info("%s is not used: %s", path, reason)
        return None

    def _build(
        self, backend: TensorRT, model: ModelProto, key: PlanKey, dims: dict[str, list[Dim]]
    ) -> tuple[PlanRecord, bytes]:
        from engine.onnx.view import signature

        model = self._prepare(model)
        inputs, outputs, _ = signature(model)
        bound = {tensor.name: tensor for tensor in self.inputs}
        plan = backend.build(model, key.input_shapes)
        record = PlanRecord(
            key=key,
            plan_sha256=hashlib.sha256(plan).hexdigest(),
            inputs=[replace(bound[tensor.name], dtype=tensor.dtype) for tensor in inputs],
            outputs=outputs,
            dims=[dims[tensor.name] for tensor in inputs],
            metadata=dict(self.metadata),
        )
        if self.spec.save_engine:
            write_plan(plan_path(self.spec.ckpt), plan, record)
        return record, plan

    def _prepare(self, model: ModelProto) -> ModelProto:
        from engine.onnx.float16 import to_float16
        from engine.passes.options import PassOptions
        from engine.passes.runner import apply_passes

        options = PassOptions.load(self.spec.pass_path)
        # Two samples are enough to detect a broken pass.
        shapes = {tensor.name: smallest_shape(tensor, 2, self.spec.dims) for tensor in self.inputs}
        model = apply_passes(model, options, input_shapes=shapes)
        if self.dtype == "float16" and options.need_convert:
            model = to_float16(model, options.keeps_float32, options.skip_input_name)
        return model

    # -------------------------------------------------------------------------------------------------- ONNX Runtime

    def _open_onnxruntime(self) -> None:
        from engine.backends.ort import cuda_session
        from engine.onnx.load import load_model
        from engine.onnx.view import metadata, signature

        try:
            cuda_session(_probe())
        except TargetError as error:
            raise TargetError(f"{_needs()}; found: {error}") from error
        if self.spec.rank:
            raise ConfigError(
                f"rank {self.spec.rank}: ONNX Runtime runs on GPU 0 here; set CUDA_VISIBLE_DEVICES={self.spec.rank} "
                f"and rank 0, or run: {install_command('tensorrt')}"
            )
        if self.spec.save_engine:
            warnings.warn("save_engine is ignored: only TensorRT writes an engine file", stacklevel=user_stacklevel())
        model = load_model(self.spec.ckpt)
        self.metadata = metadata(model)
        self.bind(*signature(model))
        session = cuda_session(self._prepare(model))
        dtypes = {tensor.name: tensor.dtype for tensor in session.inputs}
        self.inputs = [replace(tensor, dtype=dtypes[tensor.name]) for tensor in self.inputs]
        self.outputs = session.outputs
        names = [tensor.name for tensor in self.outputs]
        self._run = lambda feed: dict(zip(names, session.run_named(feed), strict=True))
        self._rows = self.static_batch
        self._what = "ONNX Runtime's CUDA provider (TensorRT with polygraphy is not installed)"

    # ------------------------------------------------------------------------------------------------------- running

    def describe(self) -> str:
        """Return which library computes, where, and in which precision."""
        return f"{self._what}, {self.dtype}"

    def infer(self, inputs: list[Array]) -> list[Array]:
        """Run any batch: at once if it fits, else in several runs."""
        total, size = batch_of(inputs, self.inputs), self._rows
        if size is None or total == size or (self.static_batch is None and total < size):
            return self._run_arrays(inputs)
        return self.batching.in_pieces(self, self._run_arrays, inputs, size)

    def _run_arrays(self, arrays: list[Array]) -> list[Array]:
        results = self._run({tensor.name: array for tensor, array in zip(self.inputs, arrays, strict=True)})
        return [results[tensor.name] for tensor in self.outputs]

    def close(self) -> None:
        """Free the plan or the session."""
        if self._close is not None:
            self._close()
        del self._run


def _probe() -> ModelProto:
    """Return a minimal model, to check that the CUDA provider starts before anything slow is done."""
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "probe", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
